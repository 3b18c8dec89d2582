"""`typed`: any cell store's calls for one typed class."""

from __future__ import annotations

from typing import Any, overload

from schemaless_core.store import CellStore
from tripstore.typed.column import R, TypedColumn
from tripstore.typed.entry import TypedEntry
from tripstore.typed.index import E, TypedIndex


@overload
def typed(store: CellStore, kind: type[R]) -> TypedColumn[R]: ...
@overload
def typed(store: CellStore, kind: type[E]) -> TypedIndex[E]: ...
def typed(store: CellStore, kind: Any) -> Any:
    """Return the calls of a store for a class of `tripstore models`, with the store's habits.

    `store.typed(kind)` of a `TripStore` is the same. This one takes a `Datastore` or a `MemoryStore` as well.
    """
    return TypedIndex(store, kind) if issubclass(kind, TypedEntry) else TypedColumn(store, kind)
