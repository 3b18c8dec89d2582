"""The mirror, backwards: what becomes of cells that were read from the log of a shard.

The trigger workers read the log before, and save their offset after it: by then what was to be written is durable.
The row is looked at after the log was read. What is in there by then was put while the row said the same, or before:
so no cell of Schemaless' own is taken for one that came from Postgres.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import ControlPort
from tripstore.handover.steps import Step, Steps

Cells = TypeVar("Cells")
T = TypeVar("T")

LOOK = Step("reverse.look", "look which backend is the authority")
WRITE = Step("reverse.write", "write the cells into the legacy tables, forward only")
PASS = Step("reverse.pass", "pass what came from the legacy tables, or compare it with them")


class Hands(NamedTuple, Generic[Cells, T]):
    """The two calls, durable once they return. `write` is told at which epoch Schemaless opened: Postgres compares."""

    write: Callable[[Cells, int], T]
    passed: Callable[[Cells, Authority], T]


def deliver(control: ControlPort, hands: Hands[Cells, T], cells: Cells, layout: str | None = None) -> Steps[T]:
    """Carry cells of the log back; return what became of them. `layout`: by which one they are written."""
    yield LOOK
    row = control.authority()
    row.check_layout(layout)
    if row.backend is Backend.STORE:
        yield WRITE
        # While a way back is closing, too: what was put before that is still to be carried.
        return hands.write(cells, row.opened_at)
    yield PASS
    return hands.passed(cells, row)
