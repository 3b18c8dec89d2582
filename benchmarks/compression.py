"""Bodies of the example company, compressed and plain: bytes per cell on the server, and what a put and a get take."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import click

from benchmarks.bulk import company
from benchmarks.cells import SHARDS, Config, config_of
from benchmarks.timing import Comparison, compare, paired
from schemaless_core import Cell, Datastore, Json
from schemaless_core.compression.compress_jobs import CompressOrder
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.cli.cell.train import BYTES, SAMPLES
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.local.replication import LocalCluster

TRIPS = 6_000
#: Of the cells that puts and gets are measured with; the others are what dictionaries are made from.
MEASURED = 4_000


def measure(postgres: PostgresServer, clusters: list[LocalCluster], *, quick: bool) -> Iterator[Comparison]:
    """On a server of each engine."""
    calls, pairs = (60, 3) if quick else (400, 11)
    url, layout = company(postgres, "compression", 4_000 if quick else TRIPS)
    with PostgresBackend(LegacyDatabase(url), layout, shards=SHARDS) as legacy:
        cells = [cell for shard in range(SHARDS) for cell in _cells(legacy, shard)]
    click.echo(f"  {len(cells):,} cells of {len({cell.column_name for cell in cells})} columns")
    for cluster in clusters:
        click.echo(f"  {cluster.primary.version}")
        yield from _on(cluster, cells, calls, pairs)


def _cells(legacy: PostgresBackend, shard: int) -> Iterator[Cell]:
    """The latest of each column of each row."""
    after: UUID | None = None
    while (page := legacy.scan_rows(shard, after)).rows:
        after = page.rows[-1].row_key
        yield from (cell for row in page.rows for cell in row.cells.values())


def _on(cluster: LocalCluster, cells: list[Cell], calls: int, pairs: int) -> Iterator[Comparison]:
    columns = sorted({cell.column_name for cell in cells})
    config: Config = config_of("plain", SHARDS, [cluster])
    compressed: Config = config_of("compressed", SHARDS, [cluster]) | {"compression": {"columns": columns}}
    with Datastore.open(config) as plain, Datastore.open(compressed) as store:
        for each in (plain, store):
            each.create_schema()
            for first in range(0, len(cells), 500):
                each.put_cells(cells[first : first + 500])
        for column in columns:
            trained = store.training.train(column, BYTES, SAMPLES)
            store.training.keep(trained)
            share = trained.bytes_compressed / trained.bytes_plain
            click.echo(f"    {column}: {trained.bytes_plain / trained.measured:,.0f} bytes a body, {share:.2f} of it")
        job = store.compress_jobs.begin(store.compress_jobs.plan(CompressOrder()))
        store.compress_jobs.runner(job, "benchmark").run()
        sizes = [_bytes_per_cell(cluster.primary, name) for name in ("compressed", "plain")]
        name = "bytes of bodies per cell, compressed / plain"
        yield paired(name, sizes[:1], sizes[1:], unit="B", bound=("<=", 0.5))
    # A new process each: its writers know the dictionaries from the first put on.
    with Datastore.open(config) as plain, Datastore.open(compressed) as store:
        yield from _calls(store, plain, cells, calls, pairs)


def _calls(store: Datastore, plain: Datastore, cells: list[Cell], calls: int, pairs: int) -> Iterator[Comparison]:
    def put(into: Datastore) -> Callable[[], object]:
        turn = itertools.cycle(cells[:MEASURED])

        def one() -> None:
            cell = next(turn)
            into.put_cell(uuid4(), cell.column_name, 1, cell.body)

        return one

    def get(of: Datastore) -> Callable[[], object]:
        turn = itertools.cycle(cells[:MEASURED])

        def one() -> Json:
            cell = next(turn)
            found = of.get_cell_latest(cell.row_key, cell.column_name)
            assert found is not None
            return found.body

        return one

    yield compare("put_cell, compressed / plain", put(store), put(plain), calls=calls, pairs=pairs, bound=("<=", 1.1))
    name = "get_cell_latest, compressed / plain"
    yield compare(name, get(store), get(plain), calls=calls, pairs=pairs, bound=("<=", 1.1))


def _bytes_per_cell(server: BinlogServer, name: str) -> float:
    statement = "SELECT COUNT(*) AS cells, COALESCE(SUM(LENGTH(body)), 0) AS bytes FROM {}_{:04d}.cell"
    sums = [server.query(statement.format(name, number))[0] for number in range(SHARDS)]
    return sum(int(str(each["bytes"])) for each in sums) / sum(int(str(each["cells"])) for each in sums)
