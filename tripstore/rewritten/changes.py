"""Changes of a row by its key, as UPDATE makes them: the later of two wins, field by field; and deletions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from schemaless_core.cell.answers import ANY, PutStatus
from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.errors import Conflict, InvalidRequest
from schemaless_core.store import CellStore
from tripstore.rewritten.bodies import FoundBody, RewrittenStore, RowId, child_cell, row_key_of
from tripstore.rewritten.computed import ComputedValue

#: A change that another writer overtakes is made again; so many in a row are no accident.
TRIES = 50

#: By field; what is computed is computed of the row that the change meets.
Changes = Mapping[str, Json | ComputedValue]


def change(
    store: CellStore,
    row_key: UUID | None,
    column_name: str,
    changes: Changes,
    *,
    keeps_null: Collection[str] = (),
) -> bool:
    """Change these fields of a row, as UPDATE would; say whether there is one. None is NULL: the field goes.

    A change that another writer overtakes is made to what that one left: the later of two wins, field by field.
    """
    if row_key is None:
        return False
    return _changed(store, lambda: store.get_cell_latest(row_key, column_name), changes, keeps_null)


def change_of_id(
    store: RewrittenStore,
    number: RowId,
    column_name: str,
    changes: Changes,
    *,
    keeps_null: Collection[str] = (),
) -> bool:
    """The same by the legacy id."""
    return change(store, row_key_of(store, number), column_name, changes, keeps_null=keeps_null)


def change_child_of_id(
    store: RewrittenStore,
    parent: RowId,
    column_name: str,
    number: RowId,
    changes: Changes,
    *,
    bits: int,
    keeps_null: Collection[str] = (),
) -> bool:
    """The same of the child row of this number below the parent of this legacy id."""
    row_key = row_key_of(store, parent)
    if row_key is None or number is None:
        return False
    whole = int(number)
    return _changed(store, lambda: child_cell(store, row_key, column_name, whole, bits), changes, keeps_null, bits)


def delete_child_of_id(store: RewrittenStore, parent: RowId, column_name: str, number: RowId, *, bits: int) -> bool:
    """Put a tombstone over the child row of this number; say whether there was one."""
    row_key = row_key_of(store, parent)
    if row_key is None or number is None:
        return False
    whole = int(number)
    return _changed(store, lambda: child_cell(store, row_key, column_name, whole, bits), None, (), bits)


def delete_found(store: CellStore, body: FoundBody) -> bool:
    """The same of a child row that was found, however it has changed since."""
    row_key, column_name, number, bits = body.row_key, body.column_name, body.number, body.bits
    if bits is None or number is None:
        raise InvalidRequest(f"{column_name} holds no child rows.", hint="Put a tombstone: store.put_cell(…, None).")
    return _changed(store, lambda: child_cell(store, row_key, column_name, number, bits), None, (), bits)


def change_found(
    store: CellStore,
    body: FoundBody,
    changes: Mapping[str, Json],
    *,
    keeps_null: Collection[str] = (),
    unless_changed: bool = False,
) -> bool:
    """The same of a row that was found, however it has changed since: of it, only these fields are written.

    What has the value that was found is not written: an object of a model that gets the same again is not, either.
    `unless_changed`: of a row that has changed since, it raises `CellConflict`, as REPEATABLE READ ends in 40001.
    """
    changes = {name: value for name, value in changes.items() if not _is_same(body, name, value, keeps_null)}
    if unless_changed:
        found = Cell(body.row_key, body.column_name, body.ref_key, dict(body))
        return not changes or put_next(store, found, changes, keeps_null, body.bits, is_computed=True)
    row_key, column_name, number, bits = body.row_key, body.column_name, body.number, body.bits
    if bits is None or number is None:
        return change(store, row_key, column_name, changes, keeps_null=keeps_null)
    return _changed(store, lambda: child_cell(store, row_key, column_name, number, bits), changes, keeps_null, bits)


def _changed(
    store: CellStore,
    read: Callable[[], Cell | None],
    changes: Changes | None,
    keeps_null: Collection[str],
    bits: int | None = None,
) -> bool:
    """Put the next version; None is a tombstone."""
    overtaken: CellConflict | None = None
    for _try in range(TRIES):
        cell = read()
        if cell is None or cell.body is None:
            return False
        try:
            return put_next(store, cell, changes, keeps_null, bits)
        except CellConflict as conflict:
            overtaken = conflict
    assert overtaken is not None  # there is at least one try
    raise overtaken


def _is_same(body: FoundBody, name: str, value: Json, keeps_null: Collection[str]) -> bool:
    """Whether a field was found to have this value, NULL included."""
    if value is None and name not in keeps_null:
        return name not in body
    return name in body and canonical_bytes({name: value}) == canonical_bytes({name: body[name]})


def put_next(
    store: CellStore,
    cell: Cell,
    changes: Changes | None,
    keeps_null: Collection[str],
    bits: int | None,
    *,
    is_computed: bool = False,
) -> bool:
    """Put the next version. Another writer takes the same ref key: of two, one meets a conflict."""
    body = None if changes is None else _next_body(cell, changes, keeps_null)
    if body is not None and canonical_bytes(body) == canonical_bytes(cell.body):
        return True  # the same again is no new version
    if bits is not None and cell.ref_key >> bits != (cell.ref_key + 1) >> bits:
        raise InvalidRequest("This child row has had all of its versions.", hint="Put it under a new number.")
    # Versions of other children may lie above this one's: theirs is the column's latest.
    expected = cell.ref_key if bits is None else ANY
    put = store.put_cell(cell.row_key, cell.column_name, cell.ref_key + 1, body, expect_latest=expected)
    is_computed = is_computed or any(isinstance(each, ComputedValue) for each in (changes or {}).values())
    if is_computed and put.status is PutStatus.EXISTS:
        # Two that add one to the same row make the same version: one of them would be lost.
        raise Conflict(
            f"({cell.row_key}, {cell.column_name}) has this change already: by another writer, or by this one.",
            hint="Read the row, and change it again if the change is not yours.",
        )
    return True


def _next_body(cell: Cell, changes: Changes, keeps_null: Collection[str]) -> dict[str, Json]:
    """Values are computed of the row as it was, as UPDATE does."""
    before = dict(cell.body) if isinstance(cell.body, dict) else {}
    body = dict(before)
    for field, said in changes.items():
        value = said.of(before) if isinstance(said, ComputedValue) else said
        if value is None and field not in keeps_null:
            body.pop(field, None)
        else:
            body[field] = value
    return body
