"""What one row takes that has many versions."""

from __future__ import annotations

from itertools import count
from uuid import UUID, uuid4

from benchmarks.cells import BODY, SHARDS, config_of
from benchmarks.growth.figures import Growth, p50_ms, seconds_of
from schemaless_core import Cell, Datastore
from tripstore.local.servers import LocalServers

VERSIONS = (100, 10_000, 100_000)
PAGE = 1_000


def measure(scale: float) -> Growth:
    sizes = tuple(max(round(size * scale), 100) for size in VERSIONS)
    growth = Growth("A row of many versions", "cells of one column", sizes)
    with LocalServers() as servers:
        clusters = servers.clusters("mariadb", ["a"], replicas=0)
        with Datastore.open(config_of("rows", SHARDS, clusters)) as store:
            store.create_schema()
            for versions in sizes:
                _row(store, growth, versions)
    return growth


def _row(store: Datastore, growth: Growth, versions: int) -> None:
    row_key = uuid4()
    for first in range(1, versions + 1, 2_000):
        some = range(first, min(first + 2_000, versions + 1))
        store.put_cells([Cell(row_key, "BASE", number, BODY) for number in some])
    numbers = count(versions + 1)
    growth.note("next version (ms)", p50_ms(lambda: store.put_cell(row_key, "BASE", next(numbers), BODY)))
    growth.note("latest version (ms)", p50_ms(lambda: store.get_cell_latest(row_key, "BASE")))
    growth.note("whole row (ms)", p50_ms(lambda: store.get_row(row_key)))
    growth.note("newest 100 versions (ms)", p50_ms(lambda: store.get_history(row_key, "BASE", limit=100)))
    growth.note(
        "100 versions from its middle (ms)",
        p50_ms(lambda: store.get_history(row_key, "BASE", before=versions // 2, limit=100)),
    )
    growth.note("all versions, page by page (s)", seconds_of(lambda: _page_through(store, row_key)))


def _page_through(store: Datastore, row_key: UUID) -> None:
    before: int | None = None
    while page := store.get_history(row_key, "BASE", before=before, limit=PAGE):
        before = page[-1].ref_key
