"""Changes of a row by its key, as UPDATE makes them: the later of two wins, field by field."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from schemaless_core.cell.answers import ANY
from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.errors import InvalidRequest
from schemaless_core.store import CellStore
from tripstore.rewritten.bodies import FoundBody, RewrittenStore, RowId, child_cell, row_key_of

#: A change that another writer overtakes is made again; so many in a row are no accident.
TRIES = 50


def change(
    store: CellStore,
    row_key: UUID | None,
    column_name: str,
    changes: Mapping[str, Json],
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
    changes: Mapping[str, Json],
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
    changes: Mapping[str, Json],
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


def change_found(
    store: CellStore, body: FoundBody, changes: Mapping[str, Json], *, keeps_null: Collection[str] = ()
) -> bool:
    """The same of a row that was found, however it has changed since: of it, only these fields are written.

    What has the value that was found is not written: an object of a model that gets the same again is not, either.
    """
    changes = {name: value for name, value in changes.items() if not _is_same(body, name, value, keeps_null)}
    row_key, column_name, number, bits = body.row_key, body.column_name, body.number, body.bits
    if bits is None or number is None:
        return change(store, row_key, column_name, changes, keeps_null=keeps_null)
    return _changed(store, lambda: child_cell(store, row_key, column_name, number, bits), changes, keeps_null, bits)


def _changed(
    store: CellStore,
    read: Callable[[], Cell | None],
    changes: Mapping[str, Json],
    keeps_null: Collection[str],
    bits: int | None = None,
) -> bool:
    overtaken: CellConflict | None = None
    for _try in range(TRIES):
        cell = read()
        if cell is None or cell.body is None:
            return False
        try:
            return _put_next(store, cell, changes, keeps_null, bits)
        except CellConflict as conflict:
            overtaken = conflict
    assert overtaken is not None  # there is at least one try
    raise overtaken


def _is_same(body: FoundBody, name: str, value: Json, keeps_null: Collection[str]) -> bool:
    """Whether a field was found to have this value, NULL included."""
    if value is None and name not in keeps_null:
        return name not in body
    return name in body and canonical_bytes({name: value}) == canonical_bytes({name: body[name]})


def _put_next(
    store: CellStore, cell: Cell, changes: Mapping[str, Json], keeps_null: Collection[str], bits: int | None
) -> bool:
    """Put the next version. Another writer takes the same ref key: of two, one meets a conflict."""
    body = dict(cell.body) if isinstance(cell.body, dict) else {}
    for field, value in changes.items():
        if value is None and field not in keeps_null:
            body.pop(field, None)
        else:
            body[field] = value
    if canonical_bytes(body) == canonical_bytes(cell.body):
        return True  # the same again is no new version
    if bits is not None and cell.ref_key >> bits != (cell.ref_key + 1) >> bits:
        raise InvalidRequest("This child row has had all of its versions.", hint="Put it under a new number.")
    # Versions of other children may lie above this one's: theirs is the column's latest.
    expected = cell.ref_key if bits is None else ANY
    store.put_cell(cell.row_key, cell.column_name, cell.ref_key + 1, body, expect_latest=expected)
    return True
