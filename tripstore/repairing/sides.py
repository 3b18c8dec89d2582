"""`Sides`: authority and mirror at one epoch, as repair sees them: what each holds, and what can be done about it.

The mirror is always read before the authority: what it holds rightly the authority then knows. Whatever is changed
carries the epoch; a store that is not the authority's mirror any more refuses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar
from uuid import UUID

from schemaless_core.canonical import Json, canonical_bytes, from_canonical
from schemaless_core.cell import Cell, CellKey, ColumnKey
from schemaless_core.children import NO_CHILDREN, ChildKey
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import Conflict, Invalid, SchemalessError
from schemaless_core.mends import Mends, RawCell
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.errors import HistoryTruncated, UnreadableRow
from tripstore.backends.postgres.layout.layout import LEGACY_ID, DeletePolicy, Layout, RefKeyKind
from tripstore.backends.postgres.wire.flush import FLUSH
from tripstore.backends.postgres.wire.translation import LockTimeout
from tripstore.errors import TripstoreError
from tripstore.repairing.holes import Holes, put_cells
from validation.repair import Held, Powers, Step, Unknown, Version

K = TypeVar("K", ColumnKey, CellKey)

READ_SECONDS = 20.0
#: Rows whose locks one transaction holds: services wait for it.
LIFTS_PER_COMMIT = 100
TOMBSTONE = b"null"
REF_KEY_MAX = 2**63 - 1


class NoSuchCell(Conflict, TripstoreError):
    """What was to be repaired is another by now; it is looked at again."""


class Sides(Protocol):
    """The verbs. A conflict says that something moved; what a store refuses for good it raises."""

    def theirs(self, rows: Sequence[ChildKey]) -> list[Held | None]:
        """The mirror's latest cells."""
        ...

    def ours(self, rows: Sequence[ChildKey]) -> list[Version]:
        """The authority's latest cells."""
        ...

    def theirs_at(self, key: CellKey) -> Held | None: ...

    def ours_at(self, key: CellKey) -> Version: ...

    def powers(self, column: ColumnKey, ours: Version, theirs: Held | None) -> Powers: ...

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

    def mend(self, step: Step) -> None: ...

    def purge(self, step: Step, theirs: Held) -> None: ...

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

    def theirs_at(self, key: CellKey) -> Held | None:
        return _held(self._mends.find(key))

    def ours_at(self, key: CellKey) -> Version:
        return _one(lambda: self._legacy.get_cell(*key))

    def powers(self, column: ColumnKey, ours: Version, theirs: Held | None) -> Powers:
        mapped = self._layout.columns.get(column.column_name)
        forgets = mapped is not None and mapped.on_delete is DeletePolicy.IGNORE
        bury_at = bury_target(self._layout, column, ours, self._last(column, ours, theirs))
        was_row = bury_at is not None and self._was_row(column)
        target = lift_target(self._layout, column, ours, theirs)
        return Powers(target, can_mend=True, forgets=forgets, bury_at=bury_at, was_row=was_row)

    def _last(self, column: ColumnKey, ours: Version, theirs: Held | None) -> Held | None:
        """What the tombstone of a lost row would stand above: of a fact the highest of its siblings."""
        mapped = self._layout.columns.get(column.column_name)
        if ours is not None or theirs is None or mapped is None or mapped.ref_key.kind is not RefKeyKind.FACT:
            return theirs
        return _held(self._mends.latest([ChildKey(*column)], NO_CHILDREN)[0])

    def _was_row(self, column: ColumnKey) -> bool:
        """Whether the mirror knows the row by its legacy id, or the legacy id by its row."""
        other = self._layout.parent.name if column.column_name == LEGACY_ID else LEGACY_ID
        return self._mends.latest([ChildKey(column.row_key, other)], NO_CHILDREN) != [None]

    def put(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        """Where the log of a shard has holes, each cell that is missing closes one, one by one."""
        self._flush(steps)
        return self._holes.put(self._mends, self._store, [_cell(step) for step in steps])

    def put_new(self, steps: Sequence[Step]) -> list[SchemalessError | None]:
        self._flush(steps)
        return put_cells(self._store, [_cell(step) for step in steps])

    def bury(self, lost: Sequence[tuple[Step, Held]]) -> list[SchemalessError | None]:
        """Column by column; with a row of the parent its legacy id."""
        of_column = defaultdict[str, dict[CellKey, None]](dict)
        for step, _theirs in lost:
            of_column[step.key.column_name][_buried(step)] = None  # of siblings that are facts once
        self._keep_pairs(lost)
        buried = {
            key for name, keys in of_column.items() if name != LEGACY_ID for key in self._legacy.bury(name, list(keys))
        }
        return [
            None
            if step.key.column_name == LEGACY_ID or _buried(step) in buried
            else NoSuchCell(
                f"The row of {step.key} has a row, a tombstone or, of facts, its parent by now.",
                hint="Facts go with their parent alone: delete it, or insert the fact again.",
            )
            for step, _theirs in lost
        ]

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
        """Rows that were lifted together. Where somebody holds one of them, its whole batch is left for later."""
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

    def mend(self, step: Step) -> None:
        self._flush([step])
        _mend(self._mends, step)

    def purge(self, step: Step, theirs: Held) -> None:
        raw = self._mends.find(step.key)
        if raw is None or raw.body != theirs.body or not self._mends.purge(raw):
            raise NoSuchCell(f"{step.key} is another cell by now.")

    def settle(self, columns: Collection[ColumnKey]) -> None:
        rows = {column.row_key for column in columns}
        for row_key in self._mends.touched(rows):
            self._put_back(row_key)
            names = {column.column_name for column in columns if column.row_key == row_key}
            self._mends.rebuild(row_key, names)
        self._unpark(rows)

    def _put_back(self, row_key: UUID) -> None:
        """What was purged, and was carried just before that: the mirror had said that it is there."""
        for key in dict.fromkeys(self._mends.purged_of(row_key)):
            ours = self.ours_at(key)
            if isinstance(ours, Held) and self._mends.find(key) is None:
                self._flush([key])
                self._store.put_cell(*key, from_canonical(ours.body))

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

    def theirs_at(self, key: CellKey) -> Held | None:
        found = _one(lambda: self._legacy.get_cell(*key))
        return found if isinstance(found, Held) else None

    def ours_at(self, key: CellKey) -> Version:
        return _held(self._mends.find(key))

    def powers(self, column: ColumnKey, ours: Version, theirs: Held | None) -> Powers:
        target = lift_target(self._layout, column, ours, theirs)
        return Powers(target, can_mend=False, may_mend_authority=self._may_mend_authority)

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

    def mend(self, step: Step) -> None:
        _mend(self._mends, step)

    def purge(self, step: Step, theirs: Held) -> None:
        raise AssertionError("no row of the company's is deleted by repair")

    def settle(self, columns: Collection[ColumnKey]) -> None:
        rows = {column.row_key for column in columns}
        for row_key in self._mends.touched(rows):
            self._mends.rebuild(row_key, {column.column_name for column in columns if column.row_key == row_key})
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
    """Where the tombstone of a row would stand of which the authority has nothing; None: it has something, or rows of
    the column get no tombstones.
    """
    if theirs is None or theirs.body == TOMBSTONE or not theirs.is_sound or isinstance(ours, Unknown):
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
    if ours is not None and not is_other_child:
        return None
    target = theirs.ref_key + 1
    return target if mapped.ref_key.kind is RefKeyKind.FACT or mapped.split(target)[0] == number else None


def _buried(step: Step) -> CellKey:
    """What a tombstone stands right above."""
    return step.key._replace(ref_key=step.key.ref_key - 1)


def _mend(mends: Mends, step: Step) -> None:
    raw = mends.find(step.key)
    assert step.body is not None
    if raw is None or raw.body == step.body or not mends.mend(raw, step.body):
        raise NoSuchCell(f"{step.key} is another cell by now.")


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
