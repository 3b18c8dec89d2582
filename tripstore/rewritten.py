"""What code calls after `tripstore audit rewrite`: rows of mapped tables, as bodies of cells, with the meaning that SQL had.

A row that is not there is None, whether it never was or ends in a tombstone. Queries are verified: what was put is found.
It knows no layout; each call says the column of cells and, of child rows, how many bits of a ref key are their version.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import text

from schemaless_core.cell.answers import ANY, Condition, Scalar
from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.errors import InvalidRequest, shown
from schemaless_core.store import CellStore
from tripstore.backends.postgres.layout.layout import quoted

#: A change that another writer overtakes is made again; so many in a row are no accident.
TRIES = 50
PAGE = 1000


class RewrittenStore(CellStore, Protocol):
    """A store that knows legacy ids: `TripStore`."""

    def resolve_id(self, number: int) -> UUID | None: ...

    def legacy_id(self, row_key: UUID) -> int | None: ...

    def legacy_ids(self, row_keys: Iterable[UUID]) -> dict[UUID, int]: ...


class FoundBody(dict[str, Any]):
    """The body of a row that is there. It is true even when it is empty, as an object of a model is."""

    def __init__(
        self, cell: Cell, body: Mapping[str, Json], number: int | None = None, bits: int | None = None
    ) -> None:
        super().__init__(body)
        self.row_key = cell.row_key
        self.column_name = cell.column_name
        self.number = number  #: The legacy id; of a child row, its number.
        self.bits = bits  #: Of a child row.

    def __bool__(self) -> bool:
        return True


# ------------------------------------------------------------------------------------------------------- reads


def latest(store: RewrittenStore, row_key: UUID | None, column_name: str) -> FoundBody | None:
    """The row as it is now, or None."""
    body = None if row_key is None else _found(store.get_cell_latest(row_key, column_name))
    if body is not None:
        body.number = store.legacy_id(body.row_key)
    return body


def latest_of_id(store: RewrittenStore, number: int | None, column_name: str) -> FoundBody | None:
    """The same by the legacy id. No row has the id None."""
    row_key = _row_key(store, number)
    body = None if row_key is None else _found(store.get_cell_latest(row_key, column_name))
    if body is not None:
        body.number = number
    return body


def value_of(body: FoundBody | None, field: str) -> Any:
    """One value of a row; None if it has none, or is not there."""
    return None if body is None else body.get(field)


def found(
    store: RewrittenStore,
    index: str,
    value: Scalar,
    where: Sequence[Condition] = (),
    *,
    column_name: str,
    order_by: str | None = None,
    descending: bool = False,
    limit: int | None = None,
) -> list[FoundBody]:
    """All rows that a query finds, or the first `limit`, as they are now."""
    bodies: list[FoundBody] = []
    if value is NO_ROW:
        return bodies
    cursor = None
    while limit is None or len(bodies) < limit:
        page = store.query_index(
            index,
            value,
            where,
            columns=[column_name],
            order_by=order_by,
            descending=descending,
            limit=PAGE if limit is None else min(PAGE, limit - len(bodies)),
            cursor=cursor,
            consistency="verified",
        )
        cells = [entry.cells[column_name] for entry in page.entries if entry.cells and column_name in entry.cells]
        numbers = store.legacy_ids([cell.row_key for cell in cells])
        for cell in cells:
            if (body := _found(cell)) is not None:
                body.number = numbers.get(cell.row_key)
                bodies.append(body)
        cursor = page.cursor
        if cursor is None:
            break
    return bodies


def found_first(
    store: RewrittenStore,
    index: str,
    value: Scalar,
    where: Sequence[Condition] = (),
    *,
    column_name: str,
    order_by: str | None = None,
    descending: bool = False,
) -> FoundBody | None:
    """The first of these rows, or None."""
    every = found(
        store, index, value, where, column_name=column_name, order_by=order_by, descending=descending, limit=1
    )
    return every[0] if every else None


def child_of_id(
    store: RewrittenStore, parent: int | None, column_name: str, number: int | None, *, bits: int
) -> FoundBody | None:
    """The child row of this number below the parent of this legacy id, or None."""
    row_key = _row_key(store, parent)
    if row_key is None or number is None:
        return None
    body = _found(_child(store, row_key, column_name, number, bits))
    if body is not None:
        body.number, body.bits = number, bits
    return body


#: The value of a query that finds nothing: a key that no row of another table has.
NO_ROW: Any = object()


def looked_up(handle: Any, table: str, key: str, value: str, number: int | None, *, or_else: Any = None) -> Any:
    """The UUID of a row of another table, which stays in Postgres, by its key; a pair of them never changes.

    `handle` is a cursor, or a session or connection of SQLAlchemy. Of a key that is not there, `or_else`, or an error.
    """
    if number is None:
        return or_else
    names = ", ".join(map(quoted, table.split("."))).replace(", ", ".")
    statement = f"SELECT {quoted(value)} FROM {names} WHERE {quoted(key)} = "
    if hasattr(handle, "fetchone"):
        handle.execute(statement + "%s", (number,))
        row = handle.fetchone()
    else:
        row = handle.execute(text(statement + ":number"), {"number": number}).first()
    if row is None and or_else is None:
        raise InvalidRequest(f"No row of {table} has {key} {shown(number)}.", hint="A foreign key would refuse it.")
    return or_else if row is None else UUID(str(row[0]))


# ------------------------------------------------------------------------------------------------------ writes


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
    number: int | None,
    column_name: str,
    changes: Mapping[str, Json],
    *,
    keeps_null: Collection[str] = (),
) -> bool:
    """The same by the legacy id."""
    return change(store, _row_key(store, number), column_name, changes, keeps_null=keeps_null)


def change_child_of_id(
    store: RewrittenStore,
    parent: int | None,
    column_name: str,
    number: int | None,
    changes: Mapping[str, Json],
    *,
    bits: int,
    keeps_null: Collection[str] = (),
) -> bool:
    """The same of the child row of this number below the parent of this legacy id."""
    row_key = _row_key(store, parent)
    if row_key is None or number is None:
        return False
    return _changed(store, lambda: _child(store, row_key, column_name, number, bits), changes, keeps_null, bits)


def change_found(
    store: CellStore, body: FoundBody, changes: Mapping[str, Json], *, keeps_null: Collection[str] = ()
) -> bool:
    """The same of a row that was found, however it has changed since: of it, only these fields are written."""
    row_key, column_name, number, bits = body.row_key, body.column_name, body.number, body.bits
    if bits is None or number is None:
        return change(store, row_key, column_name, changes, keeps_null=keeps_null)
    return _changed(store, lambda: _child(store, row_key, column_name, number, bits), changes, keeps_null, bits)


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


# ------------------------------------------------------------------------------------------------------ values


def as_decimal(text: Any) -> Decimal | None:
    return None if text is None else Decimal(text)


def as_datetime(text: Any) -> datetime | None:
    """Aware, in UTC. Times beyond Python's years are refused, as the driver refuses them."""
    return None if text is None else datetime.fromisoformat(text)


