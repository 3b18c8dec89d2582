"""Checks of what a call asks for, shared by every store: limits, shards, locations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from schemaless_core.cell.answers import Location, Position
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey, check_column_name, check_key, check_row_key
from schemaless_core.errors import InvalidCell, InvalidRequest, shown

T = TypeVar("T")

LIMIT_MAX = 100_000


def check_limit(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(
            f"The limit {shown(limit)} is no whole number from 1 to {LIMIT_MAX}.", hint="Ask for fewer."
        )


def check_shard(shard: int, shards: int) -> None:
    if type(shard) is not int or not 0 <= shard < shards:
        raise InvalidRequest(f"There is no shard {shown(shard)}.", hint=f"Shards are 0 to {shards - 1}.")


def check_location(location: Location, store: str) -> None:
    """Refuse whatever is no place in this store's log."""
    if isinstance(location, Position):
        if not (_is_added_id(location.epoch) and _is_added_id(location.added_id)):
            raise InvalidRequest(f"{location!r} is no position.", hint="Pass one that a page of the log gave.")
        if location.store != store:
            raise InvalidRequest(
                f"The position belongs to {location.store!r}, not to {store!r}.",
                hint="Start from location 0 or a time of this store.",
            )
    elif isinstance(location, datetime):
        if location.tzinfo is None:
            raise InvalidRequest(
                f"The time {location} has no time zone.", hint="Pass an aware datetime, datetime.now(UTC)."
            )
    elif not _is_added_id(location):
        raise InvalidRequest(
            f"{shown(location)} is no location.", hint="Pass an added id from 0, an aware datetime or a Position."
        )


def _is_added_id(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def listed_names(columns: Iterable[str] | None) -> list[str] | None:
    """The names of columns, checked; None: all. An iterator is read once, here, before anything is asked."""
    if columns is None:
        return None
    if isinstance(columns, str):
        raise InvalidRequest(f"columns is the text {shown(columns)}.", hint=f"Pass a list, [{shown(columns)}].")
    names = _listed(columns, "columns", "column names")
    for name in names:
        check_column_name(name)
    return names


def listed_cells(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of a batch. Each is checked when its bytes are made."""
    return _listed(cells, "cells", "Cell(row_key, column_name, ref_key, body)")


def listed_keys(keys: Iterable[CellKey]) -> list[CellKey]:
    """Keys of cells, checked."""
    wanted = _listed(keys, "keys", "CellKey(row_key, column_name, ref_key)")
    for key in wanted:
        _check_shape(key, 3, "key", "CellKey(row_key, column_name, ref_key)")
        check_key(*key)
    return wanted


def listed_columns(columns: Iterable[ColumnKey]) -> list[ColumnKey]:
    """Columns of rows, checked."""
    wanted = _listed(columns, "columns", "ColumnKey(row_key, column_name)")
    for column in wanted:
        _check_shape(column, 2, "column of a row", "ColumnKey(row_key, column_name)")
        check_row_key(column[0])
        check_column_name(column[1])
    return wanted


def listed_values(values: Iterable[T]) -> list[T]:
    """Values of an index's shard field. Of which type each is, the index's definition says."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidRequest(
            f"shard_values is a {type(values).__name__}, {shown(values)}.", hint="Pass a list of values."
        )
    return list(values)


def _check_shape(value: object, parts: int, what: str, wanted: str) -> None:
    if not isinstance(value, tuple) or len(value) != parts:
        raise InvalidCell(f"{shown(value)} is no {what}", hint=f"Pass {wanted}.")


def _listed(given: Iterable[T], name: str, what: str) -> list[T]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidCell(f"{name} is a {type(given).__name__}, {shown(given)}", hint=f"Pass a list of {what}.")
    return list(given)
