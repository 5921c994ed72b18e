"""Whose fault a crash is, and when a shard has caused enough of them. Pure.

A process that ended takes all its shards along, and only one of them, if any, was the reason. So whoever was running then is
a suspect and runs apart, in a process of its own. If that one ends under the eyes of its parent, the shard is the reason.
If the parent is gone as well, the whole machine may have been: that is believed only when it happens again and again, and
the shard never gets a page stored in between.
"""

from __future__ import annotations

from dataclasses import dataclass

UNSEEN_FOR_ONE_SEEN = 10
"""Crashes that nobody saw, for each that is enough when seen: workers are also killed by people and platforms."""


@dataclass(frozen=True, slots=True)
class CrashPolicy:
    max_crashes: int

    def is_enough(self, crashes: int) -> bool:
        """After a crash that was seen: the shard ran alone."""
        return crashes >= self.max_crashes

    def is_hopeless(self, crashes: int) -> bool:
        """Though nobody saw any of them."""
        return crashes >= self.max_crashes * UNSEEN_FOR_ONE_SEEN

    def runs_alone(self, crashes: int) -> bool:
        """Not beside other suspects either: so that it alone is charged if the parent goes, too."""
        return crashes >= self.max_crashes
