"""`OpenedAsRow`: how the shards of a promoted server are opened, as the authority row says."""

from __future__ import annotations

from typing import Literal

from schemaless_core.cell.standing import ShardStatus
from schemaless_core.engine.primacy import Opening
from schemaless_core.promotion.ports import HANDING_OVER, HandingOver
from tripstore.handover.authority import Backend
from tripstore.handover.ports import ControlPort


class OpenedAsRow:
    """The `AuthorityPort` of a migration."""

    def __init__(self, control: ControlPort) -> None:
        self._control = control

    def opening(self) -> Opening | Literal[HandingOver.HANDING_OVER]:
        """Held while a hand-over goes on. Raises where the row cannot be read."""
        row = self._control.authority()
        if not row.is_open:
            return HANDING_OVER
        status = ShardStatus.RW if row.backend is Backend.STORE else ShardStatus.COPY
        return Opening(row.epoch, status.value)
