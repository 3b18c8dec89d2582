"""The first row of each of many index values: what a query of each finds, with one question to each server."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from schemaless_core import Datastore, InvalidRequest, Json
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.query import Query
from schemaless_core.indexes import lookup
from schemaless_core.servers.routing import Router
from tests.indexing import catch_up, nothing_after_commit
from tests.stores import Stores

NAME = "trips_of_driver"
DEFINITION: Json = {
    "table": NAME,
    "column_defs": [
        {"column_key": "BASE", "fields": [{"field": "driver", "type": "string"}, {"field": "seats", "type": "int"}]}
    ],
}
#: Some that no row has.
DRIVERS = [f"driver {n}" for n in range(12)]
ROWS = 40
CLUSTERS = 2


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Iterator[Datastore]:
    config = stores.config(datastore_engine, shards=8, indexes=[DEFINITION])
    assert len(config["clusters"]) == CLUSTERS
    with Datastore.open(config) as store:
        store.create_schema()
        yield store


def drive(store: Datastore) -> None:
    """Rows that change their drivers, some of them after the index has seen them last."""
    chance = random.Random(7)
    rows = [UUID(int=chance.getrandbits(128)) for _ in range(ROWS)]  # which entry is the first hangs on them

    def put(versions: range, changed: Sequence[UUID]) -> None:
        for version in versions:
            for row_key in changed:
                store.put_cell(row_key, "BASE", version, {"driver": chance.choice(DRIVERS[:-2])})

    with nothing_after_commit():
        put(range(1, 3), rows)
        catch_up(store, NAME)
        put(range(3, 4), rows[::3])
        store.put_cell(rows[1], "BASE", 9, None)


def one_by_one(store: Datastore, consistency: Any) -> dict[str, UUID]:
    pages = {driver: store.query_index(NAME, driver, limit=1, consistency=consistency) for driver in DRIVERS}
    return {driver: page.entries[0].row_key for driver, page in pages.items() if page.entries}


@pytest.mark.parametrize("consistency", ["fast", "verified"])
def test_they_are_what_a_query_of_each_value_finds(store: Datastore, consistency: Any) -> None:
    drive(store)

    found = store.first_rows(NAME, DRIVERS, consistency)

    assert found == one_by_one(store, consistency)
    assert set(DRIVERS[-2:]).isdisjoint(found)
    assert len(found) >= 5
    assert (found != one_by_one(store, "verified")) == (consistency == "fast")


def test_control_an_entry_that_is_trusted_is_of_another_value(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(store)
    expected = one_by_one(store, "verified")
    monkeypatch.setattr(Query, "holds", lambda _query, _values: True)

    assert store.first_rows(NAME, DRIVERS, "verified") != expected


def test_each_server_is_asked_once(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    drive(store)
    catch_up(store, NAME)
    asked = Counter[str]()
    read_many = Router.read_many

    def counting(router: Router, wanted: Mapping[int, Any], verb: Any, *more: Any) -> Any:
        def ask(node: Any, part: Mapping[int, Any]) -> Any:
            asked[node.name] += 1
            return verb(node, part)

        return read_many(router, wanted, ask, *more)

    monkeypatch.setattr(Router, "read_many", counting)

    store.first_rows(NAME, DRIVERS)

    assert set(asked.values()) == {1}
    assert len(asked) <= CLUSTERS


def test_values_are_checked_as_those_of_a_query(store: Datastore) -> None:
    drivers: list[Any] = ["driver 1", 7]
    with pytest.raises(InvalidRequest, match="driver"):
        store.first_rows(NAME, drivers)
    with pytest.raises(InvalidRequest, match="shard_values is a str"):
        store.first_rows(NAME, DRIVERS[0])
    assert store.first_rows(NAME, []) == {}


def test_more_values_than_a_packet_has_are_asked_for_in_turn_and_an_iterator_is_read_once(
    store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(store)
    expected = one_by_one(store, "verified")
    monkeypatch.setattr(lookup, "VALUES_PER_LOOK", 5)

    assert store.first_rows(NAME, iter(DRIVERS), "verified") == expected


def test_i10_all_values_have_one_deadline(store: Datastore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those, too, whose entries are stale, so that each is looked at by itself."""
    drive(store)
    monkeypatch.setattr(lookup, "VALUES_PER_LOOK", 5)
    deadlines: list[Deadline] = []
    touched = lookup.IndexQueries._touched

    def noting(queries: Any, version: Any, deadline: Deadline) -> set[bytes]:
        deadlines.append(deadline)
        return touched(queries, version, deadline)

    monkeypatch.setattr(lookup.IndexQueries, "_touched", noting)

    store.first_rows(NAME, DRIVERS, "verified")

    assert len(deadlines) > 3  # three looks together, and those at stale entries
    assert len(set(map(id, deadlines))) == 1
