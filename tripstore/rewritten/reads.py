"""Rows by key and by an index. Queries are verified: what was put is found, as SQL finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any
from uuid import UUID

from sqlalchemy.exc import MultipleResultsFound, NoResultFound

from schemaless_core.cell.answers import Condition, Scalar
from schemaless_core.cell.canonical import Json
from schemaless_core.errors import InvalidRequest
from tripstore.rewritten.bodies import FoundBody, RewrittenStore, RowId, body_of, child_cell, row_key_of
from tripstore.rewritten.lookups import NO_ROW

PAGE = 1000


def latest(store: RewrittenStore, row_key: UUID | None, column_name: str) -> FoundBody | None:
    """The row as it is now, or None."""
    body = None if row_key is None else body_of(store.get_cell_latest(row_key, column_name))
    if body is not None:
        body.number = store.legacy_id(body.row_key)
    return body


def latest_of_id(store: RewrittenStore, number: RowId, column_name: str) -> FoundBody | None:
    """The same by the legacy id. No row has the id None."""
    row_key = row_key_of(store, number)
    body = None if row_key is None else body_of(store.get_cell_latest(row_key, column_name))
    if body is not None and number is not None:
        body.number = int(number)
    return body


def only_if(body: FoundBody | None, values: Mapping[str, Json]) -> FoundBody | None:
    """The row, if it has these values as well, or None."""
    for field, value in values.items():
        if value is None:
            raise InvalidRequest(
                f"No row is found by {field} that is None.", hint="Ask whether it has a value instead."
            )
    return body if body is not None and all(body.get(field) == value for field, value in values.items()) else None


def value_of(body: FoundBody | None, field: str) -> Any:
    """One value of a row; None if it has none, or is not there."""
    return None if body is None else body.get(field)


def tuple_of(body: FoundBody | None, values: Callable[[FoundBody], tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """Values of a row as a cursor fetches them, or None."""
    return None if body is None else values(body)


def number_of(body: FoundBody | None) -> int | None:
    """The legacy id of a row, or the number of a child row; None if it is not there."""
    return None if body is None else body.number


def required(body: FoundBody | None) -> FoundBody:
    """The row, or SQLAlchemy's error that there is none."""
    if body is None:
        raise NoResultFound("No row was found when one was required")
    return body


def or_404(body: FoundBody | None) -> FoundBody:
    """The row, or the error of Flask that there is no such page."""
    if body is None:
        # An application that asks so has Flask; nothing of ours does.
        raise import_module("werkzeug.exceptions").NotFound
    return body


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
    known: set[UUID] = set()  # a row that changes while pages are read may stand on two
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
            if cell.row_key not in known and (body := body_of(cell)) is not None:
                known.add(cell.row_key)
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


def found_one(
    store: RewrittenStore,
    index: str,
    value: Scalar,
    where: Sequence[Condition] = (),
    *,
    column_name: str,
    order_by: str | None = None,
    descending: bool = False,
) -> FoundBody | None:
    """The only one of these rows, or None; SQLAlchemy's error where there are more."""
    every = found(
        store, index, value, where, column_name=column_name, order_by=order_by, descending=descending, limit=2
    )
    if len(every) > 1:
        raise MultipleResultsFound("Multiple rows were found when one or none was required")
    return every[0] if every else None


def child_of_id(
    store: RewrittenStore, parent: RowId, column_name: str, number: RowId, *, bits: int
) -> FoundBody | None:
    """The child row of this number below the parent of this legacy id, or None."""
    row_key = row_key_of(store, parent)
    if row_key is None or number is None:
        return None
    body = body_of(child_cell(store, row_key, column_name, int(number), bits))
    if body is not None:
        body.number, body.bits = int(number), bits
    return body
