"""Import after import for as long as is asked for, with every kind of fault at random times. `scripts/soak` runs it.

Redis is reached through a proxy a worker; MongoDB is a set of three. Each round changes points at the upstream, imports them all
again and is judged before the next. Now and then a shard is poison: it must be the only dead letter, and is replayed, healed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from rich.console import Console

from streams_importer.embedded.servers import EmbeddedServers

from . import faults
from .driver import IMPORT, Driver, Size
from .faults import Fault
from .previous import MissingHistory
from .replica_set import ReplicaSet
from .soak_report import Tally
from .verdict import Verdict, judge

SIZE = Size(points=12_000, shard_size=600, workers=3, slots=4, answer_s=0.1, rate="40/s")
CHANGED_A_ROUND = 200
ROUND_PATIENCE_S = 180.0
POISON_SHARE = 0.3
FAULTS: list[Fault] = [
    faults.sigkill,
    faults.sigstop,
    faults.sigterm_storm,
    faults.same_name,
    faults.previous_version,
    faults.redis_killed,
    faults.flushall,
    faults.script_flush,
    faults.redis_full,
    faults.dropped,
    faults.delayed,
    faults.half_closed,
    faults.cut,
    faults.cut_after_command,
    faults.mongod_killed,
    faults.stepped_down,
]


@dataclass
class Soak:
    chaos: Driver
    say: Callable[[str], None]
    tally: Tally = field(default_factory=Tally)
    deck: list[Fault] = field(default_factory=list)
    """Shuffled and dealt to its end, so that every kind has its turn early."""
    kinds: list[Fault] = field(default_factory=lambda: list(FAULTS))

    def run(self, until: float) -> None:
        self._leave_out_what_is_missing()
        self.chaos.crew.start(SIZE.workers)
        while time.monotonic() < until:
            self._round()

    def _leave_out_what_is_missing(self) -> None:
        try:
            self.chaos.previous()
        except MissingHistory as why:
            self.say(f"without the previous version: {why}")
            self.kinds.remove(faults.previous_version)

    def _round(self) -> None:
        chaos = self.chaos
        began, number = time.time(), self.tally.rounds + 1
        if number > 1:
            self._change_points()
            chaos.is_first_round = False
        chaos.produce(*(["--again"] if number > 1 else []))
        self._disturb()
        chaos.crew.wait_until(chaos.is_over, f"the end of round {number}", ROUND_PATIENCE_S)
        chaos.crew.restore(SIZE.workers)
        verdict = judge(chaos, frozenset(chaos.poisoned))
        if chaos.poisoned:
            verdict = verdict.replaced_by(self._replay())
        self._note(verdict, began)
        names = ", ".join(name for name, _ in chaos.faults)
        self.say(f"round {number}, {time.time() - began:.1f} s: {names}; {verdict.repeated} repeated")
        for kind, problems in verdict.problems.items():
            for problem in problems[:5]:
                self.say(f"  {kind}: {problem}")
        self._tidy()

    def _disturb(self) -> None:
        chaos = self.chaos
        schedule = [self._deal() for _ in range(chaos.dice.randint(2, 5))]
        if chaos.dice.random() < POISON_SHARE:
            schedule.insert(0, faults.poison)
        for fault in schedule:
            if not chaos.wait_for_requests(chaos.dice.randint(1, 20)):
                return
            chaos.inject(fault)

    def _deal(self) -> Fault:
        if not self.deck:
            self.deck = self.chaos.dice.sample(self.kinds, len(self.kinds))
        return self.deck.pop()

    def _change_points(self) -> None:
        chaos = self.chaos
        chosen = chaos.dice.sample(chaos.upstream.points.ids, CHANGED_A_ROUND)
        chaos.upstream.control.update_points(self._changed(identifier) for identifier in chosen)

    def _changed(self, identifier: int) -> dict[str, Any]:
        """No new time: what changed without one must arrive, too."""
        return {**self.chaos.upstream.control.poi(identifier), "UsageCost": f"round {self.tally.rounds}"}

    def _replay(self) -> Verdict:
        """The shard is healed, comes back by hand, and must then be like all others."""
        chaos = self.chaos
        healed = sorted(chaos.poisoned)
        faults.heal(chaos)
        chaos.fleet.run("dlq", "replay", IMPORT, *healed)
        chaos.crew.wait_until(chaos.is_over, "the end of what was replayed")
        chaos.crew.is_poisoned = False
        return judge(chaos)

    def _note(self, verdict: Verdict, began: float) -> None:
        chaos, tally = self.chaos, self.tally
        tally.rounds += 1
        tally.shards += sum(bool(one.settlements) for one in chaos.observer.rounds() if one.opened >= began)
        tally.records += len(chaos.upstream.points)
        tally.requests += len(chaos.fleet.asked())
        tally.add(verdict)
        for name, ended in chaos.faults:
            # A poison is not over when it is there: its dead letter is what is waited for.
            moved = None if name == "poison" else chaos.observer.first_movement_after(ended)
            tally.fault(name, None if moved is None else moved - ended)

    def _tidy(self) -> None:
        chaos = self.chaos
        chaos.faults.clear()
        chaos.crew.surprises.clear()
        chaos.crew.lines_of_the_gone.clear()
        chaos.slots_disturbed = chaos.pages_in_doubt = 0
        chaos.upstream.control.clear_log()
        chaos.observer.forget()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="Imports again and again under faults of all kinds, and counts what is lost or doubled. 1 if anything is.",
        epilog="example: scripts/soak --minutes 10 --seed 7",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of the points and the schedule (default: %(default)s)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"{time.monotonic() - began:6.0f} s  {line}", markup=False, soft_wrap=True)

    tally = Tally()
    code = 0
    with ExitStack() as stack:
        # Last in, first out: from here on nothing may interrupt the tidying up.
        try:
            servers = stack.enter_context(EmbeddedServers())
            chaos = stack.enter_context(Driver(servers, stack.enter_context(ReplicaSet()), options.seed, SIZE))
            say(f"{SIZE.workers} workers with {SIZE.slots} slots each, seed {options.seed}")
            Soak(chaos, say, tally).run(began + 60 * options.minutes)
        except KeyboardInterrupt:
            say("interrupted")
            code = 130
        except AssertionError as error:
            say(f"gave up: {error}")
            code = 1
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
    console.print(tally.table(options.seed, time.monotonic() - began))
    return code or int(not tally.is_good)


if __name__ == "__main__":
    sys.exit(main())
