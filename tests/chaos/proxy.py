"""A TCP proxy on loopback in front of a server's Unix socket, for the ways a network has to fail.

| fault | what a client of it sees |
|---|---|
| `drop` | nothing any more: bytes of both directions vanish, the connection stays. It never recovers, as after a lost route |
| `delay` | every piece comes so many seconds late, in both directions |
| `half_close` | the end of the answers; what it still sends reaches the server and is done |
| `cut` | all connections closed now |
| `cut_after_command` | the next command runs, and its connection closes before the reply comes back |
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

PIECE = 65_536


class Proxy:
    """From construction to `close()`. Methods may be called from any thread."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._changed = threading.Condition()
        self._connections: set[_Connection] = set()
        self._to_cut = 0
        self._marker = b""
        self.closing = threading.Event()
        self.is_dropping = False
        self.delay_s = 0.0
        self.late = 0
        """Pieces that were held back so far."""
        self.cuts = 0
        """Connections closed with a reply in hand so far."""
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    @property
    def connections(self) -> int:
        with self._changed:
            return len(self._connections)

    def drop(self) -> None:
        self.is_dropping = True

    def delay(self, seconds: float) -> None:
        self.delay_s = seconds

    def forward(self) -> None:
        """Back to normal for what comes from now on."""
        self.is_dropping = False
        self.delay_s = 0.0
        with self._changed:
            self._to_cut = 0

    def half_close(self) -> int:
        """Returns how many connections it was done to."""
        with self._changed:
            return sum(connection.half_close() for connection in self._connections)

    def cut(self) -> int:
        with self._changed:
            for connection in self._connections:
                connection.end()
            return len(self._connections)

    def cut_after_command(self, times: int = 1, containing: bytes = b"") -> None:
        """Of the next commands with `containing` in them, so many are done and never answered."""
        with self._changed:
            self._to_cut, self._marker = times, containing

    def wait_for_cuts(self, number: int, seconds: float) -> bool:
        """Until there were so many since construction."""
        with self._changed:
            return self._changed.wait_for(lambda: self.cuts >= number, seconds)

    def close(self) -> None:
        """Safe to repeat."""
        self.closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._thread.join()
        self._listener.close()
        self.cut()
        with self._changed:
            self._changed.wait_for(lambda: not self._connections, 5)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # For its connections.

    def is_doomed(self, data: bytes) -> bool:
        with self._changed:
            if self._to_cut == 0 or self._marker not in data:
                return False
            self._to_cut -= 1
            return True

    def note_cut(self) -> None:
        with self._changed:
            self.cuts += 1
            self._changed.notify_all()

    def forget(self, connection: _Connection) -> None:
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                server.connect(self._target)
            except OSError:  # the server is away: so are we
                client.close()
                server.close()
                continue
            with self._changed:
                connection = _Connection(self, client, server)
                self._connections.add(connection)
                connection.start()


class _Connection:
    """Two threads, one a direction. The last to end closes the sockets."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._threads_left = 2
        self._lock = threading.Lock()
        self._is_lost = False
        self._is_doomed = False
        self._is_half_closed = False

    def start(self) -> None:
        for pump in (self._to_server, self._to_client):
            threading.Thread(target=self._run, args=(pump,), name="proxy connection", daemon=True).start()

    def half_close(self) -> bool:
        self._is_half_closed = True
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_WR)
            return True
        return False

    def end(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _run(self, pump: object) -> None:
        assert callable(pump)
        with suppress(OSError):
            pump()
        self.end()
        with self._lock:
            self._threads_left -= 1
            if self._threads_left:
                return
        self._client.close()
        self._server.close()
        self._proxy.forget(self)

    def _to_server(self) -> None:
        while data := self._client.recv(PIECE):
            if self._passes():
                self._is_doomed = self._is_doomed or self._proxy.is_doomed(data)
                self._server.sendall(data)

    def _to_client(self) -> None:
        while data := self._server.recv(PIECE):
            if not self._passes():
                continue
            if self._is_doomed:
                self.end()  # first: whoever is told of the cut finds the connection closed
                self._proxy.note_cut()
                return
            if not self._is_half_closed:
                self._client.sendall(data)

    def _passes(self) -> bool:
        """Once a byte was lost the rest would make no sense: the connection never comes back."""
        if self._proxy.delay_s:
            self._proxy.closing.wait(self._proxy.delay_s)
            self._proxy.late += 1  # for looking at; one that is missed does not matter
        self._is_lost = self._is_lost or self._proxy.is_dropping
        return not self._is_lost
