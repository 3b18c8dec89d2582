"""What a value of an index takes that many rows have."""

from __future__ import annotations

from uuid import uuid4

from benchmarks.cells import BODY, SHARDS, config_of
from benchmarks.growth.figures import Growth, p50_ms, seconds_of
from benchmarks.indexes import DEFINITION, INDEX
from benchmarks.migration import wait
from benchmarks.triggers import running
from schemaless_core import Datastore, canonical_bytes
from schemaless_core.cell.encoded import EncodedCell
from tripstore.local.servers import LocalServers

ENTRIES = (1_000, 100_000, 1_000_000)
PAGE = 100
CELLS_PER_PUT = 2_000
FILLED_SECONDS = 900.0
ROOM = {"innodb-buffer-pool-size": "2G", "innodb-log-file-size": "1G"}


def measure(scale: float) -> Growth:
    sizes = tuple(max(round(size * scale), PAGE) for size in ENTRIES)
    growth = Growth("An index value that many rows have", "entries", sizes)
    for number, entries in enumerate(sizes):
        with LocalServers() as servers:
            clusters = servers.clusters("mariadb", ["a"], replicas=0, settings=ROOM)
            config = config_of(f"entries{number}", SHARDS, clusters) | {"indexes": [DEFINITION]}
            with Datastore.open(config) as store:
                store.create_schema()
                _fill(store, entries)
                _ask(store, growth, entries)
    return growth


def _fill(store: Datastore, entries: int) -> None:
    copier, body = store.as_copier(), canonical_bytes(BODY)
    for first in range(0, entries, CELLS_PER_PUT):
        count = min(CELLS_PER_PUT, entries - first)
        copier.put_encoded([EncodedCell(uuid4().bytes, b"BASE", 1, body) for _ in range(count)])
    with running(store.triggers.worker(store.indexes.groups)):
        wait(lambda: _lag(store) == 0, FILLED_SECONDS)


def _lag(store: Datastore) -> int:
    return sum(version.lag_cells for index in store.indexes.status() for version in index.versions)


def _ask(store: Datastore, growth: Growth, entries: int) -> None:
    driver = str(BODY["driver_partner_uuid"])  # type: ignore[call-overload,index]  # it is an object
    page = store.query_index(INDEX, driver, limit=PAGE)
    growth.note("first page of 100 (ms)", p50_ms(lambda: store.query_index(INDEX, driver, limit=PAGE)))
    growth.note("second page (ms)", p50_ms(lambda: store.query_index(INDEX, driver, limit=PAGE, cursor=page.cursor)))
    newest = {"order_by": "trip_created_at", "descending": True, "limit": PAGE}
    growth.note(
        "100 by a field, the last first (ms)",
        p50_ms(lambda: store.query_index(INDEX, driver, **newest), calls=20),  # type: ignore[arg-type]  # as above
    )
    growth.note("put of one more (ms)", p50_ms(lambda: store.put_cell(uuid4(), "BASE", 1, BODY)))
    growth.note("all entries, page by page (s)", seconds_of(lambda: _page_through(store, driver)))


def _page_through(store: Datastore, driver: str) -> None:
    cursor: str | None = None
    while True:
        cursor = store.query_index(INDEX, driver, limit=1_000, cursor=cursor).cursor
        if cursor is None:
            return
