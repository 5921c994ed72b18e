"""The command `streams-importer`: global options, and one way for every error to reach the user."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any, NoReturn

import click

from .. import __version__
from ..domain.errors import BadSetting, ImporterError, TooNew
from ..domain.text import plain_block
from ..settings import learn_secrets, read_file
from . import output
from .consume import consume
from .demo import demo
from .dlq import dlq
from .doctor import doctor
from .options import Globals, setting
from .pause import pause, resume
from .produce import produce
from .services import services
from .setup import setup
from .shards import shards
from .status import status

_EPILOG = """\b
First look, on servers of its own:      streams-importer demo
One country, with your own servers:     streams-importer produce --country DE
                                        streams-importer consume --until-empty
"""


def _load_file(ctx: click.Context, _param: click.Parameter, value: str | None) -> Any:
    file = read_file(value)
    ctx.default_map = _defaults(cli, file.settings)
    return file


def _defaults(command: click.Command, settings: dict[str, Any]) -> dict[str, Any]:
    """The file's settings, for the command and for everything below it."""
    below = command.commands.items() if isinstance(command, click.Group) else ()
    return {**settings, **{name: _defaults(each, settings) for name, each in below}}


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@setting(
    "--config", "file", metavar="FILE", is_eager=True, callback=_load_file, help="Settings and imports [streams-importer.toml]."
)
@setting("--namespace", default="si", show_default=True, help="Prefix of all keys in Redis; one fleet, one namespace.")
@setting("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Log lines on stderr.")
@click.option("-v", "--verbose", count=True, help="Say more.")
@click.option("-q", "--quiet", count=True, help="Say less.")
@click.version_option(__version__, prog_name="streams-importer")
@click.pass_context
def cli(ctx: click.Context, file: Any, namespace: str, log_format: str, verbose: int, quiet: int) -> None:
    """Imports millions of records from a rate-limited API into MongoDB, with as many workers as there are."""
    ctx.obj = Globals(namespace, log_format, verbose - quiet, file)


for _command in (produce, consume, status, shards, dlq, pause, resume, setup, doctor, services, demo):
    cli.add_command(_command)


class _HelpFormatter(click.HelpFormatter):
    """Help shows defaults, which may come from a file."""

    def getvalue(self) -> str:
        return plain_block(super().getvalue())


click.Context.formatter_class = _HelpFormatter


def main() -> NoReturn:
    learn_secrets(os.environ, sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows only ASCII is no reason to fail
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        output.say_block(error.format_message())
        code = 0
    except click.ClickException as error:
        code = _say(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except ImporterError as error:
        code = _say(str(error), 2 if isinstance(error, BadSetting | TooNew) else 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; not an error of ours
        code = 1
    except OSError as error:
        code = _say(f"{error.strerror or error}", 1)
    except Exception as error:
        if any(re.fullmatch(r"-v+|--verbose", argument) for argument in sys.argv[1:]):
            output.show_traceback(error)
        code = _say(f"a defect in streams-importer: {type(error).__name__}: {error} (-v shows where)", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _say(message: str, code: int) -> int:
    output.complain(message)
    return code
