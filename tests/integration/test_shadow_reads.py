"""Shadow reads over both stores: what is wrong in the mirror is found and told right, and nothing else is (I12)."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, cast
from uuid import UUID, uuid4

import psycopg2.errors
import pytest

from schemaless_core import Cell, CellConflict, CellKey, CellStore, ColumnKey, Json
from tests.crew import quick
from tests.facades import Migration, folder_of, migration
from tests.indexing import catch_up
from tests.mirrors import relaying, reversing
from tests.scale import SCALE, scaled
from tests.stores import Stores
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.facade.flags import Comparing
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.store import TripStore
from validation.compare import Difference, DifferenceClass
from validation.reads import Read
from validation.recheck import Recheck
from validation.verdicts import Outcome, Reason

#: Everything is compared, however long it takes on two cores.
ALL = {"share": 1.0, "per_second": 86_000.0, "queue_max": 200_000, "age_seconds_max": 600.0, "deadline_seconds": 20.0}
DRIVERS = 20
OF_DRIVER: Json = {
    "table": "trips_of_driver",
    "column_defs": [
        {
            "column_key": "BASE",
            "fields": [
                {"field": "driver_uuid", "type": "UUID"},
                {"field": "status", "type": "string"},
                {"field": "fare", "type": "decimal"},
                {"field": "distance", "type": "float"},
                {"field": "request_at", "type": "datetime"},
            ],
        },
        {"column_key": "STATUS", "fields": [{"field": "result", "type": "string"}]},
        {"column_key": "NOTES", "fields": [{"field": "text", "type": "string"}]},
    ],
}
BY_TAG: Json = {
    "table": "by_tag",
    "column_defs": [
        {"column_key": "FREE", "fields": [{"field": "tag", "type": "string"}, {"field": "n", "type": "int"}]}
    ],
}
#: As good as any other: a cell that is there otherwise, and a note on a trip that was deleted at the same time.
_ANSWERS = CellConflict, Unrepresentable, LegacyRefused, psycopg2.errors.ForeignKeyViolation
#: Operations of healthy traffic, all threads together, and on how many new companies: answers grow with what was
#: inserted, and after many thousands of them index queries would be all there is.
OPERATIONS = {Phase.SHADOW: scaled(200_000) if SCALE >= 1 else 3_000, Phase.LIVE: scaled(40_000)}
OF_COMPANY = 10_000
THREADS = 4
WAITING_MAX = 8


def driver(number: int) -> str:
    return str(UUID(int=number + 1))


@contextmanager
def comparing(servers: LocalServers, stores: Stores, engine: str = "sqlite", **shadow: Any) -> Iterator[Migration]:
    """In the phase shadow, with drivers."""
    options: dict[str, Any] = {"shadow": ALL | shadow, "triggers": dict(quick())}
    with migration(servers, stores, engine=engine, indexes=[OF_DRIVER, BY_TAG], **options) as moving:
        for number in range(DRIVERS):
            moving.legacy.sql("INSERT INTO users VALUES (%s, %s, 'x')", number + 10, driver(number))
        moving.phase(Phase.SHADOW)
        yield moving


@contextmanager
def indexing(moving: Migration) -> Iterator[None]:
    """A worker for the index groups."""
    worker = moving.facade.store.triggers.worker(moving.facade.store.indexes.groups)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(60)
    assert not thread.is_alive()


class Traffic:
    """One thread's part of a company's day: reads of all kinds, puts, and the company's own SQL."""

    def __init__(self, moving: Migration, rows: list[UUID], seed: int) -> None:
        self.store = moving.store
        self.shadow = moving.duo.shadow
        self.rows = rows
        self.choose = random.Random(seed)
        self.done = Counter[str]()
        self.connection = moving.legacy.connect(autocommit=True)
        self.is_past_facade = moving.duo.ports.control.authority().backend is Backend.LEGACY
        self._works: list[tuple[int, Callable[[], object]]] = [
            (6, self.get_cell),
            (10, self.get_cell_latest),
            (6, self.get_cells),
            (6, self.get_cells_latest),
            (10, self.get_row),
            (8, self.get_history),
            (16, self.query_drivers),
            (6, self.query_tags),
            (6, self.scan),
            (6, self.put_base),
            (3, self.put_note),
            (3, self.put_status),
            (3, self.put_free),
            (2, self.put_batch),
            (2, self.append),
            (1, self.bury),
            (4, self.insert),
            (5, self.update),
            (2, self.delete),
            (3, self.write_notes),
        ]

    def run(self, operations: int) -> None:
        weights, works = zip(*self._works, strict=True)
        while self.done.total() < operations:
            work = self.choose.choices(works, weights)[0]
            with suppress(*_ANSWERS):
                work()
            self.done[work.__name__] += 1
            while self.shadow._samples.unfinished_tasks + self.shadow._suspects.unfinished_tasks > WAITING_MAX:
                time.sleep(0.001)  # what is compared much later than it was answered is only rechecked
        self.connection.close()

    @property
    def row(self) -> UUID:
        return self.choose.choice(self.rows)

    @property
    def column(self) -> str:
        return self.choose.choice(["BASE", "STATUS", "NOTES", "FREE"])

    def body(self) -> dict[str, Json]:
        return {
            "driver_uuid": driver(self.choose.randrange(DRIVERS)),
            "status": self.choose.choice(["requested", "accepted", "completed"]),
            "fare": f"{self.choose.randrange(100)}.50",
            "distance": self.choose.random() * 100,
            "request_at": f"2026-11-20T12:00:{self.choose.randrange(60):02}.000000Z",
        }

    def get_cell(self) -> None:
        column = self.column
        ref_key = self.choose.randrange(1, 6)
        self.store.get_cell(self.row, column, ref_key << 20 if column == "NOTES" else ref_key)

    def get_cell_latest(self) -> None:
        self.store.get_cell_latest(self.row, self.column)

    def get_cells(self) -> None:
        self.store.get_cells([CellKey(self.row, self.column, self.choose.randrange(1, 6)) for _ in range(4)])

    def get_cells_latest(self) -> None:
        self.store.get_cells_latest([ColumnKey(self.row, self.column) for _ in range(4)])

    def get_row(self) -> None:
        self.store.get_row(self.row, self.choose.choice([None, ["BASE", "FREE"]]))

    def get_history(self) -> None:
        before = self.choose.choice([None, 3])
        self.store.get_history(self.row, self.column, before=before, limit=self.choose.choice([2, 100]))

    def query_drivers(self) -> None:
        asked: dict[str, Any] = {
            "where": self.choose.choice(
                [[], [("status", "=", "completed")], [("fare", ">=", "50"), ("distance", "<", 70.0)]]
            ),
            "fields": self.choose.choice([None, ["fare", "result"]]),
            "columns": self.choose.choice([None, ["BASE"], "*"]),
            "order_by": self.choose.choice([None, "fare", "distance", "request_at", "text"]),
            "descending": self.choose.choice([False, True]),
            "consistency": self.choose.choice(["fast", "verified"]),
        }
        shard_value, cursor = UUID(driver(self.choose.randrange(DRIVERS))), None
        for _ in range(3):
            cursor = self.store.query_index("trips_of_driver", shard_value, **asked, limit=4, cursor=cursor).cursor
            if cursor is None:
                break

    def query_tags(self) -> None:
        self.store.query_index("by_tag", self.choose.choice("abc"), [("n", ">", 2)], order_by="n", limit=5)

    def scan(self) -> None:
        shard, after = self.choose.randrange(8), None
        for _ in range(2):
            after = self.store.scan_rows(shard, after, 5, self.choose.choice([None, ["BASE", "NOTES"]])).after
            if after is None:
                break

    def put_base(self) -> None:
        row_key = self.row
        latest = self.store.get_cell_latest(row_key, "BASE")
        self.store.put_cell(row_key, "BASE", 1 if latest is None else latest.ref_key + 1, self.body())

    def put_note(self) -> None:
        ref_key = (self.choose.randrange(1, 4) << 20) + self.choose.randrange(5)
        self.store.put_cell(self.row, "NOTES", ref_key, {"text": f"note {self.choose.randrange(9)}"})

    def put_status(self) -> None:
        self.store.put_cell(self.row, "STATUS", self.choose.randrange(1, 6), {"result": "captured"})

    def put_free(self) -> None:
        body: Json = {"tag": self.choose.choice("abc"), "n": self.choose.randrange(9), "more": [1.0, None, "ø"]}
        self.store.put_cell(self.row, "FREE", self.choose.randrange(1, 50), body)

    def put_batch(self) -> None:
        self.store.put_cells([Cell(uuid4(), "FREE", 1, {"tag": "batch", "n": n}) for n in range(3)])

    def append(self) -> None:
        self.store.append_cell(self.row, "EVENTS", {"n": self.choose.randrange(9)})

    def bury(self) -> None:
        row_key = self.row
        latest = self.store.get_cell_latest(row_key, "FREE")
        if latest is not None:
            self.store.put_cell(row_key, "FREE", latest.ref_key + 1, None)

    def insert(self) -> None:
        """A new row: ids and UUIDs of rows never change, so a service takes none twice."""
        row_key = self.rows[self.choose.randrange(len(self.rows))] = uuid4()
        self.sql(
            "INSERT INTO trips (trip_uuid, status, fare, driver_id) VALUES (%s, 'requested', 7.25, %s)",
            str(row_key),
            10 + self.choose.randrange(DRIVERS),
        )

    def update(self) -> None:
        self.sql(
            "UPDATE trips SET fare = COALESCE(fare, 0) + 1, status = %s, driver_id = %s WHERE trip_uuid = %s",
            self.choose.choice(["accepted", "completed"]),
            10 + self.choose.randrange(DRIVERS),
            str(self.row),
        )

    def delete(self) -> None:
        self.sql("DELETE FROM trips WHERE trip_uuid = %s", str(self.row))

    def write_notes(self) -> None:
        self.sql(
            "INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, %s, 'by hand' FROM trips"
            " WHERE trip_uuid = %s ON CONFLICT (trip_id, n) DO UPDATE SET text = notes.text || '.'",
            self.choose.randrange(1, 4),
            str(self.row),
        )

    def sql(self, statement: str, *values: object) -> None:
        if self.is_past_facade:
            with self.connection.cursor() as cursor:
                cursor.execute(statement, values)


