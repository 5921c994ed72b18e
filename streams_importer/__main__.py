"""Where the command begins: before anything large is loaded, so that an early Ctrl-C is no traceback.

Any Python from 3.6 on must be able to read this file, to say in one line that it is too old.
"""

import os
import signal
import sys


def main() -> None:
    refusal = why_not_here(sys.platform, sys.version_info[:2])
    if refusal:
        print(f"streams-importer: {refusal}", file=sys.stderr)
        sys.exit(2)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # not at once: a terminal's cursor may be hidden
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        from .cli.main import main as run
        from .cli.output import guard_tracebacks

        guard_tracebacks()
        run()
    except KeyboardInterrupt:
        leave(130)
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else 0)


def leave(code: int) -> None:
    """At once: everything is closed by now, and pymongo would keep every command for half a second more, joining its threads."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # a full disk, or a reader that has gone
        code = code or 1
    os._exit(code)


def why_not_here(platform: str, python: "tuple[int, int]") -> str:
    """What is wrong with this machine, and what to do about it. Empty when it will do."""
    if platform == "win32":
        return "runs on Linux and macOS; on Windows use WSL: run wsl --install, and install it there"
    if python < (3, 11):
        return f"needs Python 3.11 or newer, and this is {python[0]}.{python[1]}: run it with a newer one"
    return ""


if __name__ == "__main__":
    main()
