"""The control channel: what reaches sleeping workers at once. Messages are hints; the state itself is read where it is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import redis

from ..domain.errors import Unavailable
from .redis_client import redis_errors
from .redis_keys import Keys
from .redis_messages import text

POLL_S = 0.5
RECONNECT_S = 0.5
RECONNECTED = "reconnected"
"""Heard after every (re)connection: messages may have been missed, so everything is read again."""


class ControlListener:
    """A thread with its own connection that passes every message to one callable."""

    def __init__(
        self, client: redis.Redis, keys: Keys, heard: Callable[[str], None], failed: Callable[[Exception], None]
    ) -> None:
        self._client = client
        self._channel = keys.control
        self._heard = heard
        self._failed = failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=POLL_S + 1)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with redis_errors():
                    self._listen()
            except Unavailable:
                self._stop.wait(RECONNECT_S)
            except Exception as error:  # a worker that hears nothing must not go on
                self._failed(error)
                return

    def _listen(self) -> None:
        subscribe: Any = self._client.pubsub  # not typed in redis-py
        with subscribe(ignore_subscribe_messages=True) as channel:
            channel.subscribe(self._channel)
            self._heard(RECONNECTED)
            while not self._stop.is_set():
                message = channel.get_message(timeout=POLL_S)
                if message is not None:
                    self._heard(text(message["data"])[:200])
