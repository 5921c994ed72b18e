"""`status`: one snapshot, for people or as JSON."""

from __future__ import annotations

import os
from typing import Any

import click

from ..application.health import problems
from ..application.snapshot import as_json
from ..console.view import render
from ..domain.errors import BadSetting
from . import output
from .options import Globals, ImportName, with_servers


@click.command(epilog="Example: streams-importer status --json | jq .imports.openchargemap.queued")
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@click.option("--json", "json_", is_flag=True, help="For scripts and dashboards.")
@click.option("--check", is_flag=True, help="Leave with 1 on a live problem: paused, held long, stalled, dead letters.")
@click.option("--max-dead", type=click.IntRange(0), default=0, show_default=True, help="Dead letters that --check allows.")
@with_servers
@click.pass_obj
def status(globals_: Globals, /, import_name: str | None, json_: bool, check: bool, max_dead: int, **given: Any) -> None:
    """Show what is queued, leased, delayed, dead and done."""
    wiring = globals_.wiring(dict(os.environ), **given)
    snapshot = wiring.snapshot([import_name] if import_name else [])
    wiring.imports.check_original()
    if import_name and import_name not in snapshot.imports:
        raise BadSetting(f"there is no import {import_name!r}; status without a name shows all")
    if json_:
        output.show_json(as_json(snapshot), indent=2)
    else:
        output.show(render(snapshot))
    found = problems(snapshot, max_dead) if check else []
    for problem in found:
        output.complain(problem)
    if found:
        raise SystemExit(1)
