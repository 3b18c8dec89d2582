"""`BackfillStanding`: whether the past may be copied now: Postgres is the authority, its changes are captured and
carried.

The mirror corrects a copy of what changes meanwhile. Without capture and mirror it would stay wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.engines.backfill.errors import CannotCopy, MustWait
from tripstore.facade.flags import FlagBook
from tripstore.handover.authority import Backend
from tripstore.handover.ports import ControlPort

#: What was found is believed for so long. What the shards do not take of an old epoch is copied again anyway.
BELIEVED_SECONDS = 1.0
LOOK_SECONDS = 5.0

_CAPTURE = "SELECT since, broken FROM tripstore.capture"


class BackfillStanding:
    """Of one process."""

    def __init__(
        self,
        database: LegacyDatabase,
        control: ControlPort,
        flags: FlagBook,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._control = control
        self._flags = flags
        self._clock = clock
        self._checked: tuple[str, float] | None = None

    def check(self, capture_since: str) -> None:
        """Raise unless it may go on. `capture_since`: when the capture began that the job relies on."""
        if self._checked is not None and self._checked[0] == capture_since and self._clock() < self._checked[1]:
            return
        found = self.capture_since()
        if found.isoformat() != capture_since:
            raise CannotCopy(
                f"Capture began anew at {found:%Y-%m-%d %H:%M:%S}: what changed before may be missing.",
                hint="`tripstore backfill cancel` this one, and start another.",
            )
        self.check_phase()
        self._checked = (capture_since, self._clock() + BELIEVED_SECONDS)

    def capture_since(self) -> datetime:
        """From when on nothing is missed; `CannotCopy` when capture cannot promise that."""
        rows = self._database.run(lambda connection: connection.rows(_CAPTURE), Deadline(LOOK_SECONDS))
        since, broken = rows[0] if rows else (None, None)
        if since is None or broken is not None:
            raise CannotCopy(
                f"Changes of the legacy tables are not captured ({broken or 'capture has not begun'}).",
                hint="`tripstore doctor` says what is wrong; `tripstore schema apply` mends it. Then start a backfill.",
            )
        found: datetime = since
        return found

    def check_phase(self) -> None:
        """Raise unless Postgres is the authority and what changes there is carried."""
        row = self._control.authority()
        if not row.is_open:
            raise MustWait("A hand-over is going on.", hint="`tripstore cutover status` says by which process.")
        if row.backend is Backend.STORE:
            raise CannotCopy(
                "Schemaless is the authority: what Postgres has comes from there.",
                hint="After `tripstore cutover reverse` it may go on.",
            )
        phase = self._flags.find().phase(row)
        if not phase.route.is_mirrored:
            raise CannotCopy(
                f"In phase {phase} no relay carries what changes while the past is copied.",
                hint="`tripstore phase set dualwrite`, with a `tripstore worker run`; then start or resume it.",
            )
