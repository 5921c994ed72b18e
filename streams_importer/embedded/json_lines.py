"""Lines of JSON to and from a process that we started with pipes."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from contextlib import suppress
from typing import Any


class JsonLines:
    """Not for several threads at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self._output = process.stdout
        self._rest = b""

    @property
    def closed(self) -> bool:
        return self._output.closed

    def tell(self, **message: Any) -> None:
        with suppress(BrokenPipeError):  # told by the end of its output instead
            self._input.write(json.dumps(message).encode() + b"\n")

    def hear(self, wait_s: float) -> list[dict[str, Any]]:
        """What it has said, after waiting up to `wait_s` for the first word. Raises EOFError when it has no more to say."""
        if not select.select([self._output], [], [], wait_s)[0]:
            return []
        data = os.read(self._output.fileno(), 65536)
        if not data:
            raise EOFError
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def finish(self, within_s: float) -> None:
        """Ends its input, and waits until it has ended its output."""
        self._input.close()
        deadline = time.monotonic() + within_s
        with suppress(EOFError):
            while time.monotonic() < deadline:
                self.hear(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Safe to repeat."""
        self._input.close()
        self._output.close()
