"""Child rows of a row that was found: all of them, as a relationship has them, and new ones, as INSERT makes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemaless_core.cell.answers import PutResult, PutStatus
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.errors import Conflict, InvalidRequest, shown
from schemaless_core.store import CellStore
from tripstore.rewritten.bodies import FoundBody, RewrittenStore, RowId, child_cell, row_key_of
from tripstore.rewritten.changes import TRIES, put_next
from tripstore.rewritten.values import int_value

PAGE = 1000

#: By what a row calls it: the field of a body, and what makes a body's value of the row's.
NewFields = Mapping[str, tuple[str, Callable[[Any], Json]]]


def children_found(store: CellStore, parent: FoundBody, column_name: str, *, bits: int) -> list[FoundBody]:
    """The child rows of a row that was found, in the order of their numbers.

    They are read once, as an object of a model reads those of a relationship once.
    """
    if column_name not in parent.children:
        parent.children[column_name] = _children(store, parent.row_key, column_name, bits)
    return parent.children[column_name]


def _children(store: CellStore, row_key: UUID, column_name: str, bits: int) -> list[FoundBody]:
    found: list[FoundBody] = []
    before: int | None = None
    while page := store.get_history(row_key, column_name, before=before, limit=PAGE):
        for cell in page:
            if before is not None and cell.ref_key >= before:
                continue  # an older version of the child that was seen last
            before = cell.ref_key >> bits << bits
            if isinstance(cell.body, dict):
                found.append(FoundBody(cell, cell.body, cell.ref_key >> bits, bits))
    return found[::-1]


def last_number(
    store: RewrittenStore, parent: RowId, column_name: str, *, bits: int, default: int | None = None
) -> int | None:
    """`max(n)` of the child rows below the parent of this legacy id; where there is none, the default."""
    row_key, before = row_key_of(store, parent), None
    while row_key is not None and (page := store.get_history(row_key, column_name, before=before, limit=PAGE)):
        for cell in page:
            if before is not None and cell.ref_key >= before:
                continue  # an older version of a child that is gone
            if cell.body is not None:
                return cell.ref_key >> bits
            if not bits:
                return default  # a tombstone ends all facts below it
            before = cell.ref_key >> bits << bits
    return default


def insert_child(
    store: CellStore,
    parent: FoundBody,
    column_name: str,
    row: Mapping[str, Any],
    number: str,
    fields: NewFields,
    *,
    bits: int,
    number_bits: int = 64,
    required: Collection[str] = (),
    keeps_null: Collection[str] = (),
) -> None:
    """Put a new child row under the number that it has, as INSERT does; `Conflict` where one has that number.

    `row` has values by column, `fields` says what each becomes in the body. A number whose row is gone begins again
    above its tombstone.
    """
    _check_row(column_name, row, {*fields, number}, {*required, number})
    new = _NewChild(
        parent.row_key, column_name, _number(row[number], number_bits), _body(row, fields, keeps_null), bits
    )
    _insert(store, new)


def insert_child_of_id(
    store: RewrittenStore,
    column_name: str,
    row: Mapping[str, Any],
    key: tuple[str, str],
    fields: NewFields,
    *,
    bits: int,
    parent_column: str,
    number_bits: int = 64,
    required: Collection[str] = (),
    keeps_null: Collection[str] = (),
    unless_there: bool = False,
    changes: Collection[str] | None = None,
) -> bool:
    """The same below the parent of a legacy id, which the row has, as `key` says; say whether anything was put.

    `unless_there`: a row that is there stays, as ON CONFLICT DO NOTHING has it. `changes`: a row that is there gets
    these fields of the new one, as ON CONFLICT DO UPDATE has it.
    """
    _check_row(column_name, row, {*fields, *key}, {*required, *key})
    parent, number = row[key[0]], _number(row[key[1]], number_bits)
    body = _body(row, fields, keeps_null)
    row_key = row_key_of(store, parent)
    cell = None if row_key is None else store.get_cell_latest(row_key, parent_column)
    if row_key is None or cell is None or cell.body is None:
        raise Conflict(f"No row has the id {shown(parent)}.", hint="A foreign key would refuse it.")
    new = _NewChild(row_key, column_name, number, body, bits)
    if not unless_there and changes is None:
        _insert(store, new)
        return True
    return _insert_or_change(store, new, changes, keeps_null)


@dataclass(frozen=True, slots=True)
class _NewChild:
    row_key: UUID
    column_name: str
    number: int
    body: dict[str, Json]
    bits: int

    def taken(self) -> Conflict:
        return Conflict(
            f"({self.row_key}, {self.column_name}) has a row of the number {self.number}, of this writer or another.",
            hint="Read the row; if it is not yours, take the next number.",
        )

    def known(self, store: CellStore) -> Cell | None:
        """The latest version of the child of this number, its tombstone included."""
        return child_cell(store, self.row_key, self.column_name, self.number, self.bits)

    def put(self, store: CellStore, known: Cell | None) -> PutResult:
        """Another writer that takes the number makes the same ref key: of two, one meets a conflict."""
        ref_key = self.number << self.bits if known is None else known.ref_key + 1
        if ref_key >> self.bits != self.number:
            raise InvalidRequest("This child row has had all of its versions.", hint="Put it under a new number.")
        if not self.bits:
            self._check_facts(store)
        return store.put_cell(self.row_key, self.column_name, ref_key, self.body)

    def _check_facts(self, store: CellStore) -> None:
        """A tombstone ends all facts below it: a new one there would never be seen."""
        before: int | None = None
        while page := store.get_history(self.row_key, self.column_name, before=before, limit=PAGE):
            for cell in page:
                if cell.ref_key <= self.number:
                    return
                if cell.body is None:
                    raise InvalidRequest(f"Rows up to the number {cell.ref_key} are gone.", hint="Count on from there.")
            before = page[-1].ref_key


def _insert(store: CellStore, new: _NewChild) -> None:
    known = new.known(store)
    if known is not None and known.body is not None:
        raise new.taken()
    if new.put(store, known).status is PutStatus.EXISTS:
        raise new.taken()


def _insert_or_change(
    store: CellStore, new: _NewChild, changes: Collection[str] | None, keeps_null: Collection[str]
) -> bool:
    """What another writer overtakes is done again to what that one left, as Postgres does it."""
    overtaken: CellConflict | None = None
    for _try in range(TRIES):
        known = new.known(store)
        is_there = known is not None and known.body is not None
        if is_there and changes is None:
            return False
        try:
            if known is not None and is_there and changes is not None:
                said = {name: new.body.get(name) for name in changes}
                return put_next(store, known, said, keeps_null, new.bits)
            return new.put(store, known).status is not PutStatus.EXISTS or changes is not None
        except CellConflict as conflict:
            overtaken = conflict
    assert overtaken is not None  # there is at least one try
    raise overtaken


def _check_row(column_name: str, row: Mapping[str, Any], known: Collection[str], required: Collection[str]) -> None:
    missing = sorted(name for name in required if row.get(name) is None)
    unknown = sorted(row.keys() - known)
    if missing or unknown:
        raise InvalidRequest(
            f"A new row of {column_name} lacks {missing}, and has {unknown}, which no field holds.",
            hint="Give it each column that may not be NULL, and those of the layout alone.",
        )


def _body(row: Mapping[str, Any], fields: NewFields, keeps_null: Collection[str]) -> dict[str, Json]:
    values = {field: made(row[name]) for name, (field, made) in fields.items() if name in row}
    present = {name: value for name, value in values.items() if value is not None}
    return {**dict.fromkeys(keeps_null), **present}


def _number(said: int | None, bits: int) -> int:
    number = int_value(said, bits)
    if number is None or number < 0:
        raise InvalidRequest(f"{shown(said)} is no number of a child row.", hint="Count from 0 or 1.")
    return number
