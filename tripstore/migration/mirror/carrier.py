"""`Carrier`: one claim after the other is carried to Schemaless, and what will never go is set aside with its reason.

The steps are those of the hand-over (`handover.relay`). A parked change stays in the queue, where claims pass it by
and a switch counts it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from schemaless_core.cell.cell import Cell
from schemaless_core.errors import Conflict, SchemalessError
from schemaless_core.failpoints import reach
from tripstore import metrics
from tripstore.backends.postgres.handover.queue import QueueLook
from tripstore.handover.ports import ControlPort, LegacyPort, Ports, StorePort
from tripstore.handover.relay import deliver
from tripstore.handover.steps import run
from tripstore.migration.mirror.pace import Carried

logger = logging.getLogger(__name__)

#: Hears of a cell that the store will never take, and why.
Refused = Callable[[Cell, SchemalessError], None]


class CarrierQueue(LegacyPort, Protocol):
    """The queue beyond what a hand-over asks of it."""

    def park(self, cells: Sequence[Cell], kind: str, because: str) -> None:
        """Set changes aside; those that are not in the queue any more are no error."""
        ...

    def oldest(self) -> QueueLook: ...


class Carrier:
    """Carries for one relay, in one thread."""

    def __init__(self, queue: CarrierQueue, store_of: Callable[[Refused], StorePort], control: ControlPort) -> None:
        self._queue = queue
        self._refusals: list[tuple[Cell, SchemalessError]] = []
        self._ports = Ports(queue, store_of(self._note), control)

    def carry(self, limit: int, *, from_others: bool = False) -> Carried:
        """Claim, send, mark, and park what was refused for good."""
        self._refusals.clear()
        delivery = run(deliver(self._ports, limit, from_others=from_others))
        parked = self._park()
        carried = Carried(delivery.claimed, delivery.delivered, parked)
        metrics.changes_relayed("delivered", carried.delivered)
        metrics.changes_relayed("waiting", carried.waiting)
        return carried

    def _note(self, cell: Cell, error: SchemalessError) -> None:
        self._refusals.append((cell, error))

    def _park(self) -> int:
        """Set aside what was refused. A relay that is killed before finds the same once more."""
        for cell, error in self._refusals:
            reach("relay.park")
            kind = "conflict" if isinstance(error, Conflict) else "refused"
            self._queue.park([cell], kind, error.message)
            metrics.change_undeliverable("forward", kind)
            extra = {
                "event": "mirror.change_parked",
                "row_key": str(cell.row_key),
                "column": cell.column_name,
                "ref_key": cell.ref_key,
                "kind": kind,
            }
            logger.error("a change was parked: %s", error.message, extra=extra)
        metrics.changes_relayed("parked", len(self._refusals))
        return len(self._refusals)
