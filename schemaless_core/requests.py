"""Checks of what a call asks for, shared by every store: limits, shards, locations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from uuid import UUID

from schemaless_core.answers import Location, Position
from schemaless_core.cell import check_column_name, check_row_key
from schemaless_core.errors import InvalidRequest, shown

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


def check_columns(columns: Collection[str] | None) -> None:
    if isinstance(columns, str):
        raise InvalidRequest(f"columns is the text {shown(columns)}.", hint=f"Pass a list, [{shown(columns)}].")
    for column in columns or ():
        check_column_name(column)


def check_row_keys(row_keys: Iterable[UUID]) -> None:
    for row_key in row_keys:
        check_row_key(row_key)
