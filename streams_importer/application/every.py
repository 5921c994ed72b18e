"""When something that is done again and again is due: jittered, so that workers do not do it together."""

from __future__ import annotations

import random
import time
from collections.abc import Callable


class Every:
    """Due after half to all of `seconds`, each time anew."""

    def __init__(self, seconds: float, *, at_once: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._at = clock() if at_once else self._next()

    def is_due(self) -> bool:
        if self._clock() < self._at:
            return False
        self._at = self._next()
        return True

    def _next(self) -> float:
        return self._clock() + self._seconds * random.uniform(0.5, 1.0)
