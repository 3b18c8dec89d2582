"""Puts into the company's tables that race with one another, with services' own SQL, and with accidents."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import psycopg2
import pytest

from schemaless_core import Cell, CellConflict, CellStore, Json
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.chaos.actors import wait_until
from tests.legacy import attempts, base, layout, notes
from tests.legacy_backends import Company, company, deleting_layout, status
from tests.legacy_databases import postgres_server
from tests.scale import scaled
from tripstore.backends.postgres.cells.put.row_writes import RowWrites
from tripstore.backends.postgres.cells.put.tombstones import Tombstones
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable, Unrepresentable
from tripstore.backends.postgres.layout.layout import DeletePolicy, Layout
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers

CHILD = 1 << 20
ROUNDS = scaled(400, least=15)


@pytest.fixture(scope="module")
def server(servers: LocalServers) -> PostgresServer:
    return postgres_server(servers, "machine")


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        yield made


def together(*works: Callable[[], object]) -> None:
    """Run all at the same time, and raise what one of them raised."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        try:
            start.wait(20)
            work()
        except BaseException as error:  # noqa: BLE001  # raised below, on the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def body_of(column: str, text: object) -> dict[str, Json]:
    return {{"BASE": "status", "STATUS": "result", "NOTES": "text", "FREE": "x"}[column]: str(text)}


# ------------------------------------------------------------------------------------------------------------ races


