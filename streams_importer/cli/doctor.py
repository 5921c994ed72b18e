"""`doctor`: finds what is wrong with the servers, the imports and the fleet, and puts right what lies in our own keys."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from ..application.checkup import OK, UNKNOWN, WRONG, Finding
from ..application.doctor import Doctor
from ..application.repairs import Repairs
from ..console.doctor_view import render_findings
from . import output
from .counting import counting
from .options import Globals, ImportName, with_servers


@click.command(epilog="Example: streams-importer doctor openchargemap --fix")
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@click.option("--fix", is_flag=True, help="Put right what lies in our keys in Redis; for all else the command is shown.")
@click.option("--json", "json_", is_flag=True, help="As a JSON object.")
@with_servers
@click.pass_obj
def doctor(globals_: Globals, /, import_name: str | None, fix: bool, json_: bool, **given: Any) -> None:
    """Look at both servers, at every import (or one) and at the workers: what is right, what is wrong and what to do about it,
    and what a server does not let us see. Leaves with 1 when something is wrong. Safe while workers run, also with --fix."""
    wiring = globals_.wiring(dict(os.environ), **given)
    wanted = [import_name] if import_name else []
    with counting("things looked at") as progress:
        examiner = Doctor(wiring.examined, progress)
        findings = examiner.examine(wanted)
        if fix and any(finding.verdict.state == WRONG for finding in findings):
            done = Repairs(wiring.examined, progress).fix(findings)
            findings = [finding.after(done.get((finding.import_name, finding.check), "")) for finding in examiner.examine(wanted)]
    states = Counter(finding.verdict.state for finding in findings)
    if json_:
        output.show_json({**{state: states[state] for state in (OK, WRONG, UNKNOWN)}, "checks": _as_json(findings)}, indent=2)
    else:
        output.show(render_findings(findings), wide=True)
        output.say(f"{states[WRONG]} wrong, {states[UNKNOWN]} unknown, {states[OK]} ok")
    if states[WRONG]:
        raise SystemExit(1)


def _as_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "area": finding.area,
            "import": finding.import_name,
            "check": finding.check,
            "state": finding.verdict.state,
            "found": finding.verdict.found,
            "examples": list(finding.verdict.examples),
            "to_do": finding.verdict.to_do or None,
            "fixed": finding.fixed or None,
        }
        for finding in findings
    ]
