"""The index's step: the trips of a driver are found, and found elsewhere when their driver changes.

The index is created when the cells are there already, as it would be in a company that needs one more. What it says is
held against a scan of all rows.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Literal
from uuid import UUID

from schemaless_core.cell import Cell
from schemaless_core.datastore import Datastore
from tripstore.config import load_config
from tripstore.demo.journal import Acknowledged, acknowledged
from tripstore.demo.report import Step
from tripstore.demo.trips import DRIVERS
from tripstore.demo.workers import Workers
from tripstore.errors import TripstoreError

INDEX = "driver_partner_index"
CHANGES = 60
#: Of them, those whose entries are waited for one by one.
WATCHED = 20
GIVE_UP_SECONDS = 30.0
ROWS_PER_PAGE = 500
ENTRIES_PER_PAGE = 50

DEFINITION = f"""\
table: {INDEX}          # the name of the index
column_defs:
  - column_key: BASE                 # the column whose latest cell the fields are taken from
    fields:
      - {{field: driver_partner_uuid, type: UUID}}    # the shard field: every query names its value
      - {{field: city, type: string}}
      - {{field: trip_created_at, type: datetime}}
"""

#: The row keys of each driver's trips.
Drives = Mapping[UUID, set[UUID]]


def find_drives(step: Step, workers: Workers, config: Path) -> list[Acknowledged]:
    """Create the index, ask it, let trips change their driver, ask it again; return what was promised."""
    _define(config)
    with Datastore(load_config(config).core) as store:
        store.indexes.create(INDEX)
        _fill(step, workers, store)
        asked, scanned = _ask(store), _scan(store)
        _check_equal(step, "the index says what a scan says", asked, scanned)
        step.say(f"{sum(map(len, asked.values())):,} trips of {len(asked)} drivers; {_speed(store)}")
        changes = _changes(store, scanned)
        promises = _change_and_look(step, store, changes[:WATCHED]) + _put(store, changes[WATCHED:])
        verified = _ask(store, "verified")
        _check_equal(step, "a verified answer is that of the cells, at once", verified, _scan(store))
        workers.wait_until("the index knows all changes", lambda: _lag(store) == 0)
        _check_equal(step, f"after {len(changes)} trips changed their driver it says so", _ask(store), _scan(store))
        workers.finish()
    return promises


def _define(config: Path) -> None:
    """Write down the index as a person would: a file of its own, and a line in the configuration."""
    folder = config.parent / "indexes"
    folder.mkdir()
    (folder / f"{INDEX}.yaml").write_text(DEFINITION)
    with config.open("a") as file:
        file.write("\nindexes: indexes\n")


def _fill(step: Step, workers: Workers, store: Datastore) -> None:
    """Have a worker fill the index from the log, and let it answer once it is verified."""
    started = time.monotonic()
    workers.start("worker", "run")
    workers.wait_until("the index is filled", lambda: _lag(store) == 0)
    filled = time.monotonic()
    report = store.indexes.verify(INDEX)
    step.say(f"filled from the log in {filled - started:.1f} s, the start of its worker included")
    detail = f"{report.entries:,} entries and {report.rows:,} rows in {time.monotonic() - filled:.1f} s"
    step.check("its entries are right, both ways", report.is_clean and report.entries == report.rows, detail)
    store.indexes.promote(INDEX, report.version)


def _changes(store: Datastore, drives: Drives) -> list[Cell]:
    """New versions of some trips, each with another driver."""
    trips = [(driver, row_key) for driver in drives for row_key in sorted(drives[driver])]
    chosen = trips[:: max(1, len(trips) // CHANGES)]
    return [_changed(store, row_key, DRIVERS[DRIVERS.index(driver) - 1]) for driver, row_key in chosen]


def _changed(store: Datastore, row_key: UUID, driver: UUID) -> Cell:
    latest = store.get_cell_latest(row_key, "BASE")
    assert latest is not None
    assert isinstance(latest.body, dict)
    return Cell(row_key, "BASE", latest.ref_key + 1, {**latest.body, "driver_partner_uuid": str(driver)})


def _change_and_look(step: Step, store: Datastore, changes: Sequence[Cell]) -> list[Acknowledged]:
    """Put changes one by one, and look when the index says so, which no put waits for."""
    promises, seconds = [], []
    for cell in changes:
        promises += _put(store, [cell])
        put_at = time.monotonic()
        while not _is_found(store, cell):
            if time.monotonic() > put_at + GIVE_UP_SECONDS:
                raise TripstoreError(f"The index does not know the driver of {cell.row_key}.")
        seconds.append(time.monotonic() - put_at)
    figures = f"median {median(seconds) * 1000:.1f} ms, at most {max(seconds) * 1000:.0f} ms"
    step.say(f"{len(changes)} trips got another driver and were found there: {figures} after the put")
    return promises


def _is_found(store: Datastore, cell: Cell) -> bool:
    assert isinstance(cell.body, dict)
    driver, created_at = UUID(str(cell.body["driver_partner_uuid"])), cell.body["trip_created_at"]
    page = store.query_index(INDEX, driver, [("trip_created_at", "=", created_at)])
    return any(entry.row_key == cell.row_key for entry in page.entries)


def _put(store: Datastore, cells: Sequence[Cell]) -> list[Acknowledged]:
    results = store.put_cells(cells)
    at = time.monotonic()
    return [acknowledged(cell, result, at, None) for cell, result in zip(cells, results, strict=True)]


def _ask(store: Datastore, consistency: Literal["fast", "verified"] = "fast") -> Drives:
    """All that the index says: every driver's trips, page by page."""
    found = {}
    for driver in DRIVERS:
        trips, cursor, is_last = set[UUID](), None, False
        while not is_last:
            page = store.query_index(
                INDEX,
                driver,
                order_by="trip_created_at",
                limit=ENTRIES_PER_PAGE,
                cursor=cursor,
                consistency=consistency,
            )
            trips |= {entry.row_key for entry in page.entries}
            cursor, is_last = page.cursor, page.cursor is None
        if trips:
            found[driver] = trips
    return found


def _scan(store: Datastore) -> Drives:
    """What the cells say: every row of every shard."""
    found: defaultdict[UUID, set[UUID]] = defaultdict(set)
    for shard in range(store.config.shards):
        after = None
        while True:
            page = store.scan_rows(shard, after, ROWS_PER_PAGE, ["BASE"])
            for row in page.rows:
                body = row.cells["BASE"].body
                assert isinstance(body, dict)
                found[UUID(str(body["driver_partner_uuid"]))].add(row.row_key)
            after = page.after
            if after is None:
                break
    return found


def _speed(store: Datastore) -> str:
    seconds = []
    for driver in DRIVERS:
        started = time.perf_counter()
        store.query_index(INDEX, driver)
        seconds.append(time.perf_counter() - started)
    return f"a query {median(seconds) * 1000:.2f} ms"


def _lag(store: Datastore) -> int:
    [index] = store.indexes.status()
    return sum(version.lag_cells + version.unknown_shards for version in index.versions)


def _check_equal(step: Step, name: str, asked: Drives, scanned: Drives) -> None:
    right = sum(asked.get(driver) == scanned[driver] for driver in scanned)
    step.check(name, asked == scanned, f"{right} of {len(scanned)} drivers alike")