@pytest.mark.parametrize(
    ("column", "ref_key"), [("BASE", 1), ("BASE", 2), ("STATUS", 1), ("NOTES", CHILD), ("FREE", 1)]
)
def test_of_racing_bodies_one_is_stored_and_the_others_hear_of_it(trips: Company, column: str, ref_key: int) -> None:
    """I2."""
    for _ in range(ROUNDS // 3):
        row_key = uuid4() if (column, ref_key) == ("BASE", 1) else trips.base()
        outcomes: list[object] = []

        def put(number: int, row_key: UUID = row_key, outcomes: list[object] = outcomes) -> None:
            try:
                outcomes.append(trips.store.put_cell(row_key, column, ref_key, body_of(column, number % 2)).status)
            except CellConflict as conflict:
                outcomes.append(conflict.stored)

        together(*(lambda number=number: put(number) for number in range(4)))

        stored = trips.store.get_cell(row_key, column, ref_key)
        assert sorted(map(str, outcomes)) == sorted(["CREATED", "EXISTS", str(stored), str(stored)])
        assert trips.queued(row_key, column).count(ref_key) == 1


def test_puts_and_services_own_updates_never_share_a_version(trips: Company) -> None:
    """I2, I4: every acknowledged cell keeps its body, and every change of a service has a version of its own."""
    row_key = trips.base()
    stored: list[Cell] = []

    def append() -> None:
        for number in range(ROUNDS):
            body = status(f"facade {number}")
            result = trips.store.append_cell(row_key, "BASE", body)
            stored.append(Cell(row_key, "BASE", result.ref_key, body))

    def update() -> None:
        with closing(trips.legacy.connect(autocommit=True)) as connection, connection.cursor() as cursor:
            for number in range(ROUNDS):
                cursor.execute("UPDATE trips SET status = %s WHERE trip_uuid = %s", (f"sql {number}", str(row_key)))

    together(append, update)

    assert trips.store.get_cells([cell.key for cell in stored]) == stored
    assert trips.versions(row_key)[0] == 1 + 2 * ROUNDS
    assert trips.queued(row_key) == list(range(1, 2 + 2 * ROUNDS))
    assert len({json.dumps(change.row) for change in trips.legacy.changes(row_key)}) == 1 + 2 * ROUNDS


def test_puts_race_with_deletions_and_insertions_of_services(trips: Company) -> None:
    """I4: whatever the order, an acknowledged cell stays what it was, and the highest ref key is the latest cell."""
    row_key, chance = uuid4(), random.Random(3)
    stored: list[Cell] = []
    conflicts: list[CellConflict] = []

    def put() -> None:
        for _ in range(2 * ROUNDS):
            latest = trips.store.get_cell_latest(row_key, "BASE")
            number = (latest.ref_key if latest else 0) + chance.choice([1, 1, 2, -1])
            cell = Cell(row_key, "BASE", number, status(f"facade {len(stored)}"))
            try:
                trips.store.put_cell(*cell.key, cell.body)
                stored.append(cell)
            except CellConflict as conflict:
                conflicts.append(conflict)

    def come_and_go() -> None:
        with closing(trips.legacy.connect(autocommit=True)) as connection, connection.cursor() as cursor:
            for number in range(ROUNDS):
                cursor.execute("DELETE FROM trips WHERE trip_uuid = %s", (str(row_key),))
                cursor.execute(
                    "INSERT INTO trips (trip_uuid, status) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    (str(row_key), f"sql {number}"),
                )

    together(put, come_and_go)

    assert stored
    assert all(conflict.stored is not None for conflict in conflicts)
    assert trips.store.get_cells([cell.key for cell in stored]) == stored
    history = trips.store.get_history(row_key, "BASE", limit=10_000)
    assert trips.store.get_cell_latest(row_key, "BASE") == history[0]
    assert [cell.ref_key for cell in history] == trips.queued(row_key)[::-1]


@pytest.mark.parametrize("column", ["BASE", "NOTES", "STATUS", "FREE"])
def test_what_is_expected_is_exact_under_concurrency(trips: Company, column: str) -> None:
    """Each success raised the count that it had read: none is lost."""
    row_key, each = trips.base(), max(ROUNDS // 4, 5)
    first = {"BASE": 2, "NOTES": CHILD}.get(column, 1)
    trips.store.put_cell(row_key, column, first, body_of(column, 0))

    def count_up() -> None:
        done = 0
        while done < each:
            latest = trips.store.get_cell_latest(row_key, column)
            assert latest is not None
            following = body_of(column, f"{count_of(latest) + 1} {threading.get_ident()}")
            try:
                trips.store.put_cell(row_key, column, latest.ref_key + 1, following, expect_latest=latest.ref_key)
                done += 1
            except CellConflict:
                continue

    together(count_up, count_up, count_up)

    latest = trips.store.get_cell_latest(row_key, column)
    assert latest is not None
    assert count_of(latest) == 3 * each
    assert len(trips.store.get_history(row_key, column, limit=1_000)) == 3 * each + (2 if column == "BASE" else 1)


def count_of(cell: Cell) -> int:
    assert isinstance(cell.body, dict)
    return int(str(next(iter(cell.body.values()))).split()[0])


def test_appended_notes_race_with_a_services_own_notes(trips: Company) -> None:
    """A service gives numbers itself: who loses takes the next."""
    row_key = trips.base()
    ((trip_id,),) = trips.legacy.sql("SELECT id FROM trips WHERE trip_uuid = %s", str(row_key))

    def insert() -> None:
        with closing(trips.legacy.connect(autocommit=True)) as connection, connection.cursor() as cursor:
            done = 0
            while done < ROUNDS:
                try:
                    cursor.execute(
                        "INSERT INTO notes (trip_id, n, text) SELECT %s, coalesce(max(n), 0) + 1, 'sql' "
                        "FROM notes WHERE trip_id = %s",
                        (trip_id, trip_id),
                    )
                    done += 1
                except psycopg2.errors.UniqueViolation:
                    continue

    together(insert, lambda: [trips.store.append_cell(row_key, "NOTES", body_of("NOTES", n)) for n in range(ROUNDS)])

    assert trips.versions(row_key, "NOTES") == [n * CHILD for n in range(min(2 * ROUNDS, 100), 0, -1)] or (
        len(trips.store.get_history(row_key, "NOTES", limit=1000)) == 2 * ROUNDS
    )


def test_a_child_and_its_parent_that_come_at_once_end_in_their_tables(trips: Company) -> None:
    for _ in range(ROUNDS // 2):
        row_key = uuid4()
        together(
            lambda row_key=row_key: trips.base(1, row_key=row_key),  # type: ignore[misc]  # mypy knows no default of a lambda
            lambda row_key=row_key: trips.store.put_cell(row_key, "NOTES", CHILD, body_of("NOTES", 1)),  # type: ignore[misc]  # as above
        )
        assert trips.legacy.sql("SELECT n FROM notes WHERE trip_uuid = %s", str(row_key)) == [(1,)]
        assert trips.legacy.sql("SELECT 1 FROM tripstore.cell WHERE row_key = %s", str(row_key)) == []
        assert trips.queued(row_key, "NOTES") == [CHILD]


def test_the_tomb_of_one_child_says_nothing_of_another_that_came_before_its_parent(trips: Company) -> None:
    row_key, fifth = uuid4(), 5 << 20
    trips.store.put_cell(row_key, "NOTES", CHILD, body_of("NOTES", 1))
    trips.store.put_cell(row_key, "NOTES", fifth, body_of("NOTES", 5))
    trips.store.put_cell(row_key, "NOTES", fifth + 1, None)

    trips.base(1, row_key=row_key)

    assert trips.legacy.sql("SELECT n FROM notes WHERE trip_uuid = %s", str(row_key)) == [(1,)]
    assert trips.store.get_cell(row_key, "NOTES", fifth + 1) == Cell(row_key, "NOTES", fifth + 1, None)


# ----------------------------------------------------------------------------------------------------- accidents

ACCIDENTS = [
    ("put.updated", "BASE", 2, status("x")),
    ("put.inserted", "STATUS", 1, {"result": "x"}),
    ("put.deleted", "BASE", 2, None),
    ("put.stored", "BASE", 0, status("x")),
    ("put.before_commit", "BASE", 2, status("x")),
    ("put.before_commit", "NOTES", CHILD, {"text": "x"}),
    ("put.committed", "BASE", 2, status("x")),
    ("put.acknowledged", "FREE", 1, "x"),
]


@contextmanager
def actor(trips: Company, failpoints: Path, cell: Cell) -> Iterator[subprocess.Popen[str]]:
    arguments = [trips.legacy.url, str(cell.row_key), cell.column_name, str(cell.ref_key), json.dumps(cell.body)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.legacy_actor", *arguments],
        env=os.environ | {ENVIRONMENT_VARIABLE: str(failpoints)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("point", "column", "ref_key", "body"), ACCIDENTS)
def test_a_client_killed_anywhere_leaves_all_or_nothing(
    trips: Company, failpoints: Path, point: str, column: str, ref_key: int, body: Json
) -> None:
    """I2, I4, I8: the cell and its change are there together or not at all, and the put may be repeated."""
    cell = Cell(trips.base(), column, ref_key, body)
    (failpoints / point).write_text("kill")

    with actor(trips, failpoints, cell) as process:
        assert process.wait(60) == -signal.SIGKILL

    is_there = point in ("put.committed", "put.acknowledged")
    assert (ref_key in trips.queued(cell.row_key, column)) == is_there
    assert (trips.store.get_cell(*cell.key) == cell) == is_there
    assert trips.store.put_cell(*cell.key, cell.body).status == ("EXISTS" if is_there else "CREATED")
    assert trips.store.get_cell(*cell.key) == cell
    assert trips.queued(cell.row_key, column).count(ref_key) == 1


def test_a_client_stopped_within_its_transaction_loses_its_locks(trips: Company, failpoints: Path) -> None:
    """The server ends a transaction whose client does not go on; others wait for that long and no longer."""
    cell = Cell(trips.base(), "BASE", 2, status("stopped"))
    (failpoints / "put.updated").write_text("stop")

    with actor(trips, failpoints, cell) as process:
        wait_until("the put stopped", (failpoints / "put.updated.hit").exists)
        assert put_when_free(trips.store, Cell(cell.row_key, "BASE", 3, status("later")))
        process.send_signal(signal.SIGCONT)
        # Its transaction is gone; it finds that out and starts again, below the newer version: as history.
        assert process.wait(60) == 0

    assert trips.versions(cell.row_key) == [3, 2, 1]
    assert trips.store.get_cell(*cell.key) == cell


def put_when_free(store: CellStore, cell: Cell) -> bool:
    return store.put_cell(*cell.key, cell.body).status == "CREATED"


# ------------------------------------------------------------------------------------------------ the company's rules


@pytest.fixture(scope="module")
def strict(server: PostgresServer) -> Iterator[Company]:
    """A company whose columns and constraints take less than any body."""
    altered = """
        ALTER TABLE trips ALTER fare TYPE numeric(5, 2), ALTER status TYPE varchar(5),
            ADD CONSTRAINT fair CHECK (fare >= 0), ADD CONSTRAINT short CHECK (distance < 100 OR fare > 1);
        ALTER TABLE attempts ALTER result SET NOT NULL;
        ALTER TABLE notes ADD CONSTRAINT ok CHECK (text <> 'bad');
    """
    with company(server, altered=altered) as made:
        yield made


@pytest.mark.parametrize(
    ("column", "ref_key", "body", "path"),
    [
        ("BASE", 2, {"status": "too long"}, "status"),
        ("BASE", 2, {"fare": "12345.00"}, "fare"),
        ("BASE", 2, {"fare": "1.005"}, "fare"),
        ("BASE", 2, {"fare": "-1.00"}, "fare"),
        ("BASE", 2, {"distance": 200.0, "fare": "0.00"}, "fare, distance"),
        ("STATUS", 1, {}, "result"),
        ("NOTES", CHILD, {"text": "bad"}, "text"),
        ("STATUS", 2**40, {"result": "x"}, ""),
    ],
)
def test_what_a_constraint_refuses_names_the_field(
    strict: Company, column: str, ref_key: int, body: Json, path: str
) -> None:
    row_key = strict.base()

    with pytest.raises(Unrepresentable) as refused:
        strict.store.put_cell(row_key, column, ref_key, body)

    assert sorted(refused.value.path.split(", ")) == sorted(path.split(", "))
    assert strict.store.get_cell(row_key, column, ref_key) is None
    assert ref_key not in strict.queued(row_key, column)
    assert strict.store.put_cell(row_key, "FREE", 1, "the connection is fit").status == "CREATED"


def test_an_inserted_row_is_refused_like_an_updated_one(strict: Company) -> None:
    row_key = uuid4()
    refused: list[Json] = [{"status": "too long"}, {"fare": "-1.00"}]
    for body in refused:
        with pytest.raises(Unrepresentable):
            strict.store.put_cell(row_key, "BASE", 1, body)
    assert strict.store.get_row(row_key) == {}


def test_triggers_of_the_company_find_their_tables(server: PostgresServer) -> None:
    """Our sessions pin a search path; what our puts set off does not know of it."""
    altered = """
        CREATE TABLE audit (what text);
        CREATE FUNCTION auditing() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO audit VALUES (NEW.status); RETURN NULL; END $$;
        CREATE TRIGGER auditing AFTER INSERT OR UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION auditing();
    """
    with company(server, altered=altered) as made:
        made.base(1, 2)

        assert made.legacy.sql("SELECT what FROM audit") == [("1",), ("2",)]


def test_a_put_that_is_not_compared_stores_another_body(strict: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the comparison: without it Postgres rounds, and the caller believes otherwise."""
    row_key = strict.base()
    monkeypatch.setattr(RowWrites, "_compare", lambda *_arguments: None)

    assert strict.store.put_cell(row_key, "BASE", 2, {"fare": "1.005"}).status == "CREATED"

    found = strict.store.get_cell(row_key, "BASE", 2)
    assert found is not None
    assert found.body == {"fare": "1.01"}


# ------------------------------------------------------------------------------------------------------- tombstones


def test_a_layout_may_say_that_a_tombstone_takes_the_others_with_it(server: PostgresServer) -> None:
    with company(server, deleting_layout()) as made:
        row_key = made.base()
        for column, ref_key in (("NOTES", CHILD), ("NOTES", 2 * CHILD), ("STATUS", 1), ("STATUS", 2)):
            made.store.put_cell(row_key, column, ref_key, body_of(column, ref_key))

        made.store.put_cell(row_key, "BASE", 5, None)

        assert {name: cell.body for name, cell in made.store.get_row(row_key).items()} == {
            "BASE": None,
            "NOTES": None,
            "STATUS": None,
            "_LEGACY_ID": {"id": 1},  # for ever
        }
        assert made.versions(row_key) == [5, 1]
        assert made.versions(row_key, "NOTES") == [2 * CHILD + 1, 2 * CHILD, CHILD + 1, CHILD]
        assert made.versions(row_key, "STATUS") == [3, 2, 1]
        for column, ref_key in (("NOTES", CHILD + 1), ("NOTES", 2 * CHILD + 1), ("STATUS", 3), ("BASE", 5)):
            assert made.store.put_cell(row_key, column, ref_key, None).status == "EXISTS"


def test_facts_of_a_deleted_parent_stay_history_when_it_comes_back(server: PostgresServer) -> None:
    with company(server, deleting_layout()) as made:
        row_key = made.base()
        made.store.put_cell(row_key, "STATUS", 2, body_of("STATUS", 2))
        made.store.put_cell(row_key, "BASE", 2, None)
        made.base(3, row_key=row_key)

        made.store.put_cell(row_key, "STATUS", 1, body_of("STATUS", "late"))
        made.store.put_cell(row_key, "STATUS", 4, body_of("STATUS", 4))

        assert made.versions(row_key, "STATUS") == [4, 3, 2, 1]
        assert made.legacy.sql("SELECT attempt_no FROM attempts") == [(4,)]


def layout_with(on_delete: DeletePolicy) -> Layout:
    return layout(base(on_delete), attempts(), notes())


def test_a_tombstone_waits_for_an_insertion_under_way(trips: Company) -> None:
    """Else the row would stand below its tomb: the mirror would hold it for deleted (I8)."""
    row_key = uuid4()
    with closing(trips.legacy.connect()) as service:
        service.cursor().execute("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'new')", (str(row_key),))
        with pytest.raises(LegacyUnavailable):
            trips.store.using(deadline=0.5).put_cell(row_key, "BASE", 5, None)
        service.commit()

    trips.legacy.sql("UPDATE trips SET status = 'newer' WHERE trip_uuid = %s", str(row_key))
    assert trips.store.put_cell(row_key, "BASE", 5, None).status == "CREATED"
    assert trips.versions(row_key) == [5, 2, 1]


def test_a_tombstone_that_does_not_wait_leaves_a_row_below_it(trips: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    row_key = uuid4()
    monkeypatch.setattr(Tombstones, "_wait_for_writers", lambda *_arguments: None)
    with closing(trips.legacy.connect()) as service:
        service.cursor().execute("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'new')", (str(row_key),))
        trips.store.put_cell(row_key, "BASE", 5, None)
        service.commit()

    trips.legacy.sql("UPDATE trips SET status = 'newer' WHERE trip_uuid = %s", str(row_key))

    assert trips.legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", str(row_key)) == [(2,)]
    assert max(trips.queued(row_key)) == 5


def test_a_tombstone_of_the_parent_waits_for_a_child_under_way(trips: Company) -> None:
    row_key = trips.base()
    ((trip_id,),) = trips.legacy.sql("SELECT id FROM trips WHERE trip_uuid = %s", str(row_key))
    with closing(trips.legacy.connect()) as service:
        service.cursor().execute("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'a')", (trip_id,))
        with pytest.raises(LegacyUnavailable):
            trips.store.using(deadline=0.5).put_cell(row_key, "BASE", 2, None)
        service.commit()

    with pytest.raises(LegacyRefused, match="NOTES"):
        trips.store.put_cell(row_key, "BASE", 2, None)


def test_a_layout_may_forbid_deletions(server: PostgresServer) -> None:
    with company(server, layout_with(DeletePolicy.FORBID)) as made:
        row_key = made.base()

        with pytest.raises(LegacyRefused):
            made.store.put_cell(row_key, "BASE", 2, None)

        assert made.versions(row_key) == [1]


def test_a_tombstone_that_is_put_counts_where_deletions_are_ignored(server: PostgresServer) -> None:
    with company(server, layout_with(DeletePolicy.IGNORE)) as made:
        put, deleted = made.base(1, 2), made.base(1, 2)

        made.store.put_cell(put, "BASE", 5, None)
        made.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(deleted))

        assert made.versions(put) == [5, 2, 1]
        assert made.queued(put) == [1, 2, 5]
        # Below what the ignored row had reached nothing is inserted either.
        assert made.store.put_cell(deleted, "BASE", 2, status(2)).status == "EXISTS"
        assert made.legacy.sql("SELECT 1 FROM trips WHERE trip_uuid = %s", str(deleted)) == []
        assert made.store.put_cell(deleted, "BASE", 3, status(3)).status == "CREATED"
        assert made.legacy.sql("SELECT base_version FROM trips WHERE trip_uuid = %s", str(deleted)) == [(3,)]
