"""Valid things; a test states only what matters to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from uuid import UUID, uuid4

from schemaless_core import Cell, Json


def make_cell(row_key: UUID | None = None, column_name: str = "BASE", ref_key: int = 1, body: Json = "a body") -> Cell:
    return Cell(row_key or uuid4(), column_name, ref_key, body)


class _Sharded(Protocol):
    def shard_of(self, row_key: UUID, /) -> int: ...


def keys_in(store: _Sharded, shard: int) -> Iterator[UUID]:
    """New row keys of one shard, without an end."""
    return (row_key for row_key in iter(uuid4, None) if store.shard_of(row_key) == shard)


def make_trip(number: int) -> Json:
    """A body of the size and shape that trips have."""
    return {
        "driver_partner_uuid": f"{number:032x}",
        "city_uuid": f"{number % 40:032x}",
        "trip_created_at": "2026-11-20T12:00:00.000000Z",
        "fare": 12.5 + number % 100,
        "route": [[55.67 + number / 1e6, 12.56], [55.68, 12.57]],
        "note": "",
    }
