"""Dead letters as a person sees them: a list that fits 80 columns, and everything about one. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..application.letters import cursor_of
from ..domain.definition import Definition
from ..domain.model import RECORD_COUNTS
from ..domain.text import plain
from ..ports import DeadLetter, LedgerRow

BESIDE_A_NAME = 80
"""Columns that a table needs beside the names for a message to be readable. With fewer, each letter has two lines. A name is
never cut, so that it can be copied."""
MAX_KEY = 256
MAX_CELL = 200
MAX_TEXT = 8192


def render_letters(letters: Sequence[DeadLetter]) -> RenderableType:
    return _Letters(letters)


class _Letters:
    """As wide as the terminal lets it be."""

    def __init__(self, letters: Sequence[DeadLetter]) -> None:
        self._letters = letters

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widest = max((len(_name(letter)) for letter in self._letters), default=0)
        if options.max_width >= widest + BESIDE_A_NAME:
            yield _table(self._letters)
        else:
            for letter in self._letters:
                yield from _two_lines(letter)


def _table(letters: Sequence[DeadLetter]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("shard or entry", no_wrap=True, overflow="ignore")
    table.add_column("died", no_wrap=True)
    for column in ("tries", "crashes"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("error", "message"):
        table.add_column(column, overflow="fold")
    for letter in letters:
        cells = (_name(letter), *_facts(letter))
        table.add_row(*(Text(cell) for cell in cells), _error(letter), Text(plain(letter.message, MAX_CELL)))
    return table


def render_letter(
    import_name: str, letter: DeadLetter, row: LedgerRow | None, definition: Definition | None, *, with_payload: bool
) -> RenderableType:
    """With what the ledger has of the shard, and the budgets that the import's definition gives."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in _everything(import_name, letter, row, definition):
        grid.add_row(name, Text(plain(value, 2000)))
    if with_payload:
        grid.add_row("payload", Text(plain(letter.payload, MAX_TEXT)))
    return grid


def _name(letter: DeadLetter) -> str:
    """What the commands take. Garbage has no shard; the error says that it is garbage."""
    return plain(letter.shard_key or letter.entry, MAX_KEY)


def _error(letter: DeadLetter) -> Text:
    return Text(plain(letter.error, 60), style="bold red")


def _facts(letter: DeadLetter) -> tuple[str, str, str]:
    died, tries, crashes = (plain(cell, 20) for cell in (letter.died_at, letter.attempts, letter.crashes))
    return died, tries, crashes or "0"


def _two_lines(letter: DeadLetter) -> Iterator[Text]:
    yield Text(overflow="fold").append(_name(letter), style="bold").append("  ").append_text(_error(letter))
    died, tries, crashes = _facts(letter)
    yield Text(f"  {died}  tries {tries}  crashes {crashes}  {plain(letter.message, MAX_CELL)}", overflow="fold")


def _everything(
    import_name: str, letter: DeadLetter, row: LedgerRow | None, definition: Definition | None
) -> Iterator[tuple[str, str]]:
    yield "shard", letter.shard_key or "none: this is garbage, no message of ours"
    yield "import", import_name
    yield "entry", letter.entry
    yield "error", letter.error + (f" (HTTP {letter.status})" if letter.status else "")
    yield "message", letter.message
    yield "attempts", _spent(letter.attempts, definition.max_attempts if definition else None)
    yield "crashes", _spent(letter.crashes, definition.max_crashes if definition else None)
    cursor = cursor_of(letter)
    yield "cursor", "" if cursor is None else str(cursor)
    yield "worker", letter.worker
    yield "first seen", letter.first_seen
    yield "died", letter.died_at
    if letter.job:
        yield "job", letter.job
    if row is not None:
        yield from _ledger(row)
    if letter.shard_key:
        yield "way back", f"streams-importer dlq replay {import_name} '{letter.shard_key}'"


def _ledger(row: LedgerRow) -> Iterator[tuple[str, str]]:
    checkpoint, counts = row.checkpoint, row.checkpoint.counts
    yield "", ""
    yield "ledger", f"{row.status}, run {row.run}"
    after = "" if checkpoint.cursor is None else f", goes on after {checkpoint.cursor}"
    yield "checkpoint", f"{checkpoint.page:,} pages stored{after}"
    yield "records", "  ".join([f"seen {counts.seen:,}", *(f"{name} {getattr(counts, name):,}" for name in RECORD_COUNTS)])


def _spent(number: str, most: int | None) -> str:
    return number if most is None or not number else f"{number} of {most}"
