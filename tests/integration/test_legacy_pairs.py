"""Looked-up pairs of rows that were deleted: what points to them is rendered, found and put as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg2.errors
import pytest

from schemaless_core import Cell, MemoryStore
from schemaless_core.cell.answers import Condition
from schemaless_core.cell.canonical import Json
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import load_definitions
from tests.legacy import FLAVOURS, PARENT, USERS, Legacy, layout, refused
from tests.legacy_backends import SHARDS, Company, company
from tests.legacy_databases import PATIENT, postgres_server
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.codec import codecs
from tripstore.backends.postgres.codec.lookups import LookupCache, Pairs, RowsOf
from tripstore.backends.postgres.errors import UnreadableRow, Unrepresentable
from tripstore.backends.postgres.layout.layout import (
    Field,
    FieldType,
    Layout,
    Lookup,
    MappedColumn,
    RefKeySource,
    TableName,
)
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: A company without the foreign key: rows point to users who are gone.
DANGLING = "ALTER TABLE trips DROP CONSTRAINT trips_driver_id_fkey"
DEFINITIONS = load_definitions(
    [
        {
            "table": name,
            "column_defs": [
                {"column_key": "BASE", "fields": [{"field": field, "type": kind} for field, kind in fields]}
            ],
        }
        for name, fields in {
            "by_driver": [("driver_uuid", "UUID"), ("status", "string")],
            "by_driver_text": [("driver_uuid", "string"), ("status", "string")],
            "by_status": [("status", "string"), ("driver_uuid", "UUID")],
        }.items()
    ],
    Path.cwd(),
    "trips",
)


@pytest.fixture(scope="module", params=FLAVOURS)
def server(request: pytest.FixtureRequest, servers: LocalServers) -> PostgresServer:
    flavour: Flavour = request.param
    return postgres_server(servers, flavour)


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        yield made


@pytest.fixture(scope="module")
def dangling(server: PostgresServer) -> Iterator[Company]:
    with company(server, altered=DANGLING) as made:
        yield made


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cache forgets at once."""
    monkeypatch.setattr(codecs, "LookupCache", partial(LookupCache, pairs_max=1))


@contextmanager
def cold(legacy: Legacy, wanted: Layout | None = None) -> Iterator[PostgresBackend]:
    """A store that has not looked anything up yet."""
    database = LegacyDatabase(legacy.url, PATIENT)
    with PostgresBackend(database, wanted or layout(), shards=SHARDS, indexes=DEFINITIONS) as store:
        yield store


def user(legacy: Legacy, uuid: UUID | None = None) -> tuple[int, UUID]:
    """A new user; the keys of deleted ones are never given again."""
    given = uuid or uuid4()
    statement = """INSERT INTO users SELECT greatest(
        (SELECT max(id) FROM users), (SELECT max(key::int) FROM tripstore.pair)) + 1, %s RETURNING id"""
    return legacy.sql(statement, str(given))[0][0], given


def points_to(uuid: UUID, status: str = "a") -> dict[str, Json]:
    return {"driver_uuid": str(uuid), "status": status}


def left_behind(trips: Company) -> tuple[UUID, UUID]:
    """A row, and the deleted user whom its first version points to."""
    (key, driver), row_key = user(trips.legacy), uuid4()
    trips.store.put_cell(row_key, "BASE", 1, points_to(driver))
    trips.store.put_cell(row_key, "BASE", 2, {"status": "b"})
    trips.legacy.sql("DELETE FROM users WHERE id = %s", key)
    return row_key, driver


# -------------------------------------------------------------------------------------------------------- rendering


