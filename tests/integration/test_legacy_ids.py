"""Legacy ids of a store's rows, resolved both ways: rows of services, rows of the facade, rows that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, InvalidRequest
from tests.legacy import FLAVOURS
from tests.legacy_backends import Company, company
from tests.legacy_databases import postgres_server
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.local.servers import LocalServers


@pytest.fixture(scope="module", params=FLAVOURS)
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Company]:
    with company(postgres_server(servers, request.param)) as made:
        yield made


def test_ids_are_resolved_both_ways_whichever_client_inserted_the_row(trips: Company) -> None:
    by_service, first = trips.legacy.trip()
    second = trips.base(1)
    ((by_facade,),) = trips.legacy.sql("SELECT id FROM trips WHERE trip_uuid = %s", str(second))

    assert trips.store.resolve_ids([by_service, by_facade, -1]) == {by_service: first, by_facade: second}
    assert trips.store.legacy_ids([first, second, uuid4()]) == {first: by_service, second: by_facade}
    assert (trips.store.resolve_id(by_service), trips.store.legacy_id(first)) == (first, by_service)
    assert (trips.store.resolve_id(-1), trips.store.legacy_id(uuid4())) == (None, None)


def test_the_id_of_a_deleted_row_is_resolved_for_ever(trips: Company) -> None:
    id_, row_key = trips.legacy.trip()
    trips.legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    trips.legacy.sql("DELETE FROM tripstore.queue WHERE row_key = %s", str(row_key))

    assert trips.store.resolve_id(id_) == row_key
    assert trips.store.legacy_id(row_key) == id_
    assert trips.store.get_cell_latest(row_key, LEGACY_ID) == Cell(row_key, LEGACY_ID, 0, {"id": id_})

    trips.legacy.sql("INSERT INTO trips (id, trip_uuid) VALUES (%s, %s)", id_, str(row_key))
    trips.legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    assert trips.store.resolve_id(id_) == row_key


def test_an_id_that_was_given_again_is_that_of_the_row_that_has_it(trips: Company) -> None:
    id_, _gone = trips.legacy.trip()
    trips.legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    now = uuid4()
    trips.legacy.sql("INSERT INTO trips (id, trip_uuid) VALUES (%s, %s)", id_, str(now))

    assert trips.store.resolve_id(id_) == now


def test_a_deleted_row_that_is_put_again_has_its_id_again(trips: Company) -> None:
    """I2: the one cell of `_LEGACY_ID` never says another id."""
    row_key = trips.base(1)
    pair = trips.store.get_cell_latest(row_key, LEGACY_ID)
    trips.store.put_cell(row_key, "BASE", 2, None)
    assert trips.store.get_cell_latest(row_key, LEGACY_ID) == pair
    trips.base(3, row_key=row_key)
    assert trips.store.get_cell_latest(row_key, LEGACY_ID) == pair
    assert pair is not None
    ((id_,),) = trips.legacy.sql("SELECT id FROM trips WHERE trip_uuid = %s", str(row_key))
    assert pair.body == {"id": id_}


def test_an_id_that_another_row_has_by_now_is_not_taken_from_it(trips: Company) -> None:
    row_key = trips.base(1)
    ((id_,),) = trips.legacy.sql("SELECT id FROM trips WHERE trip_uuid = %s", str(row_key))
    trips.store.put_cell(row_key, "BASE", 2, None)
    trips.legacy.sql("INSERT INTO trips (id, trip_uuid) VALUES (%s, %s)", id_, str(uuid4()))
    with pytest.raises(LegacyRefused):
        trips.store.put_cell(row_key, "BASE", 3, {})


@pytest.mark.parametrize("wrong", [True, "1", 2**63])
def test_what_is_no_id_is_refused(trips: Company, wrong: object) -> None:
    with pytest.raises(InvalidRequest):
        trips.store.resolve_id(wrong)  # type: ignore[arg-type]  # the point of the test


def test_what_is_no_row_key_is_refused(trips: Company) -> None:
    with pytest.raises(InvalidRequest):
        trips.store.legacy_id(str(UUID(int=1)))  # type: ignore[arg-type]  # the point of the test


def test_i2_the_pair_of_a_row_that_comes_back_with_another_id_stays(trips: Company) -> None:
    """The cell that the mirror has must not become another one."""
    number, row_key = trips.legacy.trip()
    before = trips.store.get_cell(row_key, LEGACY_ID, 0)
    trips.legacy.sql("DELETE FROM trips WHERE id = %s", number)
    again, _ = trips.legacy.trip(row_key=row_key)

    assert again != number
    assert trips.store.get_cell(row_key, LEGACY_ID, 0) == before
    assert trips.store.get_cell_latest(row_key, LEGACY_ID) == before
    assert trips.store.get_row(row_key)[LEGACY_ID] == before
