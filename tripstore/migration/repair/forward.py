"""`ForwardRepair`: the sides of a repair while Postgres is the authority, and Schemaless the mirror."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import CellKey, ColumnKey, encoded_name
from schemaless_core.cell.children import NO_CHILDREN, ChildKey
from schemaless_core.cell.encoded import EncodedCell
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError
from schemaless_core.mends import RawCell
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.put.unmapped import LOCKS_PER_BATCH
from tripstore.backends.postgres.layout.layout import LEGACY_ID, DeletePolicy, Layout, RefKeyKind
from tripstore.backends.postgres.wire.flush import FLUSH
from tripstore.backends.postgres.wire.translation import LockTimeout
from tripstore.engines.validation.repair import HeldVersion, Powers, Rendered, RepairStep, Returned, Version
from tripstore.migration.repair.changes import mend, outcome_of, rebuild, unless
from tripstore.migration.repair.heights import TOMBSTONE, bury_target, came_back, lift_target
from tripstore.migration.repair.holes import Holes, put_cells
from tripstore.migration.repair.sides import READ_SECONDS, GaveWay, NoSuchCell, Pair
from tripstore.migration.repair.versions import held, known_at, known_latest

#: Rows whose locks one transaction holds: services wait for it.
LIFTS_PER_COMMIT = 100
#: Of those, how many held ones are waited for, one after the other, before the others are left for the next look.
HELD_MAX = 10


class ForwardRepair:
    """Postgres is the authority, Schemaless the mirror."""

    def __init__(
        self,
        legacy: PostgresBackend,
        store: Datastore,
        epoch: int,
        job: str,
        unpark: Callable[[Collection[UUID]], object],
        holes: Holes,
    ) -> None:
        self._legacy = legacy.as_owner(epoch).using(deadline=READ_SECONDS)
        self._layout: Layout = legacy.layout
        self._store = store.as_copier(epoch).using(deadline=READ_SECONDS)
        self._mends = self._store.mends.of_job(job)
        self._unpark = unpark
        self._holes = holes

    def theirs(self, rows: Sequence[ChildKey]) -> list[HeldVersion | None]:
        return list(map(held, self._mends.latest(rows, self._layout.child_bits)))

    def ours(self, rows: Sequence[ChildKey]) -> list[Version]:
        """A tombstone is asked whether a row stands below it."""
        found = known_latest(self._legacy, rows)
        ended = [
            row for row, own in zip(rows, found, strict=True) if isinstance(own, HeldVersion) and own.body == TOMBSTONE
        ]
        returned = self._legacy.returned_among(ended) if ended else ()
        versions: list[Version] = [
            Returned(*own) if isinstance(own, HeldVersion) and row in returned else own
            for row, own in zip(rows, found, strict=True)
        ]
        keys = [
            CellKey(*row.column, own.ref_key) if isinstance(own, HeldVersion) else None
            for row, own in zip(rows, found, strict=True)
        ]
        return self._kept(keys, versions)

    def _kept(self, keys: Sequence[CellKey | None], versions: Sequence[Version]) -> list[Version]:
        """None in the place of what was purged: the mirror lacks it rightly."""
        purged = self._store.find_purged([key for key in keys if key is not None])
        return [None if key in purged else each for key, each in zip(keys, versions, strict=True)]

    def theirs_at(self, keys: Sequence[CellKey]) -> list[HeldVersion | None]:
        return list(map(held, self._mends.find_all(keys)))

    def ours_at(self, keys: Sequence[CellKey]) -> list[Version]:
        return self._kept(keys, known_at(self._legacy, keys))

    def powers(self, seen: Sequence[Pair]) -> list[Powers]:
        last = zip(seen, self._last(seen), strict=True)
        bury_at = [bury_target(self._layout, pair.column, pair.ours, under) for pair, under in last]
        were_rows = self._were_rows([pair.column for pair, at in zip(seen, bury_at, strict=True) if at is not None])
        return [
            Powers(
                lift_target(self._layout, *pair),
                can_mend=True,
                forgets=self._forgets(pair.column),
                bury_at=at,
                was_row=pair.column in were_rows and not came_back(self._layout, *pair),
            )
            for pair, at in zip(seen, bury_at, strict=True)
        ]

    def _forgets(self, column: ColumnKey) -> bool:
        mapped = self._layout.columns.get(column.column_name)
        return mapped is not None and mapped.on_delete is DeletePolicy.IGNORE

    def _last(self, seen: Sequence[Pair]) -> list[HeldVersion | None]:
        """What the tombstones of lost rows would stand above: of a fact the highest of its siblings."""
        lost = [pair.column for pair in seen if self._is_lost_fact(pair)]
        found = dict(zip(lost, self._latest_cells(lost), strict=True))
        return [held(found[pair.column]) if pair.column in found else pair.theirs for pair in seen]

    def _is_lost_fact(self, pair: Pair) -> bool:
        mapped = self._layout.columns.get(pair.column.column_name)
        is_fact = mapped is not None and mapped.ref_key.kind is RefKeyKind.FACT
        return is_fact and pair.ours is None and pair.theirs is not None

    def _were_rows(self, columns: Sequence[ColumnKey]) -> set[ColumnKey]:
        """Those whose row the mirror knows by its legacy id, or whose legacy id by its row."""
        parent = self._layout.parent.name
        others = [ColumnKey(key, parent if name == LEGACY_ID else LEGACY_ID) for key, name in columns]
        found = zip(columns, self._latest_cells(others), strict=True)
        return {column for column, other in found if other is not None}

    def _latest_cells(self, columns: Sequence[ColumnKey]) -> list[RawCell | None]:
        return self._mends.latest([ChildKey(*column) for column in columns], NO_CHILDREN)

    def put(self, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
        """Where the log of a shard has holes, each cell that is missing closes one, one by one."""
        self._flush(steps)
        return self._holes.put(self._mends, self._store, [_cell(step.key, step.body) for step in steps])

    def put_new(self, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
        self._flush(steps)
        return put_cells(self._mends, self._store, [_cell(step.key, step.body) for step in steps])

    def bury(self, lost: Sequence[tuple[RepairStep, HeldVersion]]) -> list[SchemalessError | None]:
        """Column by column; with a row of the parent its legacy id. A table that is busy is left for the next look."""
        of_column = defaultdict[str, dict[CellKey, None]](dict)
        for step, _theirs in lost:
            of_column[step.key.column_name][_buried(step)] = None  # of siblings that are facts once
        self._keep_pairs(lost)
        outcomes: dict[CellKey, SchemalessError | None] = {}
        for name, keys in of_column.items():
            outcomes |= dict.fromkeys(keys) if name == LEGACY_ID else self._buried(name, list(keys))
        return [outcomes[_buried(step)] for step, _theirs in lost]

    def _buried(self, column_name: str, keys: Sequence[CellKey]) -> dict[CellKey, SchemalessError | None]:
        """Of each key why it has no tombstone. Where one batch gives way, those after it are not tried: each try
        makes the table's writers wait."""
        outcomes: dict[CellKey, SchemalessError | None] = {}
        for first in range(0, len(keys), LOCKS_PER_BATCH):
            batch = keys[first : first + LOCKS_PER_BATCH]
            try:
                buried = self._legacy.bury(column_name, batch)
            except LockTimeout as timeout:
                return outcomes | dict.fromkeys(keys[first:], self._busy(column_name, timeout))
            outcomes |= {key: None if key in buried else _not_buried(key) for key in batch}
        return outcomes

    def _busy(self, column_name: str, timeout: LockTimeout) -> GaveWay:
        table = self._layout.columns[column_name].table.sql
        return GaveWay(
            f"{table} is busy: {timeout.message} The repair gave way.",
            hint="Repair again when no long transaction or VACUUM is at work on the table.",
        )

    def _keep_pairs(self, lost: Sequence[tuple[RepairStep, HeldVersion]]) -> None:
        names = (self._layout.parent.name, LEGACY_ID)
        rows = {step.key.row_key for step, _theirs in lost if step.key.column_name in names}
        found = self._mends.latest([ChildKey(row_key, LEGACY_ID) for row_key in rows], NO_CHILDREN)
        self._legacy.keep_legacy_ids({raw.key.row_key: raw.body for raw in found if raw is not None})

    def lift(self, lifts: Sequence[tuple[RepairStep, HeldVersion]]) -> list[SchemalessError | HeldVersion | None]:
        """A cell that stands beside the tables, or before its row, is put once more under the higher ref key."""
        lifted = self._lifted([step.key for step, _ours in lifts if step.key.column_name in self._layout.columns])
        return [
            _risen(step.key, lifted[step.key]) if step.key in lifted else self._lifted_alone(step, ours)
            for step, ours in lifts
        ]

    def _lifted(self, keys: Sequence[CellKey]) -> dict[CellKey, bytes | GaveWay | None]:
        """Rows that were lifted together, and those that transactions of services hold."""
        found = dict[CellKey, bytes | GaveWay | None]()
        for name in {key.column_name for key in keys}:
            of_column = [key for key in keys if key.column_name == name]
            for first in range(0, len(of_column), LIFTS_PER_COMMIT):
                found |= self._lifted_together(of_column[first : first + LIFTS_PER_COMMIT])
        return found

    def _lifted_together(self, keys: Sequence[CellKey]) -> dict[CellKey, bytes | GaveWay | None]:
        """Where a transaction holds one of them, each is tried alone; what is held is left for the next look."""
        try:
            return {**self._legacy.lift_many(keys)}
        except LockTimeout as timeout:
            gave_way = self._gave_way(keys[0].column_name, timeout)
            if len(keys) == 1:
                return {keys[0]: gave_way}
        found = dict[CellKey, bytes | GaveWay | None]()
        waiting = random.sample(keys, len(keys))  # another order at each look: each row gets its turn
        while waiting and sum(isinstance(each, GaveWay) for each in found.values()) < HELD_MAX:
            found |= self._lifted_together([waiting.pop()])
        return found | dict.fromkeys(waiting, gave_way)

    def _gave_way(self, column_name: str, timeout: LockTimeout) -> GaveWay:
        mapped = self._layout.columns.get(column_name)
        table = "tripstore.cell" if mapped is None else mapped.table.sql
        return GaveWay(
            f"A row of {table} is held: {timeout.message} The repair gave way.",
            hint="Repair again when that transaction has ended.",
        )

    def _lifted_alone(self, step: RepairStep, ours: HeldVersion) -> SchemalessError | None:
        if isinstance(ours, Returned):  # its row went, or was lifted: a put would be a tombstone above it
            return NoSuchCell(f"The row below {step.key} is another by now.")
        try:
            return outcome_of(lambda: self._lift_one(step, ours))
        except LockTimeout as timeout:
            return self._gave_way(step.key.column_name, timeout)

    def _lift_one(self, step: RepairStep, ours: HeldVersion) -> None:
        if step.key.column_name not in self._layout.columns or not self._legacy.lift(step.key):
            self._legacy.put_cell(*step.key, from_canonical(ours.body), expect_latest=ours.ref_key)

    def mend(self, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
        self._flush(steps)
        return mend(self._mends, steps)

    def purge(self, extra: Sequence[tuple[RepairStep, HeldVersion]]) -> list[SchemalessError | None]:
        found = self._mends.find_all([step.key for step, _theirs in extra])
        as_seen = {
            raw.key: raw
            for raw, (_step, theirs) in zip(found, extra, strict=True)
            if raw is not None and raw.body == theirs.body
        }
        done = dict(zip(as_seen, self._mends.purge_all(list(as_seen.values())), strict=True))
        return [unless(done.pop(step.key, False), step) for step, _theirs in extra]

    def settle(self, columns: Collection[ColumnKey]) -> None:
        rows = {column.row_key for column in columns}
        touched = self._mends.touched(rows)
        self._put_back(touched)
        rebuild(self._mends, columns, touched)
        self._unpark(rows)

    def _put_back(self, rows: Collection[UUID]) -> None:
        """What was purged, and was carried just before that: the mirror had said that it is there."""
        purged = self._mends.purged_of(rows)
        known = {
            key: ours for key, ours in zip(purged, self.ours_at(purged), strict=True) if isinstance(ours, HeldVersion)
        }
        found = zip(known.items(), self._mends.find_all(list(known)), strict=True)
        lost = [_cell(key, ours.body) for (key, ours), raw in found if raw is None]
        self._flush(lost)
        for error in put_cells(self._mends, self._store, lost):
            if error is not None:
                raise error

    def _flush(self, steps: Sequence[object]) -> None:
        """What Postgres could still lose must not be sent: a row whose commit was asynchronous, for instance."""
        if steps:
            self._legacy.database.run(lambda connection: connection.rows(FLUSH), Deadline(READ_SECONDS))


def _buried(step: RepairStep) -> CellKey:
    """What a tombstone stands right above."""
    return step.key._replace(ref_key=step.key.ref_key - 1)


def _not_buried(key: CellKey) -> NoSuchCell:
    return NoSuchCell(
        f"({key.row_key}, {key.column_name}, {key.ref_key}) has a row, a tombstone or, of facts, its parent by now.",
        hint="Facts go with their parent alone: delete it, or insert the fact again.",
    )


def _risen(key: CellKey, lifted: bytes | GaveWay | None) -> GaveWay | HeldVersion | None:
    return Rendered(key.ref_key, lifted) if isinstance(lifted, bytes) else lifted


def _cell(key: CellKey, body: bytes | None) -> EncodedCell:
    """A cell that is to be put: its bytes are those of a sound version."""
    assert body is not None
    return EncodedCell(key.row_key.bytes, encoded_name(key.column_name), key.ref_key, body)
