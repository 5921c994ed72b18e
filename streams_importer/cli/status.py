"""`status`: one snapshot, for people or as JSON."""

from __future__ import annotations

import os
from typing import Any

import click
import msgspec
from rich.console import Console

from ..application.snapshot import as_json
from ..console.view import render
from ..domain.errors import BadSetting
from .options import Globals, ImportName, with_servers


@click.command(epilog="Example: streams-importer status --json | jq .imports.openchargemap.queued")
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@click.option("--json", "json_", is_flag=True, help="For scripts and dashboards.")
@with_servers
@click.pass_obj
def status(globals_: Globals, /, import_name: str | None, json_: bool, **given: Any) -> None:
    """Show what is queued, leased, delayed, dead and done."""
    wiring = globals_.wiring(dict(os.environ), **given)
    snapshot = wiring.snapshot([import_name] if import_name else [])
    wiring.imports.check_original()
    if import_name and import_name not in snapshot.imports:
        raise BadSetting(f"there is no import {import_name!r}; status without a name shows all")
    if json_:
        click.echo(msgspec.json.format(msgspec.json.encode(as_json(snapshot)), indent=2).decode())
    else:
        Console().print(render(snapshot))