def run_traffic(moving: Migration, operations: int, seed: int) -> Counter[str]:
    """All threads at once; what one raises is raised here."""
    rows = [uuid4() for _ in range(100)]
    crew = [Traffic(moving, rows, seed * 100 + n) for n in range(THREADS)]
    failures: list[BaseException] = []

    def run(traffic: Traffic) -> None:
        try:
            traffic.run(-(-operations // THREADS))
        except BaseException as error:  # noqa: BLE001  # raised in the test's own thread below
            failures.append(error)

    running = [threading.Thread(target=run, args=(traffic,)) for traffic in crew]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(3600)
    if failures:
        raise failures[0]
    return sum((traffic.done for traffic in crew), Counter[str]())


def told(moving: Migration) -> list[str]:
    """Every mismatch, in words."""
    return [
        f"{mismatch.verdict.read.name} {dict(mismatch.verdict.read.arguments)}: {list(mismatch.verdict.differences)}"
        for mismatch in moving.duo.tally.mismatches()
    ]


_COMPANIES = [(phase, number) for phase, all_of in OPERATIONS.items() for number in range(-(-all_of // OF_COMPANY))]


@pytest.mark.parametrize(("phase", "number"), _COMPANIES)
def test_healthy_traffic_shows_no_mismatch(servers: LocalServers, stores: Stores, phase: Phase, number: int) -> None:
    """Everything is compared while services write: through the facade, and past it while they may."""
    with comparing(servers, stores) as moving, ExitStack() as running:
        moving.phase(phase)
        running.enter_context(relaying(moving) if phase is Phase.SHADOW else reversing(moving))
        running.enter_context(indexing(moving))

        operations = min(OF_COMPANY, OPERATIONS[phase] - number * OF_COMPANY)
        done = run_traffic(moving, operations, seed=random.randrange(1000))

        assert moving.duo.shadow.drain(600)
        tally = moving.duo.tally
        compared = tally.total(Outcome.EQUAL, Outcome.IN_FLIGHT)
        print(f"sqlite: {phase}: {done.total():,} operations, {compared:,} compared: {Counter(tally.counts())}")
        assert told(moving) == []
        assert tally.total(Outcome.NOT_COMPARED) <= compared / 50


# ------------------------------------------------------------------------------------------- injected differences


@pytest.fixture(scope="module")
def quiet(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """Nothing happens but what a test does; each has a row of its own."""
    with comparing(servers, stores) as moving:
        yield moving


@dataclass(frozen=True)
class Trip:
    """A row that both stores hold, and a driver's only one."""

    key: UUID
    driver: UUID


@pytest.fixture
def trip(quiet: Migration) -> Trip:
    made = Trip(uuid4(), uuid4())
    ((number,),) = quiet.legacy.sql("SELECT max(id) + 1 FROM users")
    quiet.legacy.sql("INSERT INTO users VALUES (%s, %s, 'x')", number, str(made.driver))
    for ref_key in (1, 2):
        body: Json = {"driver_uuid": str(made.driver), "status": f"status {ref_key}", "fare": "7.25"}
        quiet.store.put_cell(made.key, "BASE", ref_key, body)
    quiet.store.put_cell(made.key, "FREE", 1, {"tags": ["a", {"b": 1}]})
    settle(quiet)
    return made


def settle(moving: Migration) -> None:
    moving.carry()
    catch_up(moving.facade.store)


def in_mirror(moving: Migration, statement: str, *values: object) -> None:
    """Somebody's own SQL in the mirror's files; it changes one row of one of them."""
    changed = 0
    for cluster in ("a", "b"):
        file = folder_of(moving.document) / cluster / f"{moving.document['datastore']}.db"
        with closing(sqlite3.connect(file, timeout=20)) as connection, connection:
            changed += connection.execute(statement, values).rowcount
    assert changed == 1


Asking = Callable[[TripStore, Trip], object]

READS: dict[str, Asking] = {
    "get_cell": lambda store, trip: store.get_cell(trip.key, "BASE", 2),
    "get_cell_latest": lambda store, trip: store.get_cell_latest(trip.key, "BASE"),
    "get_cells": lambda store, trip: store.get_cells([CellKey(uuid4(), "BASE", 1), CellKey(trip.key, "BASE", 2)]),
    "get_cells_latest": lambda store, trip: store.get_cells_latest([ColumnKey(trip.key, "BASE")]),
    "get_row": lambda store, trip: store.get_row(trip.key),
    "get_history": lambda store, trip: store.get_history(trip.key, "BASE"),
    "scan_rows": lambda store, trip: store.scan_rows(store.shard_of(trip.key), UUID(int=trip.key.int - 1), 1, ["BASE"]),
    "query_index:trips_of_driver": lambda store, trip: store.query_index("trips_of_driver", trip.driver, columns="*"),
}


def differences(moving: Migration, read: Callable[[], object]) -> list[Difference]:
    """What the shadow told of one read; its caller got the same as ever."""
    tally = moving.duo.tally
    known, compared = tally.mismatches(), tally.total(Outcome.EQUAL, Outcome.MISMATCH)
    read()
    assert moving.duo.shadow.drain(60)
    assert tally.total(Outcome.EQUAL, Outcome.MISMATCH) == compared + 1, tally.counts()
    return [each for mismatch in tally.mismatches()[len(known) :] for each in mismatch.verdict.differences]


CORRUPT = "UPDATE cell SET body = ? WHERE row_key = ? AND column_name = ? AND ref_key = ?"
REMOVE = "DELETE FROM cell WHERE row_key = ? AND column_name = ? AND ref_key = ?"


@pytest.mark.parametrize("operation", READS)
def test_what_is_the_same_is_no_difference(quiet: Migration, trip: Trip, operation: str) -> None:
    assert differences(quiet, lambda: READS[operation](quiet.store, trip)) == []


@pytest.mark.parametrize("operation", READS)
def test_a_corrupted_cell_is_found_by_every_read(quiet: Migration, trip: Trip, operation: str) -> None:
    body = f'{{"driver_uuid":"{trip.driver}","fare":"7.26","status":"status 2"}}'.encode()
    in_mirror(quiet, CORRUPT, body, trip.key.bytes, b"BASE", 2)

    (found,) = differences(quiet, lambda: READS[operation](quiet.store, trip))

    assert found.kind is DifferenceClass.FIELD
    names = {"scan_rows": f"row {trip.key}", "query_index:trips_of_driver": f"entry of {trip.key}"}
    assert found.entry == names.get(operation, f"BASE@2 of {trip.key}")
    assert found.path == ("cells.BASE.[1].fare" if operation in names else "fare")


def test_a_corrupted_part_of_a_body_is_told_by_its_path(quiet: Migration, trip: Trip) -> None:
    in_mirror(quiet, CORRUPT, b'{"tags":["a",{"b":2}]}', trip.key.bytes, b"FREE", 1)

    found = differences(quiet, lambda: quiet.store.get_cell(trip.key, "FREE", 1))

    assert found == [Difference(DifferenceClass.FIELD, f"FREE@1 of {trip.key}", "tags[1].b")]


@pytest.mark.parametrize("operation", ["get_cell", "get_cells", "get_history"])
def test_a_missing_cell_is_found(quiet: Migration, trip: Trip, operation: str) -> None:
    in_mirror(quiet, REMOVE, trip.key.bytes, b"BASE", 2)

    found = differences(quiet, lambda: READS[operation](quiet.store, trip))

    assert found == [Difference(DifferenceClass.MISSING, f"BASE@2 of {trip.key}")]


@pytest.mark.parametrize("operation", ["get_cell_latest", "get_cells_latest", "get_row"])
def test_an_older_cell_in_place_of_a_missing_one_is_found(quiet: Migration, trip: Trip, operation: str) -> None:
    in_mirror(quiet, REMOVE, trip.key.bytes, b"BASE", 2)

    found = differences(quiet, lambda: READS[operation](quiet.store, trip))

    assert Difference(DifferenceClass.FIELD, f"BASE@2 of {trip.key}", "ref_key") in found or found == [
        Difference(DifferenceClass.MISSING, f"BASE@2 of {trip.key}"),
        Difference(DifferenceClass.EXTRA, f"BASE@1 of {trip.key}"),
    ]


@pytest.mark.parametrize("operation", ["get_cell", "get_row", "get_history"])
def test_an_extra_cell_is_found(quiet: Migration, trip: Trip, operation: str) -> None:
    quiet.facade.store.as_copier().put_cell(trip.key, "OTHER", 7, "nobody put it")
    reads: dict[str, Asking] = {
        "get_cell": lambda store, trip: store.get_cell(trip.key, "OTHER", 7),
        "get_row": READS["get_row"],
        "get_history": lambda store, trip: store.get_history(trip.key, "OTHER"),
    }

    found = differences(quiet, lambda: reads[operation](quiet.store, trip))

    assert found == [Difference(DifferenceClass.EXTRA, f"OTHER@7 of {trip.key}")]


def test_a_stale_index_entry_is_found(quiet: Migration, trip: Trip) -> None:
    in_mirror(quiet, "UPDATE index_trips_of_driver_v1 SET f_status = ? WHERE row_key = ?", b"status 1", trip.key.bytes)

    found = differences(quiet, lambda: quiet.store.query_index("trips_of_driver", trip.driver))

    assert found == [Difference(DifferenceClass.FIELD, f"entry of {trip.key}", "status")]


def test_a_missing_index_entry_is_found(quiet: Migration, trip: Trip) -> None:
    in_mirror(quiet, "DELETE FROM index_trips_of_driver_v1 WHERE row_key = ?", trip.key.bytes)

    found = differences(quiet, lambda: quiet.store.query_index("trips_of_driver", trip.driver))

    assert found == [Difference(DifferenceClass.MISSING, f"entry of {trip.key}")]


def test_an_extra_index_entry_is_found_on_every_page(quiet: Migration, trip: Trip) -> None:
    """The row went; its entry did not."""
    quiet.store.put_cell(trip.key, "BASE", 3, None)
    settle(quiet)
    in_mirror(quiet, "UPDATE index_trips_of_driver_v1 SET dead = 0 WHERE row_key = ?", trip.key.bytes)

    found = differences(quiet, lambda: quiet.store.query_index("trips_of_driver", trip.driver))

    assert found == [Difference(DifferenceClass.EXTRA, f"entry of {trip.key}")]


def test_what_is_still_in_the_queue_is_no_mismatch(quiet: Migration, trip: Trip) -> None:
    quiet.store.put_cell(trip.key, "BASE", 3, {"status": "new"})
    tally = quiet.duo.tally
    busy = sum(count for (_name, _outcome, label), count in tally.counts().items() if label == Reason.BUSY)
    known = len(tally.mismatches())

    quiet.store.get_cell_latest(trip.key, "BASE")

    assert quiet.duo.shadow.drain(60)
    assert len(tally.mismatches()) == known
    assert sum(count for (_name, _outcome, label), count in tally.counts().items() if label == Reason.BUSY) == busy + 1
    settle(quiet)


def test_a_field_that_changes_there_and_back_is_in_flight(quiet: Migration, trip: Trip) -> None:
    """An entry does not say by which cells: what moved during a recheck must not seem to have rested."""
    store, moves = quiet.store, cycle(["there", "back"])
    read = Read("query_index", {"index": "trips_of_driver", "shard_value": trip.driver, "fields": ["status"]})

    def change(status: str) -> None:
        latest = store.get_cell_latest(trip.key, "BASE")
        assert latest is not None
        body: Json = {"driver_uuid": str(trip.driver), "status": status}
        store.put_cell(trip.key, "BASE", latest.ref_key + 1, body)

    class Moving:
        """The mirror has what the authority had, and then more."""

        def has_arrived(self, _read: Read) -> bool:
            assert next(moves) == "there"
            change("there")
            settle(quiet)
            return True

    class AskedLast:
        """The mirror; while it answers, the field changes back."""

        def using(self, **_habits: Any) -> Any:
            return self

        def query_index(self, **arguments: Any) -> Any:
            page = quiet.facade.store.as_copier().query_index(**arguments)
            assert next(moves) == "back"
            change("back")
            return page

    change("back")
    settle(quiet)
    verdict = Recheck(Moving(), 20.0).verdict(read, store, cast(CellStore, AskedLast()))

    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_COMPARED, Reason.BUSY)


def test_old_against_old_does_not_ask_the_mirror(quiet: Migration, trip: Trip) -> None:
    """A/A: what is wrong in the mirror is none of its business."""
    in_mirror(quiet, REMOVE, trip.key.bytes, b"BASE", 2)
    flags = quiet.facade.flags
    flags.change(lambda found: replace(found, comparing=Comparing(is_against_itself=True)), "test.against_itself")
    quiet.duo.watch.look()
    try:
        for read in READS.values():
            assert differences(quiet, lambda read=read: read(quiet.store, trip)) == []  # type: ignore[misc]
    finally:
        flags.change(lambda found: replace(found, comparing=Comparing()), "test.against_the_mirror")
        quiet.duo.watch.look()
    assert differences(quiet, lambda: quiet.store.get_cell(trip.key, "BASE", 2))


def test_a_mirror_slower_than_the_deadline_is_a_timeout(servers: LocalServers, stores: Stores) -> None:
    """Schemaless is the authority; somebody holds a table of Postgres."""
    with comparing(servers, stores, deadline_seconds=0.1) as moving:
        key = uuid4()
        moving.phase(Phase.LIVE)
        moving.store.put_cell(key, "FREE", 1, "here")
        moving.carry()
        assert differences(moving, lambda: moving.store.get_cell(key, "FREE", 1)) == []
        holder = moving.legacy.connect()
        with closing(holder), holder.cursor() as cursor:
            cursor.execute("LOCK TABLE tripstore.cell IN ACCESS EXCLUSIVE MODE")

            (found,) = differences(moving, lambda: moving.store.get_cell(key, "FREE", 1))

        assert found.kind is DifferenceClass.TIMEOUT
