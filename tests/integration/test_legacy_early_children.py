"""Cells of children that were put before their parent had a row, and services that insert both later (I2, I8)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
from psycopg2 import errors

from schemaless_core import Cell, CellConflict, Json
from tests.legacy import FLAVOURS, Blocked
from tests.legacy_backends import Company, company
from tests.legacy_databases import postgres_server
from tripstore.backends.postgres.capture.functions.changes import Changes
from tripstore.backends.postgres.cells.put.row_puts import RowPuts
from tripstore.backends.postgres.cells.put.unmapped import store
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers

BITS = 20
ISOLATIONS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
NOTE = "INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, %s, %s FROM trips WHERE trip_uuid = %s"
ATTEMPT = (
    "INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) "
    "SELECT id, trip_uuid, %s, %s FROM trips WHERE trip_uuid = %s"
)


@pytest.fixture(scope="module", params=FLAVOURS)
def server(request: pytest.FixtureRequest, servers: LocalServers) -> PostgresServer:
    return postgres_server(servers, request.param)


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        yield made


def note(n: int, version: int) -> int:
    return n << BITS | version


def bodies(trips: Company, row_key: UUID, column: str) -> dict[int, object]:
    return {cell.ref_key: cell.body for cell in trips.store.get_history(row_key, column)}


@pytest.mark.parametrize("is_delivered", [False, True])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_services_note_stands_above_the_cell_that_has_its_number(
    trips: Company, isolation: str, is_delivered: bool
) -> None:
    row_key = uuid4()
    trips.store.put_cell(row_key, "NOTES", note(3, 2), {"text": "early"})
    if is_delivered:
        trips.legacy.deliver()
    connection = trips.legacy.connect(isolation=isolation)
    rows(connection, "INSERT INTO trips (trip_uuid) VALUES (%s)", (str(row_key),))
    rows(connection, NOTE, (3, "late", str(row_key)))
    rows(connection, NOTE, (4, "another", str(row_key)))
    connection.commit()
    connection.close()

    expected = {note(3, 2): {"text": "early"}, note(3, 3): {"text": "late"}, note(4, 0): {"text": "another"}}
    assert bodies(trips, row_key, "NOTES") == expected
    assert trips.queued(row_key, "NOTES") == sorted(expected)


@pytest.mark.parametrize("is_delivered", [False, True])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_service_does_not_insert_a_fact_that_is_there(trips: Company, isolation: str, is_delivered: bool) -> None:
    row_key = uuid4()
    trips.store.put_cell(row_key, "STATUS", 2, {"result": "early"})
    if is_delivered:
        trips.legacy.deliver()
    trips.legacy.trip(row_key=row_key)
    connection = trips.legacy.connect(isolation=isolation)
    rows(connection, ATTEMPT, (1, "first", str(row_key)))
    rows(connection, ATTEMPT, (3, "third", str(row_key)))
    connection.commit()
    with pytest.raises(errors.UniqueViolation):
        rows(connection, ATTEMPT, (2, "late", str(row_key)))
    connection.close()

    found = {1: {"result": "first"}, 2: {"result": "early"}, 3: {"result": "third"}}
    assert bodies(trips, row_key, "STATUS") == found


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize(
    ("column", "ref_key", "body", "insert", "n"),
    [("NOTES", note(3, 2), {"text": "x"}, NOTE, 3), ("STATUS", 3, {"result": "x"}, ATTEMPT, 3)],
)
def test_a_snapshot_that_is_older_than_the_cell_is_to_be_repeated(
    trips: Company, isolation: str, column: str, ref_key: int, body: dict[str, Json], insert: str, n: int
) -> None:
    row_key = uuid4()
    connection = trips.legacy.connect(isolation=isolation)
    rows(connection, "INSERT INTO trips (trip_uuid) VALUES (%s)", (str(row_key),))
    trips.store.put_cell(row_key, column, ref_key, body)
    trips.legacy.deliver()
    with pytest.raises(errors.SerializationFailure):
        rows(connection, insert, (n, "late", str(row_key)))
    connection.close()


@pytest.mark.parametrize(
    ("column", "ref_key", "body", "insert"),
    [
        ("NOTES", note(3, 0), {"text": "early"}, NOTE),
        ("NOTES", note(3, 5), {"text": "early"}, NOTE),
        ("STATUS", 3, {"result": "early"}, ATTEMPT),
    ],
)
def test_a_put_waits_for_a_service_that_inserts_parent_and_child(
    trips: Company, column: str, ref_key: int, body: dict[str, Json], insert: str
) -> None:
    """The service commits while the put waits: the put finds the row that was not visible before."""
    row_key = uuid4()
    connection = trips.legacy.connect()
    rows(connection, "INSERT INTO trips (trip_uuid) VALUES (%s)", (str(row_key),))
    rows(connection, insert, (3, "service", str(row_key)))
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(trips.store.put_cell, row_key, column, ref_key, body)
        waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while not trips.legacy.sql(waits):
            assert not put.done()
        connection.commit()
        connection.close()
        if ref_key == note(3, 5):
            assert put.result().status == "CREATED"
        else:
            with pytest.raises(CellConflict):
                put.result()

    versions = [cell.ref_key for cell in trips.store.get_history(row_key, column)]
    first = note(3, 0) if column == "NOTES" else 3
    assert versions == sorted({first, ref_key}, reverse=True)
    assert trips.legacy.sql("SELECT 1 FROM tripstore.cell WHERE row_key = %s", str(row_key)) == []


def test_control_a_put_that_does_not_wait_loses_the_services_later_changes(
    trips: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowPuts, "_store_before_parent", lambda _self, connection, new, _seen: store(connection, new))
    row_key = uuid4()
    connection = trips.legacy.connect()
    rows(connection, "INSERT INTO trips (trip_uuid) VALUES (%s)", (str(row_key),))
    rows(connection, NOTE, (3, "service", str(row_key)))
    trips.store.put_cell(row_key, "NOTES", note(3, 5), {"text": "early"})
    connection.commit()
    connection.close()
    trips.legacy.sql("UPDATE notes SET text = 'newest' WHERE trip_uuid = %s", str(row_key))

    latest = trips.store.get_cell_latest(row_key, "NOTES")
    assert latest is not None
    assert latest.body == {"text": "early"}


def test_a_cell_that_comes_while_a_services_row_is_queued_is_seen(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: without the second look there are two cells of one number, the older one above."""
    row_key = uuid4()

    def race(made: Company) -> None:
        """The service's INSERT waits for the queue's key, which the put holds for a moment."""
        made.legacy.trip(row_key=row_key)
        putting = made.legacy.connect()
        key = f"'{row_key}', 'NOTES'"
        rows(putting, f"INSERT INTO tripstore.queue (row_key, column_name, ref_key) VALUES ({key}, {note(3, 0)})")
        inserting = made.legacy.connect()
        waiting = Blocked(made.legacy, inserting, NOTE, 3, "service", str(row_key))
        try:
            waiting.wait_until_it_waits()
            rows(putting, f"DELETE FROM tripstore.queue WHERE (row_key, column_name) = ({key})")
            rows(putting, f'INSERT INTO tripstore.cell VALUES ({key}, {note(3, 5)}, \'{{"text":"x"}}\', now())')
            putting.commit()
            waiting.result()
            inserting.commit()
        finally:
            putting.close()
            inserting.close()

    own = "SELECT 1"  # a database of its own: the others are copies
    with company(server, altered=own) as made, pytest.raises(errors.SerializationFailure):
        race(made)
    monkeypatch.setattr(Changes, "refuse_unseen_cell", lambda _self: "")
    with company(server, altered=own) as made:
        race(made)
        assert [cell.ref_key for cell in made.store.get_history(row_key, "NOTES")] == [note(3, 5), note(3, 0)]


