"""What typed calls answer beside rows: pages of an index, and deletions in a history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TypedPage(Generic[T]):
    """Rows or entries in the order asked for, and the cursor of the next page (None: no more)."""

    rows: list[T]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """A tombstone in a column's history."""

    row_key: UUID
    ref_key: int
    created_at: datetime | None
