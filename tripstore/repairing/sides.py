"""`Sides`: authority and mirror at one epoch, as repair sees them: what each holds, and what can be done about it.

The mirror is always read before the authority: what it holds rightly the authority then knows. Whatever is changed
carries the epoch; a store that is not the authority's mirror any more refuses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol
from uuid import UUID

from schemaless_core.canonical import Json, canonical_bytes, from_canonical
from schemaless_core.cell import Cell, CellKey, ColumnKey
from schemaless_core.children import NO_CHILDREN, ChildKey
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import Conflict, Invalid, SchemalessError
from schemaless_core.mends import Mends, RawCell
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.free import LOCKS_PER_BATCH
from tripstore.backends.postgres.errors import HistoryTruncated, UnreadableRow
from tripstore.backends.postgres.layout.layout import LEGACY_ID, DeletePolicy, Layout, RefKeyKind
from tripstore.backends.postgres.wire.flush import FLUSH
from tripstore.backends.postgres.wire.translation import LockTimeout
from tripstore.errors import TripstoreError
from tripstore.repairing.holes import Holes, put_cells
from validation.repair import Held, Powers, Step, Unknown, Version

READ_SECONDS = 20.0
#: Rows whose locks one transaction holds: services wait for it.
LIFTS_PER_COMMIT = 100
TOMBSTONE = b"null"
REF_KEY_MAX = 2**63 - 1


class NoSuchCell(Conflict, TripstoreError):
    """What was to be repaired is another by now; it is looked at again."""


class TableBusy(Conflict, TripstoreError):
    """Transactions of services held a table, and the repair gave way to them. Later it may get its turn."""


class Pair(NamedTuple):
    """What both sides hold of a column."""

    column: ColumnKey
    ours: Version
    theirs: Held | None


class Sides(Protocol):
    """The verbs. A conflict says that something moved; what a store refuses for good it raises."""

    def theirs(self, rows: Sequence[ChildKey]) -> list[Held | None]:
        """The mirror's latest cells."""
        ...

    def ours(self, rows: Sequence[ChildKey]) -> list[Version]:
        """The authority's latest cells."""
        ...

    def theirs_at(self, keys: Sequence[CellKey]) -> list[Held | None]:
        """What the mirror has under keys."""
        ...

    def ours_at(self, keys: Sequence[CellKey]) -> list[Version]:
        """What the authority has under keys."""
        ...

    def powers(self, seen: Sequence[Pair]) -> list[Powers]: ...

    def put(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        """Put cells that the mirror has lost, most likely; of each why it is not there, if it is not."""
        ...

    def put_new(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        """The same of cells that it never had."""
        ...

    def bury(self, lost: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
        """Write tombstones for rows that are gone without one; of each why there is none, if there is none."""
        ...

    def lift(self, lifts: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
        """Have the authority's cells carried anew under higher ref keys; of each why it is not so, if it is not."""
        ...

    def mend(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        """Replace bytes where they stand; of each why it is not so, if it is not."""
        ...

    def purge(self, extra: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
        """Delete cells that are still as they were seen; of each why it is there, if it is."""
        ...

    def settle(self, columns: Collection[ColumnKey]) -> None:
        """What goes with cells that were changed: index entries, and changes that were parked because of them."""
        ...


class Forward:
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

    def theirs(self, rows: Sequence[ChildKey]) -> list[Held | None]:
        return list(map(_held, self._mends.latest(rows, self._layout.child_bits)))

    def ours(self, rows: Sequence[ChildKey]) -> list[Version]:
        return _latest(self._legacy, rows)

    def theirs_at(self, keys: Sequence[CellKey]) -> list[Held | None]:
        return list(map(_held, self._mends.find_all(keys)))

    def ours_at(self, keys: Sequence[CellKey]) -> list[Version]:
        return _at(self._legacy, keys)

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

    def _last(self, seen: Sequence[Pair]) -> list[Held | None]:
        """What the tombstones of lost rows would stand above: of a fact the highest of its siblings."""
        lost = [pair.column for pair in seen if self._is_lost_fact(pair)]
        found = dict(zip(lost, self._latest_cells(lost), strict=True))
        return [_held(found[pair.column]) if pair.column in found else pair.theirs for pair in seen]

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

    def put(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        """Where the log of a shard has holes, each cell that is missing closes one, one by one."""
        self._flush(steps)
        return self._holes.put(self._mends, self._store, [_cell(step) for step in steps])

    def put_new(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        self._flush(steps)
        return put_cells(self._store, [_cell(step) for step in steps])

    def bury(self, lost: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
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

    def _busy(self, column_name: str, timeout: LockTimeout) -> TableBusy:
        table = self._layout.columns[column_name].table.sql
        return TableBusy(
            f"{table} is busy: {timeout.message} The repair gave way.",
            hint="Repair again when no long transaction or VACUUM is at work on the table.",
        )

    def _keep_pairs(self, lost: Sequence[tuple[Step, Held]]) -> None:
        names = (self._layout.parent.name, LEGACY_ID)
        rows = {step.key.row_key for step, _theirs in lost if step.key.column_name in names}
        found = self._mends.latest([ChildKey(row_key, LEGACY_ID) for row_key in rows], NO_CHILDREN)
        self._legacy.keep_legacy_ids({raw.key.row_key: raw.body for raw in found if raw is not None})

    def lift(self, lifts: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
        """A cell that stands beside the tables, or before its row, is put once more under the higher ref key."""
        lifted = self._lifted([step.key for step, _ours in lifts if step.key.column_name in self._layout.columns])
        return [None if step.key in lifted else _outcome(lambda: self._lift_one(step, ours)) for step, ours in lifts]  # noqa: B023  # called at once

    def _lifted(self, keys: Sequence[CellKey]) -> set[CellKey]:
        """Rows that were lifted together. Where a transaction holds one of them, its whole batch is left for later."""
        found = set[CellKey]()
        for name in {key.column_name for key in keys}:
            of_column = [key for key in keys if key.column_name == name]
            for first in range(0, len(of_column), LIFTS_PER_COMMIT):
                with suppress(LockTimeout):
                    found |= self._legacy.lift_many(of_column[first : first + LIFTS_PER_COMMIT])
        return found

    def _lift_one(self, step: Step, ours: Held) -> None:
        if step.key.column_name not in self._layout.columns or not self._legacy.lift(step.key):
            self._legacy.put_cell(*step.key, from_canonical(ours.body), expect_latest=ours.ref_key)

    def mend(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        self._flush(steps)
        return _mend(self._mends, steps)

    def purge(self, extra: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
        found = self._mends.find_all([step.key for step, _theirs in extra])
        as_seen = {
            raw.key: raw
            for raw, (_step, theirs) in zip(found, extra, strict=True)
            if raw is not None and raw.body == theirs.body
        }
        done = dict(zip(as_seen, self._mends.purge_all(list(as_seen.values())), strict=True))
        return [_unless(done.pop(step.key, False), step) for step, _theirs in extra]

    def settle(self, columns: Collection[ColumnKey]) -> None:
        rows = {column.row_key for column in columns}
        touched = self._mends.touched(rows)
        self._put_back(touched)
        _rebuild(self._mends, columns, touched)
        self._unpark(rows)

    def _put_back(self, rows: Collection[UUID]) -> None:
        """What was purged, and was carried just before that: the mirror had said that it is there."""
        purged = self._mends.purged_of(rows)
        known = {key: ours for key, ours in zip(purged, self.ours_at(purged), strict=True) if isinstance(ours, Held)}
        found = zip(known.items(), self._mends.find_all(list(known)), strict=True)
        lost = [Cell(*key, from_canonical(ours.body)) for (key, ours), raw in found if raw is None]
        self._flush(lost)
        for error in put_cells(self._store, lost):
            if error is not None:
                raise error

    def _flush(self, steps: Sequence[object]) -> None:
        """What Postgres could still lose must not be sent: a row whose commit was asynchronous, for instance."""
        if steps:
            self._legacy.database.run(lambda connection: connection.rows(FLUSH), Deadline(READ_SECONDS))


class Reverse:
    """Schemaless is the authority, Postgres the mirror."""

    def __init__(
        self,
        legacy: PostgresBackend,
        store: Datastore,
        epoch: int,
        job: str,
        unpark: Callable[[Collection[UUID]], object],
        *,
        may_mend_authority: bool,
    ) -> None:
        self._legacy = legacy.as_mirror(epoch).using(deadline=READ_SECONDS)
        self._layout: Layout = legacy.layout
        self._store = store.as_owner(epoch).using(deadline=READ_SECONDS)
        self._mends = self._store.mends.of_job(job)
        self._unpark = unpark
        self._may_mend_authority = may_mend_authority

    def theirs(self, rows: Sequence[ChildKey]) -> list[Held | None]:
        # A row that no cell can be made of is no cell; a put would say what is wrong with it.
        return [found if isinstance(found, Held) else None for found in _latest(self._legacy, rows)]

    def ours(self, rows: Sequence[ChildKey]) -> list[Version]:
        return list(map(_held, self._mends.latest(rows, self._layout.child_bits)))

    def theirs_at(self, keys: Sequence[CellKey]) -> list[Held | None]:
        return [found if isinstance(found, Held) else None for found in _at(self._legacy, keys)]

    def ours_at(self, keys: Sequence[CellKey]) -> list[Version]:
        return list(map(_held, self._mends.find_all(keys)))

    def powers(self, seen: Sequence[Pair]) -> list[Powers]:
        return [
            Powers(lift_target(self._layout, *pair), can_mend=False, may_mend_authority=self._may_mend_authority)
            for pair in seen
        ]

    def put(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        """Rows of the parent first."""
        outcomes: dict[CellKey, SchemalessError | None] = {}
        for step in sorted(steps, key=lambda step: step.key.column_name != self._layout.parent.name):
            try:
                self._legacy.put_cell(*step.key, _body(step))
                outcomes[step.key] = None
            except SchemalessError as error:
                outcomes[step.key] = error
        return [outcomes[step.key] for step in steps]

    def put_new(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        return self.put(steps)

    def bury(self, lost: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
        raise AssertionError("what Schemaless had stays in its log")

    def lift(self, lifts: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
        return [_outcome(lambda: self._lift_one(step, ours)) for step, ours in lifts]  # noqa: B023  # called at once

    def _lift_one(self, step: Step, ours: Held) -> None:
        self._store.put_cell(*step.key, from_canonical(ours.body), expect_latest=ours.ref_key)

    def mend(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        return _mend(self._mends, steps)

    def purge(self, extra: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
        raise AssertionError("no row of the company's is deleted by repair")

    def settle(self, columns: Collection[ColumnKey]) -> None:
        rows = {column.row_key for column in columns}
        _rebuild(self._mends, columns, self._mends.touched(rows))
        self._unpark(rows)


def _outcome(act: Callable[[], None]) -> SchemalessError | None:
    """What becomes of one: a conflict says that something moved; a server that does not answer is raised."""
    try:
        act()
    except (Conflict, Invalid) as error:
        return error
    return None


def lift_target(layout: Layout, column: ColumnKey, ours: Version, theirs: Held | None) -> int | None:
    """The lowest ref key above both that the authority's row can have; None: it can have none."""
    if not isinstance(ours, Held) or ours.body == TOMBSTONE or column.column_name == LEGACY_ID:
        return None
    highest = ours.ref_key if theirs is None else max(ours.ref_key, theirs.ref_key)
    mapped = layout.columns.get(column.column_name)
    if mapped is None or mapped.ref_key.kind is RefKeyKind.VERSION:
        return None if highest >= REF_KEY_MAX else highest + 1
    if mapped.ref_key.kind is RefKeyKind.FACT or mapped.split(highest)[0] != mapped.split(ours.ref_key)[0]:
        return None
    target = highest + 1
    return target if mapped.split(target)[0] == mapped.split(ours.ref_key)[0] else None


def bury_target(layout: Layout, column: ColumnKey, ours: Version, theirs: Held | None) -> int | None:
    """Where the tombstone of a row would stand of which the authority has nothing, or the tombstone of a row before it;
    None: it has something, or rows of the column get no tombstones.
    """
    if theirs is None or theirs.body == TOMBSTONE or isinstance(ours, Unknown):
        return None
    if ours == theirs or not theirs.is_sound:  # the second costs a decoding, and most have the first answer
        return None
    if column.column_name == LEGACY_ID:
        return theirs.ref_key if ours is None else None
    mapped = layout.columns.get(column.column_name)
    if mapped is None or mapped.on_delete is DeletePolicy.IGNORE or theirs.ref_key >= REF_KEY_MAX:
        return None
    number = mapped.split(theirs.ref_key)[0]
    is_other_child = (
        mapped.ref_key.kind is RefKeyKind.CHILD and ours is not None and (mapped.split(ours.ref_key)[0] != number)
    )
    if ours is not None and not is_other_child and not came_back(layout, column, ours, theirs):
        return None
    target = theirs.ref_key + 1
    return target if mapped.ref_key.kind is RefKeyKind.FACT or mapped.split(target)[0] == number else None


def came_back(layout: Layout, column: ColumnKey, ours: Version, theirs: Held | None) -> bool:
    """Whether the authority's tombstone is that of a row before the mirror's: only its log says that one came."""
    mapped = layout.columns.get(column.column_name)
    if mapped is None or mapped.ref_key.kind is RefKeyKind.FACT or theirs is None:
        return False
    if not isinstance(ours, Held) or ours.body != TOMBSTONE or ours.ref_key >= theirs.ref_key:
        return False
    return mapped.split(ours.ref_key)[0] == mapped.split(theirs.ref_key)[0]


def _buried(step: Step) -> CellKey:
    """What a tombstone stands right above."""
    return step.key._replace(ref_key=step.key.ref_key - 1)


def _not_buried(key: CellKey) -> NoSuchCell:
    return NoSuchCell(
        f"The row of {key} has a row, a tombstone or, of facts, its parent by now.",
        hint="Facts go with their parent alone: delete it, or insert the fact again.",
    )


def _mend(mends: Mends, steps: Sequence[Step]) -> list[SchemalessError | None]:
    found = zip(steps, mends.find_all([step.key for step in steps]), strict=True)
    wrong = {
        step.key: (raw, step.body)
        for step, raw in found
        if raw is not None and step.body is not None and raw.body != step.body
    }
    done = dict(zip(wrong, mends.mend_all(list(wrong.values())), strict=True))
    return [_unless(done.pop(step.key, False), step) for step in steps]


def _unless(is_done: bool, step: Step) -> NoSuchCell | None:
    return None if is_done else NoSuchCell(f"{step.key} is another cell by now.")


def _rebuild(mends: Mends, columns: Collection[ColumnKey], touched: Collection[UUID]) -> None:
    """The entries of rows that repair ever touched, after these columns."""
    names = defaultdict[UUID, set[str]](set)
    for column in columns:
        names[column.row_key].add(column.column_name)
    for row_key in touched:
        mends.rebuild(row_key, names[row_key])


def _at(store: PostgresBackend, keys: Sequence[CellKey]) -> list[Version]:
    """Many at once; one by one when one among them cannot be read, or is not known any more."""
    try:
        return [None if cell is None else _version(cell) for cell in store.get_cells(keys)]
    except (UnreadableRow, HistoryTruncated):
        return [_one(lambda key=key: store.get_cell(*key)) for key in keys]  # type: ignore[misc]  # bound at once


def _latest(store: PostgresBackend, rows: Sequence[ChildKey]) -> list[Version]:
    """Many at once; one by one when a row among them cannot be read."""
    try:
        return [None if cell is None else _version(cell) for cell in store.get_children_latest(rows)]
    except UnreadableRow:
        return [_one(lambda key=key: store.get_children_latest([key])[0]) for key in rows]  # type: ignore[misc]  # bound at once


def _one(read: Callable[[], Cell | None]) -> Version:
    try:
        cell = read()
    except (UnreadableRow, HistoryTruncated) as error:
        return Unknown(error.message)
    return None if cell is None else _version(cell)


def _version(cell: Cell) -> Held:
    return Held(cell.ref_key, canonical_bytes(cell.body))


def _held(raw: RawCell | None) -> Held | None:
    return None if raw is None else Held(raw.key.ref_key, raw.body)


def _cell(step: Step) -> Cell:
    return Cell(*step.key, _body(step))


def _body(step: Step) -> Json:
    assert step.body is not None
    return from_canonical(step.body)
