"""What stands in the files of an export, as a warehouse reads them, and what should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from schemaless_core import Datastore
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.logcopy.throttle import CopyThrottle
from tripstore.export.commits import ExportFolder
from tripstore.export.exporter import Exporter, ExportReport

FILES = "column_name=*/day=*/*.parquet"
#: Where an export may die.
POINTS = ("export.file_written", "export.before_commit", "export.committed", "export.file_moved")


def exported(folder: Path) -> list[tuple[Any, ...]]:
    """Every row of every file that a reader sees, each as often as it is there."""
    if not list(folder.glob(FILES)):
        return []
    return answer(
        f"SELECT shard, added_id, row_key, column_name, ref_key, body FROM read_parquet('{folder}/{FILES}',"
        " hive_partitioning = true, union_by_name = true) ORDER BY ALL"
    )


def exporter_into(store: Datastore, folder: Path, commit_bytes: int = 1 << 20) -> Exporter:
    throttle = CopyThrottle(lambda: None)
    return Exporter(store, ExportFolder(folder), (), columns=None, commit_bytes=commit_bytes, throttle=throttle)


def export_into(store: Datastore, folder: Path) -> ExportReport:
    return exporter_into(store, folder).run(lambda done: None)


def answer(query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in relation(query).fetchall()]


def relation(query: str) -> duckdb.DuckDBPyRelation:
    found = duckdb.sql(query)
    assert found is not None, f"no query: {query}"
    return found


def logged(store: Datastore) -> list[tuple[Any, ...]]:
    """Every cell of every log."""
    pages = {shard: store.get_cells_for_shard(shard, 0, 10_000) for shard in range(store.config.shards)}
    return sorted(
        (shard, cell.added_id, cell.row_key, cell.column_name, cell.ref_key, canonical_bytes(cell.body).decode())
        for shard, page in pages.items()
        for cell in page.cells
    )


def rows_per_file(folder: Path) -> list[int]:
    return [pq.ParquetFile(file).read().num_rows for file in folder.glob(FILES)]