def test_a_child_is_not_inserted_below_a_cell_of_its_number(trips: Company) -> None:
    row_key = uuid4()
    trips.store.put_cell(row_key, "NOTES", note(3, 3), {"text": "early"})
    trips.legacy.trip(row_key=row_key)

    assert trips.store.put_cell(row_key, "NOTES", note(3, 0), {"text": "older"}).status == "CREATED"
    assert trips.store.get_cell_latest(row_key, "NOTES") == Cell(row_key, "NOTES", note(3, 3), {"text": "early"})
    assert trips.legacy.sql("SELECT 1 FROM notes WHERE trip_uuid = %s", str(row_key)) == []
    assert trips.store.put_cell(row_key, "NOTES", note(3, 4), {"text": "newer"}).status == "CREATED"
    assert trips.legacy.sql("SELECT note_version, text FROM notes WHERE trip_uuid = %s", str(row_key)) == [(4, "newer")]


def test_cells_that_a_parent_brings_into_the_table_are_rows_like_others(trips: Company) -> None:
    """Adopted: what was met in `kept` and among the cells of ours does not stand in their way."""
    row_key = uuid4()
    for version in (1, 4):
        trips.store.put_cell(row_key, "NOTES", note(2, version), {"text": str(version)})
    trips.store.put_cell(row_key, "STATUS", 7, {"result": "x"})
    trips.base(1, row_key=row_key)

    assert trips.legacy.sql("SELECT n, note_version FROM notes WHERE trip_uuid = %s", str(row_key)) == [(2, 4)]
    assert trips.legacy.sql("SELECT attempt_no FROM attempts WHERE trip_uuid = %s", str(row_key)) == [(7,)]
    trips.legacy.sql("UPDATE notes SET text = 'changed' WHERE trip_uuid = %s", str(row_key))
    assert list(bodies(trips, row_key, "NOTES")) == [note(2, 5), note(2, 4), note(2, 1)]


