"""`demo`: a complete import to look at, on servers of its own."""

from __future__ import annotations

import click

from . import output


@click.command(epilog="Example: streams-importer demo --points 100000 --workers 4")
@click.option(
    "--points", type=click.IntRange(1, 2_000_000), default=50_000, show_default=True, help="Charge points of the local API."
)
@click.option("--workers", type=click.IntRange(1, 16), default=2, show_default=True, help="Worker processes.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, another world.")
def demo(points: int, workers: int, seed: int) -> None:
    """Import a generated Open Charge Map through a private Redis into a private MongoDB, twice, and prove the result."""
    from .demonstration import Demonstration  # a third of the start-up time of every other command otherwise

    try:
        is_proved = Demonstration(points, workers, seed, output.console()).run()
    except KeyboardInterrupt:
        output.say("Stopped. Nothing is left behind.", err=True)
        raise
    raise SystemExit(0 if is_proved else 1)
