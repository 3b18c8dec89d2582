"""Healthy traffic of every operation over a company whose reads are all compared."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID, uuid4

import psycopg2.errors

from schemaless_core import Cell, CellConflict, CellKey, ColumnKey, Json
from tests.crew import quick
from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

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
            (3, self.resolve_ids),
            (3, self.legacy_ids),
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
                self.shadow.drain(0.001)  # what is compared much later than it was answered is only rechecked
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

    def resolve_ids(self) -> None:
        self.store.resolve_ids([self.choose.randrange(1, 1000) for _ in range(4)])

    def legacy_ids(self) -> None:
        self.store.legacy_ids([self.row for _ in range(4)])

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
