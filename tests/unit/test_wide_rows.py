"""A row of many columns is read by many names in one pass over its cells."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from time import perf_counter
from uuid import uuid4

from schemaless_core import Cell, Datastore

COLUMNS, NAMES = 1_000, 100_000


def test_names_are_not_looked_through_for_each_cell(tmp_path: Path) -> None:
    config = {"datastore": "trips", "shards": 1, "clusters": {"a": {"primary": f"sqlite:///{tmp_path}/a"}}}
    key, names = uuid4(), [f"C{n:05}" for n in reversed(range(NAMES))]
    with closing(Datastore.open(config)) as store:
        store.create_schema()
        store.using(deadline=30).put_cells([Cell(key, name, 1, {}) for name in names[-COLUMNS:]])
        started = perf_counter()
        found = store.get_row(key, columns=names)
        seconds = perf_counter() - started

    assert len(found) == COLUMNS
    # The control: what looks through the names for each cell takes longer for a tenth of them.
    started = perf_counter()
    assert all(name in names for name in names[-COLUMNS // 10 :])
    assert seconds < 10 * (perf_counter() - started)
