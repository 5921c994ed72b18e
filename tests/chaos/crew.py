"""Worker processes that are kept up, as a platform does it: one that ended is replaced by a new one at once."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.fleet import COMMAND, PATIENCE_S, Process

from .proxy import Proxy

MARK = "CHAOS_CREW"
"""In the environment of every process of a crew, so that what is left of one can be found."""
MANY_SURPRISES = 10
"""A crew whose workers die one after the other will not get anywhere."""
POISON_FOLDER = Path(__file__).with_name("poison")


@dataclass(slots=True)
class Member:
    """One place in the crew, and who has it now."""

    number: int
    proxy: Proxy | None
    process: Process
    name: str
    is_expected_to_die: bool = False
    """Killed by us, or near a poison: its end is no surprise."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a worker is started, where that differs from the others'."""

    command: Sequence[str] = (COMMAND,)
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    """The same for each one in this place; without it they have numbers after `prefix`."""
    prefix: str = "w"


class Crew:
    """Workers with `slots` slots each. With a `redis_socket` each place has a proxy of its own in front of it.

    Nobody is replaced behind the caller's back: waiting is done here, and tends to the crew meanwhile.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        slots: int,
        *,
        redis_socket: str | None = None,
        poison_file: Path | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.slots = slots
        self.surprises: list[str] = []
        """Ends that nobody caused."""
        self.starts: dict[int, Start] = {}
        """Places whose next worker is started in another way."""
        self.is_poisoned = False
        self.lines_of_the_gone: list[str] = []
        self._mark = uuid.uuid4().hex
        self._environment = {**environment, MARK: self._mark}
        if poison_file is not None:
            self._environment |= {"PYTHONPATH": _path(POISON_FOLDER, environment), "CHAOS_POISON_FILE": str(poison_file)}
        self._arguments = list(arguments)
        self._redis_socket = redis_socket
        self._generation = 0
        self.members: list[Member] = []

    def start(self, size: int) -> None:
        for _ in range(size):
            self.add()

    def add(self) -> Member:
        proxy = None if self._redis_socket is None else Proxy(self._redis_socket)
        number = len(self.members)
        name, process = self._start(number, proxy)
        self.members.append(Member(number, proxy, process, name))
        return self.members[-1]

    @property
    def proxies(self) -> list[Proxy]:
        return [member.proxy for member in self.members if member.proxy is not None]

    @property
    def lines(self) -> list[str]:
        """All that any of them logged."""
        return [*self.lines_of_the_gone, *(line for member in self.members for line in list(member.process.lines))]

    def tend(self) -> None:
        for member in self.members:
            if not member.process.running():
                self._replace(member)

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + seconds
        tick = threading.Event()
        while True:
            self.tend()
            if holds():
                return
            if time.monotonic() > deadline or len(self.surprises) > MANY_SURPRISES:
                shown = "\n".join(f"--- {member.name}\n{member.process.output[-3000:]}" for member in self.members)
                raise AssertionError(f"waited {seconds:g} s for {what}\n{shown}\n" + "\n".join(self.surprises))
            tick.wait(0.02)

    def kill(self, member: Member) -> None:
        """Returns when it is gone, and another in its place."""
        member.is_expected_to_die = True
        member.process.signal(signal.SIGKILL)
        member.process.wait()
        self._replace(member)

    def terminate(self, members: Sequence[Member], times: int = 1) -> None:
        """Returns when they ended well, and others are in their places."""
        for _ in range(times):
            for member in members:
                with suppress(ProcessLookupError):
                    member.process.signal(signal.SIGTERM)
        for member in members:
            self._expect_good_end(member)
            self._replace(member)

    def restore(self, size: int) -> None:
        """Back to workers of this version, started in the usual way, and no more than `size`."""
        changed = [member for member in self.members if member.number in self.starts or member.number >= size]
        self.starts.clear()
        self.terminate([member for member in changed if member.number < size])
        for member in self.members[size:]:
            member.process.signal(signal.SIGTERM)
            self._expect_good_end(member)
            if member.proxy is not None:
                member.proxy.close()
        del self.members[size:]

    def stop(self) -> None:
        """All of them, for good."""
        for member in self.members:
            member.process.signal(signal.SIGCONT)
            member.process.signal(signal.SIGTERM)
        for member in self.members:
            self._expect_good_end(member)

    def close(self) -> None:
        """Ends what still runs. What it left running goes too, and is told as a surprise."""
        for member in self.members:
            if member.process.running():
                member.process.signal(signal.SIGCONT)
            member.process.end()
            if member.proxy is not None:
                member.proxy.close()
        for pid in self._left_running():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def left_running(self) -> list[int]:
        """Processes of the crew that its workers left behind. A child gets a moment to notice."""
        deadline = time.monotonic() + 5
        while (left := self._left_running()) and time.monotonic() < deadline:
            threading.Event().wait(0.05)
        return left

    def _left_running(self) -> list[int]:
        ours = {member.process.pid for member in self.members if member.process.running()}
        wanted = f"{MARK}={self._mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return [pid for pid in found if pid not in ours]

    def _start(self, number: int, proxy: Proxy | None) -> tuple[str, Process]:
        start = self.starts.get(number, Start())
        self._generation += 1
        name = start.name or f"{start.prefix}{number}-{self._generation}"
        environment = {**self._environment, **start.environment}
        if proxy is not None:
            environment["REDIS_URL"] = proxy.url
        arguments = ["-v", "--log-format", "json", "consume", "-c", str(self.slots), "--name", name, *self._arguments]
        return name, Process([*start.command, *arguments], environment)

    def _replace(self, member: Member) -> None:
        code = member.process.wait()
        is_poisoned = self.is_poisoned and code == -signal.SIGKILL
        if not (member.is_expected_to_die or is_poisoned or code == 0):
            self.surprises.append(f"{member.name} ended with {code}: {member.process.output[-1500:]}")
        self.lines_of_the_gone += member.process.lines
        member.is_expected_to_die = False
        member.name, member.process = self._start(member.number, member.proxy)

    def _expect_good_end(self, member: Member) -> None:
        """By an exit status of 0; one that had not begun to work yet may also just end."""
        code = member.process.wait()
        has_begun = "worker started" in member.process.output
        if code not in ((0,) if has_begun else (0, 143, -signal.SIGTERM)) and not member.is_expected_to_die:
            self.surprises.append(f"{member.name} was asked to stop and ended with {code}: {member.process.output[-1500:]}")
        member.is_expected_to_die = True  # told once


def _path(first: Path, environment: Mapping[str, str]) -> str:
    return os.pathsep.join(filter(None, (str(first), environment.get("PYTHONPATH"))))