def test_i8_a_change_that_points_to_a_deleted_user_is_rendered(trips: Company) -> None:
    row_key, driver = left_behind(trips)
    old, new = Cell(row_key, "BASE", 1, points_to(driver)), Cell(row_key, "BASE", 2, {"status": "b"})

    for ask in (
        lambda store: store.get_history(row_key, "BASE"),
        lambda store: [store.get_cell(row_key, "BASE", 2), store.get_cell(row_key, "BASE", 1)],
        lambda store: store.get_cells([new.key, old.key]),
        lambda store: list(reversed(logged(store, row_key))),
    ):
        with cold(trips.legacy) as store:
            assert ask(store) == [new, old]
    trips.legacy.deliver()
    with cold(trips.legacy) as store:
        assert store.get_history(row_key, "BASE") == [new, old]


def logged(store: PostgresBackend, row_key: UUID) -> list[Cell]:
    page = store.get_cells_for_shard(store.shard_of(row_key), 0, 1000)
    return [cell for cell in page.cells if cell.row_key == row_key and cell.column_name == "BASE"]


def test_control_without_the_pair_the_target_of_a_change_is_unknown(server: PostgresServer) -> None:
    with company(server) as trips:
        row_key, _ = left_behind(trips)
        trips.legacy.sql("DELETE FROM tripstore.pair")

        with cold(trips.legacy) as store, pytest.raises(UnreadableRow, match=r"driver_uuid .* no row"):
            store.get_history(row_key, "BASE")


def test_rows_that_point_to_a_deleted_user_are_scanned_and_summed_as_before(dangling: Company) -> None:
    (key, driver), row_key = user(dangling.legacy), uuid4()
    cell = Cell(row_key, "BASE", 1, points_to(driver))
    dangling.store.put_cells([cell])
    shard = dangling.store.shard_of(row_key)
    sums = dangling.store.checksum(shard, ["BASE"])
    dangling.legacy.sql("DELETE FROM users WHERE id = %s", key)

    with cold(dangling.legacy) as store:
        assert store.checksum(shard, ["BASE"]) == sums
    with cold(dangling.legacy) as store:
        assert cell in [row.cells["BASE"] for row in store.scan_rows(shard).rows if row.row_key == row_key]
    with cold(dangling.legacy) as store:
        assert store.get_row(row_key)["BASE"] == store.get_cell_latest(row_key, "BASE") == cell


@pytest.mark.parametrize("gap", [0, 1])
def test_whenever_a_user_is_deleted_his_pair_is_in_one_of_the_two_places(trips: Company, gap: int) -> None:
    """Between any two statements: the table first, then what was deleted."""
    key, driver = user(trips.legacy)

    assert asked_while_deleted(trips.legacy, key, gap, lambda cache: cache.uuid_of(USERS, key)) == str(driver)

    key, driver = user(trips.legacy)

    assert asked_while_deleted(trips.legacy, key, gap, lambda cache: cache.key_of(USERS, str(driver))) == str(key)