@pytest.mark.parametrize(("column", "ref_key", "body"), [("NOTES", note(1, 0), {"text": "x"}), ("STATUS", 1, {})])
def test_a_child_whose_parent_is_deleted_meanwhile_is_kept_beside(
    trips: Company, column: str, ref_key: int, body: dict[str, Json]
) -> None:
    row_key = uuid4()
    trips.legacy.trip(row_key=row_key)
    connection = trips.legacy.connect()
    rows(connection, "DELETE FROM trips WHERE trip_uuid = %s", (str(row_key),))
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(trips.store.put_cell, row_key, column, ref_key, body)
        waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while not trips.legacy.sql(waits):
            assert not put.done()
        connection.commit()
        connection.close()
        assert put.result().status == "CREATED"

    assert trips.store.get_cell(row_key, column, ref_key) == Cell(row_key, column, ref_key, body)


def test_a_body_that_no_row_can_hold_any_more_exists_where_it_was_put(trips: Company) -> None:
    row_key = uuid4()
    driver = str(uuid4())
    trips.legacy.sql("INSERT INTO users VALUES (%s, %s)", abs(hash(driver)) % 10**9 + 10, driver)
    body: dict[str, Json] = {"driver_uuid": driver}
    trips.store.put_cell(row_key, "BASE", 1, body)
    trips.store.put_cell(row_key, "BASE", 2, {})
    trips.store.get_cell(row_key, "BASE", 1)
    trips.legacy.sql("DELETE FROM users WHERE user_uuid = %s", driver)
    held = trips.store.get_cell(row_key, "BASE", 1)

    assert held == Cell(row_key, "BASE", 1, body)
    assert trips.store.put_cell(row_key, "BASE", 1, body).status == "EXISTS"


def test_a_trigger_that_keeps_the_row_out_is_named_at_once(server: PostgresServer) -> None:
    altered = (
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        "CREATE TRIGGER no BEFORE INSERT ON trips FOR EACH ROW EXECUTE FUNCTION no();"
    )
    with company(server, altered=altered) as made, pytest.raises(LegacyRefused, match="trigger"):
        made.store.put_cell(uuid4(), "BASE", 1, {})
    with company(server) as made:
        made.legacy.trip(row_key=(row_key := uuid4()))
        made.legacy.sql(altered.replace("trips", "notes"))
        with pytest.raises(LegacyRefused, match="trigger"):
            made.store.put_cell(row_key, "NOTES", note(1, 0), {})


def test_a_trigger_that_changes_the_row_after_it_was_inserted_makes_a_version_of_its_own(
    server: PostgresServer,
) -> None:
    altered = (
        "CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN UPDATE trips SET memo = 'm', status = 'more' WHERE id = NEW.id; RETURN NULL; END $$;"
        "CREATE TRIGGER more AFTER INSERT ON trips FOR EACH ROW EXECUTE FUNCTION more();"
    )
    with company(server, altered=altered) as made:
        row_key = uuid4()
        assert made.store.put_cell(row_key, "BASE", 1, {"status": "x"}).status == "CREATED"
        assert bodies(made, row_key, "BASE") == {1: {"status": "x"}, 2: {"status": "more"}}
