"""`dlq`: look at dead letters, bring them back, throw them away, hand them on."""

from __future__ import annotations

import os
from itertools import islice
from typing import Any

import click

from ..application.letters import as_json, letter_filter, matching
from ..console.letter_view import render_letter, render_letters
from ..domain.errors import BadSetting
from ..domain.shard_key import is_key, is_name
from ..ports import MAX_LETTERS, DeadLetter, LedgerRow
from ..wiring import Wiring
from . import output
from .counting import counting
from .dlq_report import purge_json, purge_line, replay_json, replay_line, unknown
from .new_file import new_file
from .options import Globals, ImportName, with_servers
from .pause import only_import

COUNT_EVERY = 200

_FILTER = click.option(
    "--filter", "filters", multiple=True, metavar="FIELD=VALUE",
    help="By shard, error, status, worker, attempts, crashes or message; * is any text. Repeated, all must hold.",
)  # fmt: skip
_PAYLOAD = click.option("--payload", "with_payload", is_flag=True, help="With the message as it lay in the queue.")


@click.group(epilog="Example: streams-importer dlq list openchargemap")
def dlq() -> None:
    """Dead letters: shards that failed for good, and garbage."""


@dlq.command("list", epilog='Example: streams-importer dlq list openchargemap --filter "error=http_5*" --limit 20')
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@_FILTER
@click.option("--limit", type=click.IntRange(1, MAX_LETTERS), default=50, show_default=True, help="The newest so many.")
@click.option("--json", "json_", is_flag=True, help="One JSON object a line.")
@with_servers
@click.pass_obj
def list_(globals_: Globals, /, import_name: str | None, filters: tuple[str, ...], limit: int, json_: bool, **given: Any) -> None:
    """List dead letters, newest first. Garbage has no shard and goes by its entry."""
    chosen = [letter_filter(text) for text in filters]
    wiring = globals_.wiring(dict(os.environ), **given)
    name = only_import(wiring, import_name)
    found = matching(wiring.letters.newest_first(name), chosen)
    if json_:
        for letter in islice(found, limit):
            output.show_json(as_json(name, letter))
    else:
        listed = list(islice(found, limit + 1))
        if listed:
            output.show(render_letters(listed[:limit]), wide=True)
        else:
            output.say(f"{name}: no {'such ' if filters else ''}dead letters")
        if len(listed) > limit:
            output.say(f"{limit} shown, there are more: see --limit and --filter", err=True)
    _tell_dropped(wiring, name)


@dlq.command(epilog="Example: streams-importer dlq show openchargemap country:DE --payload")
@click.argument("names", metavar="[IMPORT] SHARD|ENTRY", nargs=-1, required=True)
@_PAYLOAD
@click.option("--json", "json_", is_flag=True, help="As a JSON object.")
@with_servers
@click.pass_obj
def show(globals_: Globals, /, names: tuple[str, ...], with_payload: bool, json_: bool, **given: Any) -> None:
    """Show everything about one dead letter, and how far its shard came."""
    *before, name = names
    if len(before) > 1 or not all(map(is_name, before)):
        raise BadSetting("dlq show takes an import and one shard or entry, as in: dlq show openchargemap country:DE")
    wiring = globals_.wiring(dict(os.environ), **given)
    import_name = only_import(wiring, before[0] if before else None)
    letter = wiring.letters.find(import_name, [name]).get(name)
    if letter is None:
        raise BadSetting(unknown(import_name, [name]))
    row = _row(wiring, import_name, letter)
    if json_:
        output.show_json(as_json(import_name, letter, with_payload=with_payload) | {"ledger": _row_json(row)}, indent=2)
    else:
        definition = wiring.imports.find(import_name)
        output.show(render_letter(import_name, letter, row, definition, with_payload=with_payload), wide=True)


@dlq.command(epilog='Example: streams-importer dlq replay openchargemap --filter "error=http_5*" --dry-run')
@click.argument("import_name", metavar="IMPORT", type=ImportName())
@click.argument("names", metavar="[SHARD]...", nargs=-1)
@_FILTER
@click.option("--all", "all_", is_flag=True, help="Every failed shard, those without a letter too.")
@click.option("--dry-run", is_flag=True, help="Say what would be replayed; change nothing.")
@click.option("--json", "json_", is_flag=True, help="As a JSON object.")
@with_servers
@click.pass_obj
def replay(
    globals_: Globals,
    /,
    import_name: str,
    names: tuple[str, ...],
    filters: tuple[str, ...],
    all_: bool,
    dry_run: bool,
    json_: bool,
    **given: Any,
) -> None:
    """Queue failed shards again, from their checkpoint and with all their attempts. Filters choose among the letters. Safe to
    repeat."""
    _require_a_choice("replay", names, filters, all_)
    chosen = [letter_filter(text) for text in filters]
    wiring = globals_.wiring(dict(os.environ), **given)
    with counting("shards found" if dry_run else "shards replayed") as progress:
        replayer = wiring.replayer(progress)
        if names:
            report = replayer.replay_named(import_name, names, dry_run=dry_run)
        elif all_:
            report = replayer.replay_all(import_name, dry_run=dry_run)
        else:
            report = replayer.replay_found(import_name, chosen, dry_run=dry_run)
    if json_:
        output.show_json({"import": import_name, "dry_run": dry_run, **replay_json(report)})
    else:
        output.say(f"{import_name}: {replay_line(report, dry_run)}")
    if report.unknown:
        raise BadSetting(unknown(import_name, report.unknown))


