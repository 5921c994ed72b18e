"""The switches of a stand-in in another process: `GET /_control/<what>` reads, `POST /_control/<method>` with JSON calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from http.client import HTTPConnection
from typing import Any

from .stand_in_service import Asked, Service, as_json

_CALLS = (
    *("add_fault", "clear_faults", "set_key", "set_rate_limit", "spoil", "update_points", "delete_points", "clear_log"),
    "poi",
)
_TIMEOUT_S = 30.0


def answer_control(service: Service, method: str, name: str, body: bytes) -> tuple[int, bytes]:
    """Status and JSON. A mistake in a call is told to the caller, who is a test or a demo of ours."""
    try:
        if method == "POST" and name in _CALLS:
            return 200, json.dumps(getattr(service, name)(**json.loads(body or b"{}"))).encode()
        if method == "GET" and name == "log":
            return 200, json.dumps(as_json(service.log())).encode()
        if method == "GET" and name == "ids":
            return 200, json.dumps(service.ids()).encode()
        if method == "GET" and name == "faults":
            return 200, json.dumps([asdict(rule) for rule in service.faults.rules]).encode()
    except (ValueError, TypeError, KeyError) as error:
        return 400, json.dumps({"error": str(error)}).encode()
    return 404, b'{"error": "no such control"}'


class Control:
    """The methods of `Service`, called over HTTP. Not through a proxy, whatever the environment says."""

    def __init__(self, port: int) -> None:
        self._port = port

    def add_fault(
        self, fault: str, value: Any = None, times: int | None = 1, path: str | None = "/poi", params: Any = None
    ) -> None:
        self._call("add_fault", fault=fault, value=value, times=times, path=path, params=params)

    def clear_faults(self) -> None:
        self._call("clear_faults")

    def set_key(self, key: str | None) -> None:
        self._call("set_key", key=key)

    def set_rate_limit(self, per_second: int | None, retry_after: str | None = None) -> None:
        self._call("set_rate_limit", per_second=per_second, retry_after=retry_after)

    def spoil(self, kinds: Mapping[Any, str]) -> None:
        self._call("spoil", kinds=dict(kinds))

    def update_points(self, pois: Iterable[Mapping[str, Any]]) -> None:
        self._call("update_points", pois=list(pois))

    def delete_points(self, ids: Iterable[int]) -> None:
        self._call("delete_points", ids=list(ids))

    def poi(self, identifier: int) -> dict[str, Any]:
        poi: dict[str, Any] = self._call("poi", identifier=identifier)
        return poi

    def ids(self) -> list[int]:
        return [int(identifier) for identifier in self._request("GET", "ids", None)]

    def log(self) -> list[Asked]:
        return [Asked(**asked) for asked in self._request("GET", "log", None)]

    def clear_log(self) -> None:
        self._call("clear_log")

    def _call(self, name: str, **arguments: Any) -> Any:
        return self._request("POST", name, json.dumps(arguments).encode())

    def _request(self, method: str, name: str, body: bytes | None) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, f"/_control/{name}", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            value = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(value["error"])
        return value
