"""The one way out: whatever a command prints, it prints here, without secrets and without control characters.

1. `say` for a line, `say_block` for several, `complain` for what went wrong.
2. `show` for tables, `console` for live views: every piece of text in them is made plain too.
3. `show_json` for scripts: ASCII, so that nothing in it can drive a terminal.
4. `show_traceback`, and `guard_tracebacks` for those that Python would print by itself.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import click
import msgspec
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment

from ..domain.redaction import SECRETS
from ..domain.text import plain, plain_block

PROGRAM = "streams-importer"
MAX_LINE = 2000
PIPE_WIDTH = 240
"""Columns of a table in a pipe or a file: enough for every cell to stay whole."""


def say(line: str, *, err: bool = False) -> None:
    """Blanks that it begins with stay."""
    indent = " " * (len(line) - len(line.lstrip(" ")))
    click.echo(indent + plain(line, MAX_LINE), err=err)


def say_block(text: str) -> None:
    click.echo(plain_block(text))


def complain(message: str) -> None:
    """One line on stderr that begins with our name, as all errors do."""
    click.echo(f"{PROGRAM}: {plain(message, 1000)}", err=True)


def show(renderable: RenderableType, *, wide: bool = False) -> None:
    """`wide`: in a pipe or a file lines are as long as they are."""
    screen = console()
    if wide and not screen.is_terminal:
        screen.width = PIPE_WIDTH  # print(width=…) only ever makes it narrower
    screen.print(renderable)


def show_json(value: Any, *, indent: int | None = None) -> None:
    click.echo(json_text(value, indent=indent))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """ASCII, without secrets. Also of dataclasses and times."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(_open(msgspec.to_builtins(value)), ensure_ascii=True, allow_nan=False, indent=indent, separators=separators)
    return text.replace("\x7f", "\\u007f")


def console(*, stderr: bool = False) -> Console:
    screen = Console(stderr=stderr)
    screen.push_render_hook(_PlainText())
    return screen


class Plain:
    """A renderable in which no piece of text can do harm. For what a live view is given: that passes by our hook."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for piece in console.render(self._inner, options):
            yield piece if piece.control else Segment(plain_block(piece.text), piece.style)


class _PlainText(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [Plain(each) for each in renderables]


def show_traceback(error: BaseException) -> None:
    click.echo(plain_block("".join(traceback.format_exception(error))).rstrip("\n"), err=True)


def guard_tracebacks() -> None:
    """For a whole process: what ends a thread, or slips out of everything, is shown without secrets too."""

    def shown(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            show_traceback(error)

    sys.excepthook = shown
    threading.excepthook = lambda ended: shown(ended.exc_type, ended.exc_value, ended.exc_traceback)
    sys.unraisablehook = lambda met: shown(met.exc_type, met.exc_value, met.exc_traceback)


def _open(value: Any) -> Any:
    """The value without secrets, as JSON knows it: what is no number there is null."""
    if isinstance(value, str):
        return SECRETS.redacted(value).encode("utf-8", "replace").decode()  # no lone surrogates
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_open(str(key)): _open(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_open(item) for item in value]
    return value
