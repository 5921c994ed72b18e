"""`setup`: what must be there before workers start. Safe to repeat, and by many at a time."""

from __future__ import annotations

import os
from typing import Any

import click

from ..domain.definition import Definition
from ..settings import DEFAULT_IMPORT, definition_from_file
from . import output
from .options import Globals, with_servers


@click.command(epilog="Example: streams-importer setup")
@with_servers
@click.pass_obj
def setup(globals_: Globals, /, **given: Any) -> None:
    """Make indexes and consumer groups, and check that both servers are fit for it."""
    wiring = globals_.wiring(dict(os.environ), creates=True, **given)
    definitions = {DEFAULT_IMPORT: Definition(DEFAULT_IMPORT)}
    definitions |= {name: definition_from_file(Definition(name), table) for name, table in globals_.file.imports.items()}
    definitions |= wiring.imports.served([])
    wiring.check_servers()
    for definition in definitions.values():
        wiring.set_up(definition)
        output.say(f"{definition.name}: ready, stores into {definition.collection}")
