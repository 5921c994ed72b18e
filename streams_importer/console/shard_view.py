"""Single shards as a person sees them: a list that fits 80 columns, and everything about one. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..application.shards import ShardState, iso
from ..domain.model import RECORD_COUNTS, REQUEST_COUNTS
from ..domain.text import plain

WIDEST_KEY_IN_A_TABLE = 26
"""With longer keys there is no room beside them: then each shard has two lines. A key is never cut, so that it can be copied."""

_STYLES = {"leased": "cyan", "delayed": "yellow", "done": "green", "failed": "bold red", "cancelled": "dim"}


def render_shards(shards: Sequence[ShardState]) -> RenderableType:
    if any(len(shard.key) > WIDEST_KEY_IN_A_TABLE for shard in shards):
        return Group(*(line for shard in shards for line in _two_lines(shard)))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("shard", no_wrap=True, overflow="ignore")
    table.add_column("status", no_wrap=True)
    for column in ("tries", "records"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for shard in shards:
        row = shard.record.row
        table.add_row(Text(plain(shard.key)), _status(shard), f"{row.attempts}", f"{row.checkpoint.counts.seen:,}", _note(shard))
    return table


def render_shard(shard: ShardState) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in _everything(shard):
        grid.add_row(name, value if isinstance(value, Text) else Text(plain(value, 2000)))
    return grid


def _two_lines(shard: ShardState) -> Iterator[Text]:
    row = shard.record.row
    yield Text(plain(shard.key), style="bold", overflow="fold")
    facts = Text("  ").append_text(_status(shard)).append(f"  tries {row.attempts}  records {row.checkpoint.counts.seen:,}  ")
    yield facts.append_text(_note(shard))


def _status(shard: ShardState) -> Text:
    return Text(shard.status, style=_STYLES.get(shard.status, ""))


def _note(shard: ShardState) -> Text:
    """What a person wants to know first about a shard in this state."""
    failure = shard.record.row.failure
    error = plain(failure.code, 60) if failure else ""
    if shard.is_nowhere:
        return Text("not in Redis; a worker queues it", style="yellow")
    if shard.status == "leased":
        return Text(f"{plain(shard.worker or '', 60)}, {shard.lease_left_s or 0:.0f} s left")
    if shard.status == "delayed":
        return Text(f"back in {shard.comes_back_s or 0:.0f} s  {error}".rstrip())
    if shard.status in ("queued", "failed"):
        return Text(error)
    return Text(iso(shard.record.finished_at) or "")


def _everything(shard: ShardState) -> Iterator[tuple[str, str | Text]]:
    record, row = shard.record, shard.record.row
    checkpoint, counts, failure = row.checkpoint, row.checkpoint.counts, row.failure
    yield "shard", shard.key
    yield "import", shard.import_name
    yield "status", _status(shard).append_text(Text("  not in Redis; a worker queues it" if shard.is_nowhere else ""))
    if shard.status == "leased":
        yield "worker", shard.worker or ""
        yield "lease", f"{shard.lease_left_s or 0:.1f} s left"
    if shard.status == "delayed":
        yield "comes back", f"in {shard.comes_back_s or 0:.1f} s"
    yield "run", row.run
    yield "attempts", str(row.attempts)
    yield "pages", f"{checkpoint.page:,} stored"
    yield "cursor", "" if checkpoint.cursor is None else str(checkpoint.cursor)
    yield "records", _numbers("seen", counts.seen, {name: getattr(counts, name) for name in RECORD_COUNTS})
    requests = {name: getattr(counts, f"requests_{name}") for name in REQUEST_COUNTS}
    yield "requests", _numbers("made", sum(requests.values()), requests)
    if failure is not None:
        status = "" if failure.status is None else f" (HTTP {failure.status})"
        yield "last error", f"{failure.code}{status}: {failure.message}"
        yield "", iso(record.failed_at) or ""
    yield "created", iso(record.created_at) or ""
    yield "finished", iso(record.finished_at) or ""
    yield "job", row.job
    way_back = {
        "failed": f"streams-importer dlq replay {shard.import_name} '{shard.key}'",
        "cancelled": "streams-importer produce --again",
    }
    if shard.status in way_back:
        yield "way back", way_back[shard.status]


def _numbers(name: str, total: int, parts: dict[str, int]) -> str:
    return "  ".join([f"{name} {total:,}", *(f"{part.replace('_', ' ')} {number:,}" for part, number in parts.items())])
