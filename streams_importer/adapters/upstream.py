"""An upstream with its key and its budget: takes a token, asks once, and raises what the answer means."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from ..domain.answers import MAX_WAIT_S, classify, error_of
from ..domain.errors import BadSetting, Weather
from ..domain.hosts import place_of
from ..domain.redaction import Redactor
from ..ports import Answer, Cancel, RequestBudget
from .http import HttpClient

FIRST_HOLD_S = 10.0
"""How long everybody waits after a 429 that names no time; doubles while the upstream repeats itself."""

MAX_UNTOLD_HOLD_S = 600.0
"""Nobody asked for more: ten minutes between two tries is patient enough."""

MIN_HOLD_S = 1.0
"""`Retry-After: 0`, or a date that has passed, must not turn into a loop that costs nothing."""

SHORTEST_ECHO = 8
"""Bytes of a key that is looked for in answers. A shorter one may be a word of the data."""

_PATH = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*\Z")
_KEY = re.compile(r"[!-~]{1,256}\Z")


class _Patience:
    """How long to wait when the upstream does not say. A refusal counts as a repetition only if its request was sent after
    the last hold was recorded: eight refused in the same second are one event, not eight."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holds = 0
        self._repetitions = 0

    def sending(self) -> int:
        with self._lock:
            return self._holds

    def refused(self, sent_at: int) -> float:
        with self._lock:
            if sent_at == self._holds:
                self._holds += 1
                self._repetitions += 1
            return min(FIRST_HOLD_S * 2.0 ** min(self._repetitions - 1, 16), MAX_UNTOLD_HOLD_S)

    def served(self, sent_at: int) -> None:
        with self._lock:
            if sent_at == self._holds:
                self._repetitions = 0


class HttpUpstream:
    """The key goes into a header, and to the host of the base URL only: paths are ours, and redirects are not followed. An
    answer that repeats the key is blanked there before anybody reads it, so that it is stored nowhere."""

    def __init__(
        self,
        http: HttpClient,
        base_url: str,
        budget: RequestBudget,
        key: str | None = None,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._http = http
        self._base_url, self._host = _checked_base(base_url)
        self._budget = budget
        self._headers = {"X-API-Key": _checked_key(key)} if key else {}
        self._echoes = Redactor()
        if key and len(key) >= SHORTEST_ECHO:
            self._echoes.learn(key)
        self._dice = dice
        self._patience = _Patience()

    def get(self, path: str, params: Mapping[str, str], cancel: Cancel) -> Answer:
        if not _PATH.match(path):
            raise ValueError("a path below the base URL, please")
        url = f"{self._base_url}/{path}"
        self._http.check(url, self._headers)
        granted_us = self._budget.take(cancel)
        while not cancel.may_send():
            granted_us = self._budget.take(cancel)
        sent_at = self._patience.sending()
        answer = self._http.get(url, params, self._headers, cancel)
        error = error_of(classify(answer.status, answer.headers), answer.status, self._host)
        if error is None:
            self._patience.served(sent_at)
            return Answer(self._without_key(answer.body), granted_us)
        if isinstance(error, Weather):
            self._budget.hold(self._hold_s(error, sent_at))
        raise error

    def _without_key(self, body: bytes) -> bytes:
        text = body.decode("latin-1")  # a character for each byte; the key is ASCII
        shown = self._echoes.redacted(text)
        return body if shown == text else shown.encode("latin-1")

    def _hold_s(self, weather: Weather, sent_at: int) -> float:
        untold_s = self._patience.refused(sent_at)
        seconds = untold_s if weather.wait_s is None else max(weather.wait_s, MIN_HOLD_S)
        # Only ever later than asked for, and by little.
        return min(seconds + self._dice() * min(seconds * 0.1, 1.0), MAX_WAIT_S + 1.0)


def _checked_base(base_url: str) -> tuple[str, str]:
    """The base without a trailing slash, and its host for messages. A URL with a password or a query is never repeated."""
    try:
        parts = urlsplit(base_url)
        good = place_of(base_url) is not None
    except ValueError:
        good = False
    if not good or "@" in parts.netloc or parts.query or parts.fragment or not base_url.isprintable() or " " in base_url:
        raise BadSetting("OCM_BASE_URL: must be http(s)://host/path, without a user, a query or a fragment")
    return base_url.rstrip("/"), parts.netloc


def _checked_key(key: str) -> str:
    # Looked at here because requests would repeat a header value that it refuses in its exception.
    if not _KEY.match(key):
        raise BadSetting("OCM_API_KEY: must be 1 to 256 printable ASCII characters without blanks")
    return key
