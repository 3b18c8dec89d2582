"""Arguments as a person types them: row keys, the expected ref key, locations in a log."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import click

from schemaless_core.cell.answers import ANY, Position


class RowKey(click.ParamType[UUID]):
    """A UUID; with `may_be_new` the word `new` makes one."""

    name = "row key"

    def __init__(self, *, may_be_new: bool = False) -> None:
        self._may_be_new = may_be_new

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        if isinstance(value, UUID):
            return value
        if self._may_be_new and value == "new":
            return uuid4()
        try:
            return UUID(value)
        except ValueError:
            more = ", nor the word new" if self._may_be_new else ""
            self.fail(f"{value!r} is no UUID{more}.", param, ctx)


class ExpectedLatest(click.ParamType[Any]):
    """A ref key, or `none` for a column without cells."""

    name = "ref key or none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value is ANY or value is None or isinstance(value, int):
            return value
        if value == "none":
            return None
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a ref key nor the word none.", param, ctx)


class PlaceInLog(click.ParamType["int | datetime | tuple[int, int]"]):
    """An added id, a time with its zone, or EPOCH:ADDED_ID."""

    name = "location"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | datetime | tuple[int, int]:
        if isinstance(value, int | datetime | tuple):
            return value
        parts = value.split(":")
        if all(part.isdecimal() for part in parts) and len(parts) <= 2:
            return int(value) if len(parts) == 1 else (int(parts[0]), int(parts[1]))
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            text = f"{value!r} is no location: write an added id, EPOCH:ADDED_ID or 2026-03-01T12:00:00+00:00."
            self.fail(text, param, ctx)


def located(store: str, place: int | datetime | tuple[int, int]) -> int | datetime | Position:
    """Return a location as the store of this name understands it."""
    return Position(store, *place) if isinstance(place, tuple) else place
