"""`Mirror`: the parts of the mirror in one process, made from its facade."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.control.audit import AuditLog
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.triggers.group import Group
from tripstore.backends.postgres.handover.queue import QueueLook
from tripstore.facade.facade import Facade
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import StorePort
from tripstore.migration.mirror.carrier import Carrier, Refused
from tripstore.migration.mirror.draining import Drained, Tell, drain_forward, drain_reverse
from tripstore.migration.mirror.log_keeper import LogKeeper, days_keeper
from tripstore.migration.mirror.parked import ForwardParked, ParkedChanges, ReverseParked
from tripstore.migration.mirror.partition_keeper import PartitionKeeper, PartitionWatch
from tripstore.migration.mirror.rehearsal_ledger import RehearsalLedger
from tripstore.migration.mirror.relays import Relay
from tripstore.migration.mirror.reverse import ReverseMirror, register_reverse
from tripstore.migration.mirror.row_ids import RowIds
from tripstore.migration.mirror.skipping import Skipping
from tripstore.migration.mirror.status import MirrorStatus, ReverseStatus, find_reverse, mirror_status
from tripstore.phase import Phase
from tripstore.ports.applied import applied_of
from tripstore.ports.legacy import RealLegacyPort
from tripstore.ports.store import SchemalessPort


class Mirror:
    """Needs a legacy store. Changes are claimed in its name."""

    def __init__(self, facade: Facade, name: str | None = None) -> None:
        assert facade.duo is not None
        assert facade.config.legacy is not None
        self._facade = facade
        self._duo = facade.duo
        self._config = facade.config.legacy
        self._queue = RealLegacyPort(self._duo.legacy, claimed_by=name or "")
        self._applied = applied_of(self._duo.legacy.database)

    def carrier(self) -> Carrier:
        return Carrier(self._queue, self._store_of, self._duo.ports.control)

    def relay(self) -> Relay:
        return Relay(self.carrier(), self._oldest, self._may_carry, lambda: self._duo.known.has_cohort)

    def log_keeper(self) -> LogKeeper:
        return LogKeeper(days_keeper(self._config, self._facade.config.core.shards))

    def partition_keeper(self) -> PartitionKeeper:
        return PartitionKeeper(PartitionWatch(self._config))

    def reverse(self) -> ReverseMirror:
        legacy = self._duo.legacy
        control = self._duo.ports.control
        return ReverseMirror(
            control,
            self._is_rehearsing,
            legacy.as_mirror(),
            self._config.layout,
            RowIds(control.authority, legacy.legacy_ids, self._facade.store, self._store_of),
            RehearsalLedger(Ledgers(self._facade.store.control)),
            late=lambda seconds: self._duo.latency.late("reverse", seconds),
        )

    def groups(self) -> Callable[[], Sequence[Group]]:
        """Lists the reverse mirror, until the migration is complete: it rehearses long before it is needed."""
        group = self.reverse()

        def listed() -> Sequence[Group]:
            sight = self._duo.known.sight
            return [] if sight is None or sight.phase is Phase.COMPLETE else [group]

        return listed

    def status(self) -> MirrorStatus:
        return mirror_status(
            self._phase, self._duo.ports.control.authority, self._queue.oldest, self._facade.store, self._applied
        )

    def parked(self, *, is_reverse: bool) -> ParkedChanges:
        return ReverseParked(self._facade.store) if is_reverse else ForwardParked(self._queue)

    def skipping(self) -> Skipping:
        store = self._facade.store
        return Skipping(self._queue, self._config.layout, self._duo.legacy, store, AuditLog(store.control))

    def drain(self, direction: str, patience_seconds: float, tell: Tell) -> Drained:
        """Carry all there is in a direction."""
        if direction == "forward":
            return drain_forward(self.carrier(), self._queue.oldest, patience_seconds, tell=tell)
        with self._serving():
            return drain_reverse(self._find_reverse, patience_seconds, tell=tell)

    def at_postgres(self, key: CellKey) -> Cell | None:
        return self._duo.legacy.get_cell(*key)

    def at_schemaless(self, key: CellKey) -> Cell | None:
        return self._facade.store.get_cell(*key)

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """The reverse mirror served by this process, beside other workers."""
        group = self.reverse()
        worker = self._facade.store.triggers.worker(lambda: [group])
        thread = threading.Thread(target=worker.run, name="reverse-mirror", daemon=True)
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join()

    def _find_reverse(self) -> ReverseStatus:
        register_reverse(self._facade.store)
        found = find_reverse(self._facade.store, self._applied)
        assert found is not None
        return found

    def _oldest(self) -> QueueLook:
        """A relay's look at the queue: how late the mirror is goes into the report."""
        seen = self._queue.oldest()
        self._duo.latency.late("forward", seen.seconds)
        return seen

    def _phase(self, row: Authority) -> Phase:
        return self._facade.flags.find().phase(row)

    def _is_rehearsing(self) -> bool:
        sight = self._duo.known.sight
        return sight is not None and sight.phase.route.asks_other

    def _may_carry(self) -> bool:
        """Also while a hand-over closes Postgres: what is delivered then the switcher need not deliver."""
        sight = self._duo.known.sight
        if sight is None:
            return False
        return sight.authority.backend is Backend.LEGACY and sight.phase.route.is_mirrored

    def _store_of(self, refused: Refused) -> StorePort:
        return SchemalessPort(self._facade.store, refused)
