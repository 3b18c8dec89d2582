"""The options by which a move of shards is bounded."""

from __future__ import annotations

import click
from click.core import ParameterSource

from schemaless_core.moves.orders import HOLD_SECONDS, MoveOrder

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


def are_given() -> bool:
    """Whether this call says by which limits shards go."""
    context = click.get_current_context()
    return any(context.get_parameter_source(name) is not ParameterSource.DEFAULT for name in ("hold_ms", "rate"))


def limited(order: MoveOrder, hold_ms: int, rate: float | None) -> MoveOrder:
    """An order by the limits that this call says, else by its own."""
    if click.get_current_context().get_parameter_source("hold_ms") is not ParameterSource.DEFAULT:
        order = order._replace(hold_seconds=hold_ms / 1000)
    return order if rate is None else order._replace(cells_per_second=rate)
