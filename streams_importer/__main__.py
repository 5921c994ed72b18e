"""Where the command begins: before anything large is loaded, so that an early Ctrl-C is no traceback."""

import sys


def main() -> None:
    try:
        from .cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
