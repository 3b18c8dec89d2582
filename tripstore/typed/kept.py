"""What stands in a typed row where Python has no type that holds a value exactly. It stays what it is in the body."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from schemaless_core.cell.canonical import Json


class TimeText(str):
    """A time that no `datetime` or `date` is, as text: infinity, before Christ, after 9999, finer than microseconds.

    `isinstance(trip.begin_at, datetime)` tells it, and a missing field, from all other times.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"TimeText({super().__repr__()})"


@dataclass(frozen=True, slots=True)
class NestedArray:
    """An array of several dimensions, as the lists of the body. `isinstance(trip.tags, tuple)` tells it from others."""

    lists: list[Json]


class Missing(Enum):
    """That a body has no such key, where `None` is JSON's null."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return self.name

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing.MISSING
