"""`TypedIndex`: queries of one index, whose answers are typed entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

from schemaless_core.cell.answers import Condition, Scalar
from schemaless_core.store import CellStore
from tripstore.typed.entry import TypedEntry
from tripstore.typed.page import TypedPage

E = TypeVar("E", bound=TypedEntry[Any])


class TypedIndex(Generic[E]):
    """What `store.typed(DriverPartnerIndex)` gives: entries without their cells, which one server answers alone."""

    def __init__(self, store: CellStore, kind: type[E]) -> None:
        self._store = store
        self._kind = kind

    def query(
        self,
        shard_value: Scalar,
        where: Sequence[Condition] = (),
        *,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        consistency: Literal["fast", "verified"] = "fast",
    ) -> TypedPage[E]:
        """Return the entries under one shard value, as `query_index` does; fields have the names of the index."""
        found = self._store.query_index(
            self._kind.index_name,
            shard_value,
            where,
            order_by=order_by,
            descending=descending,
            limit=limit,
            cursor=cursor,
            consistency=consistency,
        )
        return TypedPage([self._kind.from_entry(entry) for entry in found.entries], found.cursor)
