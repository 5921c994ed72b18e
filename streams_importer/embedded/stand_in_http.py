"""The sockets of the local Open Charge Map: keep-alive on a loopback port, and every way to send an answer badly."""

from __future__ import annotations

import socket
import socketserver
import struct
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .stand_in_control import answer_control
from .stand_in_faults import Reply
from .stand_in_service import Service

API_PREFIX = "/v3"
CONTROL_PREFIX = "/_control/"
_DRIPS_PER_S = 20
"""A body that trickles comes in so many pieces a second."""


class StandInServer(ThreadingHTTPServer):
    """One thread a connection. `stop()` returns when the last of them is gone, also out of a slow answer."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, service: Service, port: int = 0) -> None:
        self.service = service
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        # Without looking up the name of the address, which can take seconds where there is no name server.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.port

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        with self._changed:
            for connection in self._open:
                with suppress(OSError):  # the client was first
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._open, timeout=10)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no news. Anything else would be a mistake of ours, and shows."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "stand-in"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together
    server: StandInServer

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path.startswith(CONTROL_PREFIX):
            self._control("GET", address.path)
            return
        params: dict[str, str] = {}
        for name, value in parse_qsl(address.query, keep_blank_values=True):
            # As upstream: names in any case, a repeated one is a list.
            name = name.lower()
            params[name] = f"{params[name]},{value}" if name in params else value
        path = address.path.removeprefix(API_PREFIX) if address.path.startswith(API_PREFIX + "/") else address.path
        self._send(self.server.service.answer(path.rstrip("/"), params, self.headers))

    def do_POST(self) -> None:
        self._control("POST", urlsplit(self.path).path)

    def _control(self, method: str, path: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # A page in somebody's browser can reach loopback ports too, but not under our name.
        local = self.headers.get("Host") == f"127.0.0.1:{self.server.port}" and path.startswith(CONTROL_PREFIX)
        status, answer = (
            answer_control(self.server.service, method, path.removeprefix(CONTROL_PREFIX), body) if local else (404, b"")
        )
        self._send(Reply(status, answer))

    def _send(self, reply: Reply) -> None:
        if self.server.stopping.wait(reply.wait_s) if reply.wait_s else False:
            self.close_connection = True
            return
        if reply.reset:
            # Lingering for 0 s makes closing a reset instead of an orderly end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        if reply.announce_length:
            self.send_header("Content-Length", str(len(reply.body)))
        else:
            self.send_header("Connection", "close")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._send_body(reply)

    def _send_body(self, reply: Reply) -> None:
        body = memoryview(reply.body)
        if reply.send_only is not None:
            body = body[: reply.send_only]
            self.close_connection = True
        if reply.bytes_per_s is None:
            self.wfile.write(body)
            return
        piece = max(1, int(reply.bytes_per_s / _DRIPS_PER_S))
        for start in range(0, len(body), piece):
            self.wfile.write(body[start : start + piece])
            self.wfile.flush()
            if self.server.stopping.wait(piece / reply.bytes_per_s):
                self.close_connection = True
                return

    def log_message(self, format: str, *args: Any) -> None:
        """The service keeps its own log."""