@dlq.command(epilog='Example: streams-importer dlq purge openchargemap --filter "error=garbage"')
@click.argument("import_name", metavar="IMPORT", type=ImportName())
@click.argument("names", metavar="[SHARD|ENTRY]...", nargs=-1)
@_FILTER
@click.option("--all", "all_", is_flag=True, help="Every dead letter, garbage too.")
@click.option("--dry-run", is_flag=True, help="Say what would be purged; change nothing.")
@click.option("--json", "json_", is_flag=True, help="As a JSON object.")
@with_servers
@click.pass_obj
def purge(
    globals_: Globals,
    /,
    import_name: str,
    names: tuple[str, ...],
    filters: tuple[str, ...],
    all_: bool,
    dry_run: bool,
    json_: bool,
    **given: Any,
) -> None:
    """Throw dead letters away. The ledger keeps their shards as failed, and dlq replay still takes those. Safe to repeat."""
    _require_a_choice("purge", names, filters, all_)
    chosen = [letter_filter(text) for text in filters]
    wiring = globals_.wiring(dict(os.environ), **given)
    with counting("letters found" if dry_run else "letters purged") as progress:
        purger = wiring.purger(progress)
        if names:
            report = purger.purge_named(import_name, names, dry_run=dry_run)
        else:
            report = purger.purge_found(import_name, chosen, dry_run=dry_run)
    if json_:
        output.show_json({"import": import_name, "dry_run": dry_run, **purge_json(report)})
    else:
        output.say(f"{import_name}: {purge_line(report, dry_run)}")
    if report.unknown:
        raise BadSetting(unknown(import_name, report.unknown))


@dlq.command(epilog="Example: streams-importer dlq export openchargemap --output letters.jsonl")
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@click.option("--output", "path", metavar="FILE", default="-", help="A new file, for your eyes only (mode 0600) [stdout].")
@_FILTER
@_PAYLOAD
@with_servers
@click.pass_obj
def export(
    globals_: Globals, /, import_name: str | None, path: str, filters: tuple[str, ...], with_payload: bool, **given: Any
) -> None:
    """Write dead letters as JSON lines, newest first."""
    chosen = [letter_filter(text) for text in filters]
    wiring = globals_.wiring(dict(os.environ), **given)
    name = only_import(wiring, import_name)
    found = matching(wiring.letters.newest_first(name), chosen)
    if path == "-":
        for letter in found:
            output.show_json(as_json(name, letter, with_payload=with_payload))
        _tell_dropped(wiring, name)
        return
    number = 0
    with new_file("--output", path) as file, counting("letters exported") as progress:
        for number, letter in enumerate(found, 1):
            file.write(output.json_text(as_json(name, letter, with_payload=with_payload)) + "\n")
            if number % COUNT_EVERY == 0:
                progress(number)
    output.say(f"{name}: {number} letters exported to {path}")
    _tell_dropped(wiring, name)


def _require_a_choice(verb: str, names: tuple[str, ...], filters: tuple[str, ...], all_: bool) -> None:
    if sum(map(bool, (names, filters, all_))) != 1:
        raise BadSetting(f"say what to {verb}: name it, or choose with --filter, or give --all; dlq list shows what is there")


def _tell_dropped(wiring: Wiring, name: str) -> None:
    dropped = wiring.letters.dropped(name)
    if dropped:
        kept = f"at most {MAX_LETTERS} are kept"
        way = "shards list --status failed shows all that failed, and dlq replay takes it"
        output.say(f"{name}: {dropped} older letters were dropped so far ({kept}): {way}", err=True)


def _row(wiring: Wiring, import_name: str, letter: DeadLetter) -> LedgerRow | None:
    key = letter.shard_key
    return wiring.ledger.look(import_name, [key]).get(key) if is_key(key) else None


def _row_json(row: LedgerRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    checkpoint = row.checkpoint
    progress = {"page": checkpoint.page, "cursor": checkpoint.cursor, "counts": checkpoint.counts.by_name()}
    return {"status": row.status, "run": row.run, "attempts": row.attempts, "crashes": row.crashes, **progress, "job": row.job}
