"""`dlq`: look at dead letters, and bring them back."""

from __future__ import annotations

import os
from typing import Any

import click

from ..application.replayer import Replayer
from ..console.view import render_letters
from ..domain.errors import BadSetting
from . import output
from .options import Globals, ImportName, with_servers
from .pause import only_import

MAX_LISTED = 10_000


@click.group(epilog="Example: streams-importer dlq list openchargemap")
def dlq() -> None:
    """Dead letters: shards that failed for good, and garbage."""


@dlq.command("list", epilog="Example: streams-importer dlq list openchargemap --limit 20")
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@click.option("--limit", type=click.IntRange(1, MAX_LISTED), default=50, show_default=True, help="The newest so many.")
@click.option("--json", "json_", is_flag=True, help="One JSON object a line.")
@with_servers
@click.pass_obj
def list_(globals_: Globals, /, import_name: str | None, limit: int, json_: bool, **given: Any) -> None:
    """List dead letters, newest first."""
    wiring = globals_.wiring(dict(os.environ), **given)
    name = only_import(wiring, import_name)
    letters = wiring.queue("dlq").dead_letters(name, limit)
    if json_:
        for letter in letters:
            output.show_json(letter)
    elif letters:
        output.show(render_letters(letters), wide=True)
    else:
        output.say(f"{name}: no dead letters")


@dlq.command("replay", epilog="Example: streams-importer dlq replay openchargemap ids:0..10000")
@click.argument("import_name", metavar="IMPORT", type=ImportName())
@click.argument("shards", metavar="[SHARD]...", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Every dead shard.")
@with_servers
@click.pass_obj
def replay(globals_: Globals, /, import_name: str, shards: tuple[str, ...], all_: bool, **given: Any) -> None:
    """Queue dead shards again, from their checkpoint and with all their attempts."""
    if bool(shards) == all_:
        raise BadSetting("name the shards to replay, or give --all; dlq list shows them")
    wiring = globals_.wiring(dict(os.environ), **given)
    replayed = Replayer(wiring.queue("dlq"), wiring.ledger).replay(import_name, set(shards) if shards else None)
    output.say(f"{import_name}: {replayed.replayed} shards replayed, {replayed.left} dead letters left alone")
    if replayed.unknown:
        raise BadSetting(f"not among the dead letters of {import_name}: {', '.join(sorted(replayed.unknown)[:5])}")
