"""Whether a failed attempt is tried again, and when. Pure: the dice are passed in."""

from __future__ import annotations

from dataclasses import dataclass

MAX_DELAY_S = 3600.0
"""A shard that fails for an hour at a time is looked at by a person soon enough; longer waits only hide it. Who asks for a
longer first wait gets that, every time."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    max_attempts: int
    base_delay_s: float

    def delay_after(self, attempts: int, dice: float) -> float | None:
        """Seconds to wait after `attempts` failed attempts, or None when they are used up.

        Doubles each time. `dice` in [0, 1) spreads the wait over its upper half, so that shards that failed
        together do not come back together.
        """
        if attempts >= self.max_attempts:
            return None
        full = min(self.base_delay_s * 2.0 ** min(attempts - 1, 32), max(MAX_DELAY_S, self.base_delay_s))
        return full * (0.5 + dice / 2)
