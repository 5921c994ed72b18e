"""An examination as a person sees it: one row a check, what to do below what was found. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..application.checkup import OK, UNKNOWN, WRONG, Finding
from ..domain.text import plain

_STYLES = {OK: "green", WRONG: "bold red", UNKNOWN: "yellow"}


def render_findings(findings: Sequence[Finding]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", overflow="fold")
    table.add_column("state", no_wrap=True)
    table.add_column("what was found, and what to do", overflow="fold", ratio=1)
    for finding in findings:
        verdict = finding.verdict
        state = Text(verdict.state, style=_STYLES[verdict.state])
        table.add_row(Text(plain(finding.subject, 120)), state, _found(finding))
    return table


def _found(finding: Finding) -> Text:
    verdict = finding.verdict
    examples = f" ({', '.join(verdict.examples)})" if verdict.examples else ""
    text = Text(plain(verdict.found + examples, 1000))
    if finding.fixed:
        text.append("\nfixed: " if not finding.fixed.startswith("not fixed") else "\n", style="green")
        text.append(plain(finding.fixed, 300))
    if verdict.to_do:
        text.append("\nto do: ", style="bold").append(plain(verdict.to_do, 500))
    return text
