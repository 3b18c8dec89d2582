"""`EpochOfRow`: at which epoch what waits in buffers is carried, as the authority row says."""

from __future__ import annotations

from schemaless_core.buffers.ports import OnHold
from tripstore.handover.authority import Backend
from tripstore.handover.ports import ControlPort


class EpochOfRow:
    """The `PresentPort` of a migration."""

    def __init__(self, control: ControlPort) -> None:
        self._control = control

    def epoch(self) -> int | OnHold:
        """The row's own, closing or not; held while Postgres is the authority. Raises where the row cannot be read."""
        row = self._control.authority()
        return row.epoch if row.backend is Backend.STORE else OnHold.HELD