def test_control_asked_the_other_way_round_a_pair_may_be_in_neither_place(trips: Company) -> None:
    key, _driver = user(trips.legacy)

    def backwards(run: RowsOf) -> RowsOf:
        def rows_of(statement: str, parameters: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
            present = "SELECT id::text, user_uuid::text FROM public.users WHERE id = ANY (%s)"
            deleted = "SELECT key, value FROM tripstore.pair WHERE key = ANY (%s)"
            return run(present if "tripstore.pair" in statement else deleted, parameters[:1])

        return rows_of

    assert asked_while_deleted(trips.legacy, key, 1, lambda cache: cache.uuid_of(USERS, key), backwards) is None


def asked_while_deleted(
    legacy: Legacy,
    key: int,
    gap: int,
    ask: Callable[[LookupCache], str | None],
    changed: Callable[[RowsOf], RowsOf] = lambda run: run,
) -> str | None:
    """What a cold cache answers while the user is deleted before one of its statements."""
    statements = 0
    with closing(legacy.connect(autocommit=True)) as connection:

        def run(statement: str, parameters: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
            nonlocal statements
            if statements == gap:
                legacy.sql("DELETE FROM users WHERE id = %s", key)
            statements += 1
            return rows(connection, statement, parameters)

        return ask(LookupCache(layout(), changed(run)))


@pytest.mark.usefixtures("little_room")
def test_however_little_the_cache_holds_nothing_is_missing(server: PostgresServer) -> None:
    with company(server) as trips:
        drivers = [user(trips.legacy)[1] for _ in range(6)]
        cells = [Cell(uuid4(), "BASE", 1, points_to(driver)) for driver in drivers]

        with cold(trips.legacy) as store:
            store.put_cells(cells)
            for cell, driver in zip(cells, drivers, strict=True):
                assert [row_key for row_key, _fields in entries(store, "by_driver", driver)] == [cell.row_key]
            assert len(entries(store, "by_status", "a")) == len(cells)
            assert store.put_cells(cells)[0].status == "EXISTS"
            assert store.get_cells([cell.key for cell in cells]) == cells
            assert [store.get_cell_latest(cell.row_key, "BASE") for cell in cells] == cells
            scanned = [row.cells["BASE"] for shard in range(SHARDS) for row in store.scan_rows(shard).rows]
            assert sorted(scanned, key=lambda cell: cell.row_key) == sorted(cells, key=lambda cell: cell.row_key)
            for cell in cells:
                store.put_cell(cell.row_key, "BASE", 2, {"status": "b"})
                assert store.get_history(cell.row_key, "BASE")[1] == cell


# ------------------------------------------------------------------------------------------------------------- puts


def test_a_put_that_points_to_a_deleted_user_is_refused_by_the_foreign_key(trips: Company) -> None:
    _row_key, driver = left_behind(trips)
    row_key = uuid4()

    with cold(trips.legacy) as store:
        for _ in range(2):  # cold, and with what was looked up for the first
            with pytest.raises(Unrepresentable) as caught:
                store.put_cell(row_key, "BASE", 1, points_to(driver))
            assert caught.value.path == "driver_uuid"
            assert store.get_cell_latest(row_key, "BASE") is None
        with pytest.raises(Unrepresentable) as caught:
            store.put_cell(row_key, "BASE", 1, points_to(uuid4()))
        assert caught.value.path == "driver_uuid"


def test_i2_a_version_that_points_to_a_deleted_user_is_put_again_and_compared(trips: Company) -> None:
    row_key, driver = left_behind(trips)

    with cold(trips.legacy) as store:
        assert store.put_cell(row_key, "BASE", 1, points_to(driver)).status == "EXISTS"
        assert trips.versions(row_key) == [2, 1]


def test_without_a_foreign_key_a_row_may_point_to_a_deleted_user(dangling: Company) -> None:
    row_key, driver = left_behind(dangling)
    other = Cell(uuid4(), "BASE", 1, points_to(driver))

    with cold(dangling.legacy) as store:
        store.put_cells([other])
        assert store.get_cell_latest(other.row_key, "BASE") == other
        assert store.put_cell(row_key, "BASE", 3, points_to(driver)).status == "CREATED"


def test_of_two_users_with_one_uuid_the_one_who_is_there_is_pointed_to(trips: Company) -> None:
    _row_key, driver = left_behind(trips)
    key, _driver = user(trips.legacy, driver)
    cell = Cell(uuid4(), "BASE", 1, points_to(driver))

    with cold(trips.legacy) as store:
        store.put_cells([cell])

        assert trips.legacy.sql("SELECT driver_id FROM trips WHERE trip_uuid = %s", str(cell.row_key)) == [(key,)]
        assert store.get_cell_latest(cell.row_key, "BASE") == cell


def test_a_user_who_came_back_under_another_key_is_pointed_to_by_a_store_that_knew_the_old_one(trips: Company) -> None:
    key, driver = user(trips.legacy)
    row_keys = [uuid4(), uuid4()]
    with cold(trips.legacy) as store:
        store.put_cell(row_keys[0], "BASE", 1, points_to(driver))
        store.put_cell(row_keys[0], "BASE", 2, {"status": "b"})
        trips.legacy.sql("DELETE FROM users WHERE id = %s", key)
        user(trips.legacy, driver)

        assert store.put_cell(row_keys[1], "BASE", 1, points_to(driver)).status == "CREATED"


# ---------------------------------------------------------------------------------------- triggers of the company's

SWAP = """
CREATE FUNCTION swap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.status = 'swap' THEN
    INSERT INTO public.users VALUES (1000, '{user}') ON CONFLICT DO NOTHING;
    NEW.driver_id := 1000;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER swap BEFORE INSERT OR UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION swap()"""


def test_a_user_whom_a_rolled_back_trigger_inserted_is_not_remembered(server: PostgresServer) -> None:
    """The row that comes of a put is rendered before it is taken back; another user has the key afterwards."""
    with company(server) as trips:
        trips.legacy.sql(SWAP.format(user=uuid4()))
        row_key, driver = uuid4(), user(trips.legacy)[1]

        with cold(trips.legacy) as store:
            with pytest.raises(Unrepresentable) as caught:
                store.put_cell(row_key, "BASE", 1, points_to(driver, "swap"))
            assert caught.value.path == "driver_uuid"
            assert "another value" in caught.value.reason

            assert other_user_of_key_1000(trips.legacy, store)


def test_control_a_cache_that_keeps_what_a_transaction_saw_shows_another_user(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keeping(pairs: Pairs, rows_of: RowsOf) -> Pairs:
        pairs._rows_of = rows_of
        return pairs

    monkeypatch.setattr(Pairs, "asking", keeping)
    with company(server) as trips:
        trips.legacy.sql(SWAP.format(user=uuid4()))
        driver = user(trips.legacy)[1]

        with cold(trips.legacy) as store:
            with pytest.raises(Unrepresentable):
                store.put_cell(uuid4(), "BASE", 1, points_to(driver, "swap"))

            assert not other_user_of_key_1000(trips.legacy, store)


def other_user_of_key_1000(legacy: Legacy, store: PostgresBackend) -> bool:
    """Whether a store shows the user who has the key that was taken back."""
    row_key, driver = uuid4(), uuid4()
    legacy.sql("INSERT INTO users VALUES (1000, %s)", str(driver))
    legacy.sql("INSERT INTO trips (trip_uuid, driver_id) VALUES (%s, 1000)", str(row_key))
    return store.get_cell_latest(row_key, "BASE") == Cell(row_key, "BASE", 1, {"driver_uuid": str(driver)})


# ---------------------------------------------------------------------------------------------------------- indexes


@pytest.fixture(scope="module")
def indexed(server: PostgresServer) -> Iterator[tuple[Company, MemoryStore, list[UUID]]]:
    """Rows that point to users who are gone, who came back under another key, and who are there; and the oracle."""
    oracle = MemoryStore(shards=SHARDS, indexes=list(DEFINITIONS), lagging_indexes=False)
    with company(server, altered=DANGLING) as trips:
        drivers = [UUID(int=number << 100 | number) for number in (3, 1, 2, 4)]
        keys = [user(trips.legacy, driver)[0] for driver in drivers]
        for number in range(16):
            row_key, body = uuid4(), points_to(drivers[number % 4], "ab"[number // 8])
            for store in (trips.store, oracle):
                store.put_cell(row_key, "BASE", 1, body)
        trips.legacy.sql("DELETE FROM users WHERE id = ANY (%s)", keys[:2])
        user(trips.legacy, drivers[1])
        last = Cell(uuid4(), "BASE", 1, points_to(drivers[1]))
        oracle.put_cells([last])
        with cold(trips.legacy) as store:
            store.put_cells([last])
        assert trips.legacy.sql("SELECT count(DISTINCT driver_id) FROM trips") == [(5,)]
        yield trips, oracle, drivers


def entries(store: PostgresBackend | MemoryStore, index: str, value: Any, **options: Any) -> list[Any]:
    page = store.query_index(index, value, fields=["driver_uuid", "status"], **options)
    found = [(entry.row_key, entry.fields) for entry in page.entries]
    return found if "order_by" in options else sorted(found, key=lambda entry: entry[0])


@pytest.mark.parametrize("number", range(4))
def test_rows_of_a_deleted_user_are_found_in_indexes(
    indexed: tuple[Company, MemoryStore, list[UUID]], number: int
) -> None:
    trips, oracle, drivers = indexed
    with cold(trips.legacy) as store:
        for index, value in (("by_driver", drivers[number]), ("by_driver_text", str(drivers[number]))):
            found = entries(store, index, value)
            assert len(found) == (5 if number == 1 else 4)
            assert found == entries(oracle, index, value)


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">=", "in", "between"])
def test_conditions_and_orders_know_deleted_users(
    indexed: tuple[Company, MemoryStore, list[UUID]], operator: str
) -> None:
    trips, oracle, drivers = indexed
    with cold(trips.legacy) as store:
        for driver in drivers:
            value: Any = {"in": [driver, drivers[2]], "between": sorted([driver, drivers[2]])}.get(operator, driver)
            where: list[Condition] = [("driver_uuid", operator, value)]  # type: ignore[list-item]  # one of them
            for options in ({}, {"order_by": "driver_uuid"}, {"order_by": "driver_uuid", "descending": True}):
                found = entries(store, "by_status", "a", where=where, **options)
                assert found == entries(oracle, "by_status", "a", where=where, **options)


def test_a_user_who_is_looked_for_is_found_by_the_index_of_the_rows(
    indexed: tuple[Company, MemoryStore, list[UUID]],
) -> None:
    """However many rows there are: deleted pairs add no walk through them."""
    trips, _oracle, drivers = indexed
    trips.legacy.sql("CREATE INDEX ON trips (driver_id)")
    with cold(trips.legacy) as store:
        asked: list[tuple[str, Any]] = []
        run = store._queries._run

        def remembered(sql: str, values: Sequence[Any], deadline: Deadline) -> Sequence[Sequence[Any]]:
            asked.append((sql, values))
            return run(sql, values, deadline)

        store._queries._run = remembered
        assert entries(store, "by_driver", drivers[0])
        sql, values = next(each for each in asked if "tripstore.pair" in each[0] and " LIMIT " in each[0])
        with trips.legacy.ours() as connection:
            plan = "\n".join(line for (line,) in rows(connection, f"SET enable_seqscan = off; EXPLAIN {sql}", values))

    assert "Index Cond: (driver_id = ANY" in plan
    assert "pair_value" in plan


# -------------------------------------------------------------------------------------------------- names and types

STRANGE = Lookup(TableName("S%", 'p% "s'), "k%'", "v'")


@pytest.mark.parametrize(
    ("key_type", "key"),
    [("int", "-7"), ("text", "a\"\\,{} %s'"), ("uuid", str(UUID(int=7))), ("char(4)", "ab"), ("varchar(9)", "x y")],
)
def test_keys_of_every_type_under_names_that_need_quotes(server: PostgresServer, key_type: str, key: str) -> None:
    legacy = Legacy(
        server,
        tables=f"""CREATE SCHEMA "S%";
        CREATE TABLE "S%"."p% ""s" ("k%'" {key_type} PRIMARY KEY, "v'" uuid NOT NULL UNIQUE);
        CREATE TABLE trips (id bigserial PRIMARY KEY, trip_uuid uuid NOT NULL UNIQUE, driver_id {key_type}, status text)
        """,
    )
    fields = (Field("driver_uuid", "driver_id", FieldType.UUID, STRANGE), Field("status", "status", FieldType.STRING))
    strange = layout(MappedColumn("BASE", PARENT.table, "trip_uuid", None, RefKeySource(version="v"), fields))
    legacy.install(strange)
    driver = uuid4()
    cells = [Cell(uuid4(), "BASE", 1, points_to(driver)) for _ in range(2)]
    legacy.sql('INSERT INTO "S%%"."p%% ""s" VALUES (%s, %s)', key, str(driver))
    with cold(legacy, strange) as store:
        store.put_cells(cells[:1])
    legacy.sql('DELETE FROM "S%"."p% ""s"')

    with cold(legacy, strange) as store:
        assert store.get_cell_latest(cells[0].row_key, "BASE") == cells[0]
    with cold(legacy, strange) as store:
        store.put_cells(cells[1:])
        found = [
            (row_key, {"driver_uuid": driver, "status": "a"}) for row_key in sorted(cell.row_key for cell in cells)
        ]
        assert entries(store, "by_driver", driver) == found
        assert entries(store, "by_status", "a", where=[("driver_uuid", ">=", driver)]) == found
        assert entries(store, "by_status", "a", order_by="driver_uuid") == found
    assert legacy.sql("SELECT DISTINCT driver_id::text FROM trips") == [(key,)]


# ------------------------------------------------------------------------------------------------ what capture keeps

TRUNCATE = "TRUNCATE users"


def test_a_table_of_pairs_is_not_truncated(dangling: Company) -> None:
    with refused(sqlstates.TRUNCATE_REFUSED) as caught:
        dangling.legacy.sql(TRUNCATE)

    assert "users is not truncated: cells point to its rows." in str(caught.value)


def test_control_without_the_trigger_a_truncation_leaves_unreadable_rows(server: PostgresServer) -> None:
    with company(server, altered=DANGLING) as trips:
        row_key, driver = uuid4(), user(trips.legacy)[1]
        trips.store.put_cell(row_key, "BASE", 1, points_to(driver))
        trips.legacy.sql("ALTER TABLE users DISABLE TRIGGER ALL; " + TRUNCATE)

        with cold(trips.legacy) as store, pytest.raises(UnreadableRow):
            store.get_cell_latest(row_key, "BASE")


@pytest.mark.parametrize("parts", ["", " PARTITION BY HASH (id)"])
def test_an_allowed_truncation_remembers_all_pairs(server: PostgresServer, parts: str) -> None:
    legacy = Legacy(server)
    legacy.sql(DANGLING)
    if parts:
        legacy.sql(
            f"DROP TABLE users; CREATE TABLE users (id int PRIMARY KEY, user_uuid uuid NOT NULL, name text){parts};"
            "CREATE TABLE users_0 PARTITION OF users FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
            "CREATE TABLE users_1 PARTITION OF users FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
            "INSERT INTO users SELECT n, gen_random_uuid() FROM generate_series(1, 9) AS n"
        )
    legacy.install(layout(), may_truncate=True)
    pairs = sorted(legacy.sql("SELECT id::text, user_uuid::text FROM users"))
    legacy.sql(TRUNCATE)

    assert sorted(legacy.sql("SELECT key, value FROM tripstore.pair")) == pairs
    assert legacy.sql("SELECT since IS NOT NULL, broken FROM tripstore.capture") == [(True, None)]


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_i2_a_snapshot_that_does_not_see_the_deletion_does_not_give_the_key_away(
    trips: Company, isolation: str
) -> None:
    key, _driver = user(trips.legacy)
    with closing(trips.legacy.connect(isolation=isolation)) as connection:
        rows(connection, "SELECT FROM trips LIMIT 1")  # the snapshot
        trips.legacy.sql("DELETE FROM users WHERE id = %s", key)

        with pytest.raises(psycopg2.errors.SerializationFailure):
            rows(connection, "INSERT INTO users VALUES (%s, %s)", (key, str(uuid4())))


def test_i2_a_new_user_of_an_old_snapshot_leaves_no_pair(trips: Company) -> None:
    key, driver = user(trips.legacy)
    with closing(trips.legacy.connect(isolation="REPEATABLE READ")) as connection:
        rows(connection, "DELETE FROM users WHERE id = %s", (key,))
        rows(connection, "INSERT INTO users VALUES (%s, %s), (%s, %s)", (key, str(driver), key + 1, str(uuid4())))
        connection.commit()

    assert trips.legacy.sql("SELECT key FROM tripstore.pair WHERE key::int >= %s", key) == [(str(key),)]
