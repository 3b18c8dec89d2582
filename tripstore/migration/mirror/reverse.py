"""`ReverseMirror`: the built-in group that writes Schemaless' cells into the legacy tables, and rehearses it before.

It is handed cells of the shards' logs and looks at the authority row after that: what is in the log by then was put
while the row said the same, or before. While Postgres is the authority every cell came from there, and nothing is
written: in the phase shadow cells are compared with what stands there, as many as the budget allows, and the others
passed. While Schemaless is, what Postgres lacks is put: as the mirror, forward only, in the order of the log within a
row. What fails again and again the trigger workers set aside, with its row; a later version may go before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError, Unavailable
from schemaless_core.store import CellStore
from schemaless_core.triggers.group import Parking, RunOutcome, Tombstones, never
from schemaless_core.triggers.leases.coordinator import GroupRecord
from schemaless_core.triggers.offsets import Offsets, Progress
from schemaless_core.triggers.parking import Parking as ParkedCells
from tripstore import metrics
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.handover.authority import Authority
from tripstore.handover.ports import ControlPort
from tripstore.handover.reverse import Hands, deliver
from tripstore.handover.steps import run
from tripstore.migration.mirror.look import Look, LookFailed, Runs
from tripstore.migration.mirror.overtaking import Overtaking
from tripstore.migration.mirror.progress import Looked, ReverseProgress
from tripstore.migration.mirror.rehearsal import Rehearsal
from tripstore.migration.mirror.rehearsal_ledger import RehearsalLedger
from tripstore.migration.mirror.reverse_puts import ReversePuts
from tripstore.migration.mirror.row_ids import RowIds

GROUP = REVERSE_GROUP
#: Between two pages while Postgres is the authority: no caller waits for what has come from there.
REST_SECONDS = 0.25

Outcomes = Mapping[int, RunOutcome]


class EveryColumn:
    """All columns, those that are not known yet, too."""

    def __contains__(self, _name: object) -> bool:
        return True


def register_reverse(datastore: Datastore) -> GroupRecord:
    """Create the group unless it is there: from now on, as long as all that is there came from Postgres.

    Once Schemaless was the authority it begins at the beginning: what Postgres has costs a look.
    """
    known = datastore.triggers.coordinator.find_group(REVERSE_GROUP)
    if known is not None:
        return known
    seen = datastore.authority.find()
    is_first = seen is None or (seen.epoch == 0 and not seen.silent)
    return datastore.triggers.register_group(REVERSE_GROUP, "now" if is_first else "beginning")


class ReverseMirror:
    """A group for the trigger workers; used by one thread."""

    name = REVERSE_GROUP
    columns = EveryColumn()
    parking: Parking = "row"
    is_transactional = False
    is_bundled = True  #: One look for the cells of all shards.

    def __init__(
        self,
        control: ControlPort,
        is_rehearsing: Callable[[], bool],
        legacy: PostgresBackend,
        layout: Layout,
        row_ids: RowIds,
        rehearsal: RehearsalLedger,
        *,
        late: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        look = Look(legacy)
        self._control = control
        self._database = legacy.database
        self._looked = Looked()
        self._is_rehearsing = is_rehearsing
        self._rehearsal = Rehearsal(control, look, rehearsal)
        self._puts = ReversePuts(legacy, look, layout.parent.name, row_ids)
        self._digest = layout.digest
        self._overtaking = Overtaking(layout)
        self.rehearsal = rehearsal
        self._late = late
        self.rest_seconds = 0.0

    def deliver(self, runs: Runs, store: CellStore | None = None, is_over: Callable[[], bool] = never) -> Outcomes:
        return self._guarded(runs, self._passed)

    def retry(self, shard: int, cell: Cell, store: CellStore | None = None) -> RunOutcome:
        """What was parked is looked at, whatever the phase and the budget."""
        return self._guarded({shard: [cell]}, self._rehearsal.compare)[shard]

    def progress(self, offsets: Offsets, parked: ParkedCells) -> Progress:
        return ReverseProgress(self._database, offsets, parked, self._looked)

    def overtaking(self, failed: CellKey, behind: Sequence[CellKey], tombstones: Tombstones) -> Sequence[CellKey]:
        return self._overtaking.of(failed, behind, tombstones)

    def _guarded(self, runs: Runs, passed: Callable[[Runs, Authority], Outcomes]) -> Outcomes:
        try:
            return run(deliver(self._control, Hands(self._written, self._noting(passed)), runs, self._digest))
        except Unavailable as error:
            return dict.fromkeys(runs, RunOutcome(0, error))
        except SchemalessError as error:
            return dict.fromkeys(runs, RunOutcome(0, LookFailed(error.message, hint=error.hint)))
        finally:
            seconds = _age_seconds(runs)
            metrics.mirror_late("reverse", seconds)
            self._late(seconds)

    def _noting(self, passed: Callable[[Runs, Authority], Outcomes]) -> Callable[[Runs, Authority], Outcomes]:
        def noted(runs: Runs, row: Authority) -> Outcomes:
            self._looked.note(runs, row.opened_at)
            return passed(runs, row)

        return noted

    def _written(self, runs: Runs, epoch: int) -> Outcomes:
        self._looked.note(runs, epoch)
        self.rest_seconds = 0.0
        return self._puts.put(runs, epoch)

    def _passed(self, runs: Runs, row: Authority) -> Outcomes:
        """Pass them; some are compared before."""
        self.rest_seconds = REST_SECONDS
        passed = {shard: RunOutcome(len(cells), None) for shard, cells in runs.items()}
        if not self._is_rehearsing():
            return passed
        return passed | self._rehearsal.compare(self._rehearsal.chosen(runs), row)


def _age_seconds(runs: Runs) -> float:
    """Of the oldest cell, by this process's clock."""
    first = min((cells[0].created_at for cells in runs.values() if cells and cells[0].created_at), default=None)
    return 0.0 if first is None else max((datetime.now(UTC) - first).total_seconds(), 0.0)
