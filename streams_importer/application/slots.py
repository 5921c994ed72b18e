"""A fixed number of threads that run attempts, and the list of those that ended."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ..domain.model import Outcome
from .settlement import Attempt


class Slots:
    def __init__(self, number: int, on_finished: Callable[[], None]) -> None:
        self._pool = ThreadPoolExecutor(number, thread_name_prefix="slot")
        self._number = number
        self._running = 0
        self._ended: queue.SimpleQueue[tuple[Attempt, Outcome]] = queue.SimpleQueue()
        self._on_finished = on_finished

    @property
    def free(self) -> int:
        return self._number - self._running

    @property
    def running(self) -> int:
        return self._running

    def start(self, attempt: Attempt, run: Callable[[], Outcome]) -> None:
        """`run` returns an outcome and never raises."""

        def work() -> None:
            self._ended.put((attempt, run()))
            self._on_finished()

        self._running += 1
        self._pool.submit(work)

    def finished(self) -> list[tuple[Attempt, Outcome]]:
        ended = []
        while not self._ended.empty():
            ended.append(self._ended.get())
        self._running -= len(ended)
        return ended

    def close(self) -> None:
        self._pool.shutdown(wait=False)
