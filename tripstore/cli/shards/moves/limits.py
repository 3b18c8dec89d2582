"""The options by which a move of shards is bounded."""

from __future__ import annotations

import click

from schemaless_core.moves.orders import HOLD_SECONDS

PROCESSES_MAX = 16

hold_option = click.option(
    "--hold-ms",
    type=click.IntRange(50, 60_000),
    default=int(1000 * HOLD_SECONDS),
    show_default=True,
    help="For how long a shard may take no writes: puts wait, or are buffered. What takes longer is given up.",
)
rate_option = click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="CELLS", help="So many a second, each."
)
processes_option = click.option(
    "--processes", type=click.IntRange(1, PROCESSES_MAX), default=1, show_default=True, help="At once."
)
