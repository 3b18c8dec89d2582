"""Stores whose indexes every test of them asks, and how it asks: fast once the maintainer is done, and verified."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from schemaless_core import (
    CellStore,
    Condition,
    Datastore,
    IndexPage,
    Json,
    Scalar,
)
from tests.awaiting import below
from tests.facades import Carrying
from tests.indexing import catch_up
from tests.stores import Stores

DEFINITIONS: list[Json] = [
    {
        "table": "driver_partner_index",
        "column_defs": [
            {
                "column_key": "BASE",
                "fields": [
                    {"field": "driver_partner_uuid", "type": "UUID"},
                    {"field": "city_uuid", "type": "UUID"},
                    {"field": "trip_created_at", "type": "datetime"},
                ],
            }
        ],
    },
    {
        "table": "trips_of_driver",
        "column_defs": [
            {
                "column_key": "BASE",
                "fields": [
                    {"field": "driver", "type": "UUID"},
                    {"field": "city", "type": "string"},
                    {"field": "seats", "type": "int"},
                    {"field": "distance", "type": "float"},
                    {"field": "is_shared", "type": "boolean"},
                    {"field": "created_at", "type": "datetime"},
                    {"field": "rider", "type": "UUID"},
                ],
            },
            {"column_key": "FARE", "fields": [{"field": "fare", "type": "decimal"}]},
            {
                "column_key": "STATUS",
                "fields": [{"field": "status", "type": "string"}, {"field": "attempts", "type": "int"}],
            },
        ],
    },
]


class Indexed(dict[str, CellStore]):
    """One store per engine with the same indexes."""

    def __init__(self, stores: Stores, definitions: Sequence[Json]) -> None:
        self._stores = stores
        self._definitions = definitions

    def __missing__(self, engine: str) -> CellStore:
        made = self._stores.fresh_store(engine, shards=4, indexes=self._definitions)
        # The oracle looks at every row for each question, so each test gets an empty one.
        return made if engine == "memory" else self.setdefault(engine, made)


def settle(store: CellStore, index: str = "trips_of_driver") -> None:
    """Write whatever entries of an index are not written yet. Only a datastore has any to write, or a facade's."""
    store = below(store)
    if isinstance(store, Datastore):
        catch_up(store, index)
    elif isinstance(store, Carrying):
        store.settle()


ROW_NUMBERS = itertools.count(1)


def new_row() -> UUID:
    """Row keys of a test grow in the order of their making, whatever their shards."""
    return UUID(int=next(ROW_NUMBERS) << 64 | uuid4().int & (2**64 - 1))


def put(store: CellStore, row_key: UUID, body: Json, *, column: str = "BASE", ref_key: int = 1) -> UUID:
    store.put_cell(row_key, column, ref_key, body)
    return row_key


def put_trip(store: CellStore, driver: UUID, **fields: Json) -> UUID:
    """A new row whose BASE names the driver."""
    return put(store, new_row(), {"driver": str(driver), **fields})


def ask(store: CellStore, shard_value: Scalar, where: Sequence[Condition] = (), **options: Any) -> IndexPage:
    """The same answer from both consistencies, once everything is settled."""
    settle(store)
    fast = store.query_index("trips_of_driver", shard_value, where, consistency="fast", **options)
    verified = store.query_index("trips_of_driver", shard_value, where, consistency="verified", **options)
    assert verified.entries == fast.entries
    return fast


def rows(page: IndexPage) -> list[UUID]:
    return [entry.row_key for entry in page.entries]


def found(store: CellStore, shard_value: Scalar, where: Sequence[Condition] = (), **options: Any) -> list[UUID]:
    return rows(ask(store, shard_value, where, **options))