def as_date(text: Any) -> date | None:
    return None if text is None else date.fromisoformat(text)


def as_uuid(text: Any) -> UUID | None:
    return None if text is None else UUID(text)


def as_bytes(text: Any) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


def decimal_text(value: Decimal | int | None, scale: int) -> str | None:
    """As a column of this scale keeps it: rounded half away from zero, and never minus zero."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise InvalidRequest(f"{shown(value)} is no decimal number.", hint="Pass a Decimal or an int.")
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
    return f"{abs(rounded) if rounded == 0 else rounded:f}"


def datetime_text(value: datetime | None) -> str | None:
    """In UTC, with microseconds. A time without zone means another moment in each session, so it is refused."""
    if value is None:
        return None
    if value.tzinfo is None:
        raise InvalidRequest(f"{shown(value)} has no time zone.", hint="Say which: value.replace(tzinfo=UTC).")
    moment = value.astimezone(UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='microseconds')}Z"


def date_text(value: date | None) -> str | None:
    return None if value is None else value.isoformat()


def uuid_text(value: UUID | str | None) -> str | None:
    return None if value is None else str(value)


def bytes_text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _found(cell: Cell | None) -> FoundBody | None:
    return FoundBody(cell, cell.body) if cell is not None and isinstance(cell.body, dict) else None


def _row_key(store: RewrittenStore, number: int | None) -> UUID | None:
    return None if number is None else store.resolve_id(number)


def _child(store: CellStore, row_key: UUID, column_name: str, number: int, bits: int) -> Cell | None:
    """The latest version of a child row. Versions of a number lie side by side, so it is the one below the next number."""
    for cell in store.get_history(row_key, column_name, before=(number + 1) << bits, limit=1):
        return cell if cell.ref_key >> bits == number else None
    return None
