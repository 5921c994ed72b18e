"""`pause` and `resume`: the whole fleet, at once."""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from typing import Any

import click

from ..domain.text import plain
from ..ports import Pause
from ..settings import DEFAULT_IMPORT
from ..wiring import Wiring
from . import output
from .options import Globals, ImportName, with_servers


@click.command(epilog='Example: streams-importer pause openchargemap --reason "key is being renewed"')
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@click.option("--reason", default="paused by hand", help="Shown to everybody who asks why nothing moves.")
@with_servers
@click.pass_obj
def pause(globals_: Globals, /, import_name: str | None, reason: str, **given: Any) -> None:
    """Stop all workers of an import after their page; shards keep their place and their progress."""
    wiring = globals_.wiring(dict(os.environ), **given)
    name = only_import(wiring, import_name)
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    wiring.imports.pause(name, Pause(plain(reason), _user(), since))
    output.say(f"{name} is paused; go on with: streams-importer resume {name}")


@click.command(epilog="Example: streams-importer resume openchargemap")
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@with_servers
@click.pass_obj
def resume(globals_: Globals, /, import_name: str | None, **given: Any) -> None:
    """Let the workers of a paused import go on."""
    wiring = globals_.wiring(dict(os.environ), **given)
    name = only_import(wiring, import_name)
    wiring.imports.pause(name, None)
    output.say(f"{name} goes on")


def only_import(wiring: Wiring, import_name: str | None) -> str:
    """No name: the only import there is, else openchargemap."""
    if import_name is not None:
        return import_name
    names = wiring.imports.names()
    return names[0] if len(names) == 1 else DEFAULT_IMPORT


def _user() -> str:
    try:
        return plain(getpass.getuser(), 60)
    except (OSError, KeyError):
        return "unknown"
