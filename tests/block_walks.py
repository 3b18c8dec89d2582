"""Walks by blocks as tests see them: a past that fills many blocks with room in the first ones, and what is done to it
between two chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast
from uuid import UUID

import pytest

from schemaless_core.cell.cell import CellKey
from schemaless_core.control.jobs.jobs import Job
from tests.facades import Migration, migration
from tests.stores import Stores
from tripstore.engines.backfill.runner import Ending
from tripstore.engines.backfill.throttle import Pause, Throttle
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.backfill.walk import WalkKind
from tripstore.phase import Phase

#: Blocks of about 30 trips each, with children whose order is another one than their parents'. In the first blocks
#: there is room.
PAST = """
INSERT INTO trips (trip_uuid, status, memo)
    SELECT gen_random_uuid(), 'old ' || n, repeat('m', 150) FROM generate_series(1, {trips}) AS n;
INSERT INTO notes (trip_id, trip_uuid, n, text, memo)
    SELECT id, trip_uuid, k, 'note ' || k, repeat('m', 100) FROM trips, generate_series(1, 2) AS k
    WHERE id % 2 = 0 ORDER BY trip_uuid;
INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result, memo)
    SELECT id, trip_uuid, k, 'tried', repeat('m', 100) FROM trips, generate_series(1, 2) AS k
    WHERE id % 3 = 0 ORDER BY trip_uuid DESC;
DELETE FROM trips WHERE (ctid::text::point)[0] < 2 AND id % 2 = 1;
DELETE FROM tripstore.queue;
"""
#: Not within a transaction.
ROOM = "VACUUM ANALYZE"
#: Rows of the last block that is full go to where there is room, by an UPDATE that no mapped column knows of.
MOVE_BACK = """
UPDATE {table} SET memo = reverse(memo) WHERE ctid IN (
    SELECT ctid FROM {table} WHERE (ctid::text::point)[0] < (SELECT max((ctid::text::point)[0]) FROM {table})
    ORDER BY ctid DESC LIMIT {rows}
) RETURNING trip_uuid::text
"""


def fill(made: Migration, trips: int = 400) -> None:
    """A past from before capture, in which rows find room in blocks that are read first."""
    made.legacy.sql(PAST.format(trips=trips))
    made.legacy.sql(ROOM)


@contextmanager
def walkable(servers: LocalServers, stores: Stores, postgres: str) -> Iterator[Migration]:
    """A company with a past from before capture, and a mirror that is on."""
    options = {"parts": 6, "lease_seconds": 5.0, "patience_seconds": 10.0}
    with migration(servers, stores, postgres=postgres, backfill=options) as opened:
        fill(opened)
        opened.phase(Phase.DUALWRITE)
        yield opened


class Between(Throttle):
    """It holds nothing back: it does something between two chunks."""

    def __init__(self, do: Callable[[int], object]) -> None:
        self._do = do
        self._chunks = 0

    def take(self, rows: int) -> Pause | None:
        self._do(self._chunks)
        self._chunks += 1
        return None


def walked(
    backfill: Backfill, monkeypatch: pytest.MonkeyPatch, do: Callable[[int], object], chunk_rows: int | None = 40
) -> Job:
    """A job by blocks, run to its end, with something done before each chunk, of which the first is number 0."""
    monkeypatch.setattr(Backfill, "_throttle", lambda *_: Between(do))
    job = backfill.begin(backfill.plan(Wanted(chunk_rows=chunk_rows, walk=WalkKind.BLOCKS)))
    ending = backfill.runner(job, "w").run()
    assert ending is Ending.DONE, ending
    return job


def has_read_all_blocks(backfill: Backfill) -> bool:
    """Whether the newest job is at its end."""
    job = backfill.jobs.find("backfill", "last")
    (of_blocks, *_) = cast("list[int]", job.spec["stages"])
    return backfill.jobs.progress(job.id).parts_done >= of_blocks


def is_at_its_last_part(backfill: Backfill) -> bool:
    """Whether the newest job has read all that it wants."""
    progress = backfill.jobs.progress(backfill.jobs.find("backfill", "last").id)
    return progress.parts_done == progress.parts - 1


def lacking(made: Migration) -> set[CellKey]:
    """Cells of rows that stand in the tables and not in Schemaless, children and all."""
    listed = [
        CellKey(UUID(key), column, ref_key)
        for table, column, number in (
            ("trips", "BASE", "base_version"),
            ("notes", "NOTES", "n * 1048576 + note_version"),
            ("attempts", "STATUS", "attempt_no"),
        )
        for key, ref_key in made.legacy.sql(f"SELECT trip_uuid::text, {number} FROM {table}")
    ]
    ids = [CellKey(UUID(key), "_LEGACY_ID", 0) for (key,) in made.legacy.sql("SELECT trip_uuid::text FROM trips")]
    found = made.facade.store.get_cells([*listed, *ids])
    return {key for key, cell in zip([*listed, *ids], found, strict=True) if cell is None}


def left_in_postgres(made: Migration) -> list[str]:
    """Of walks: triggers, functions, tables."""
    found = made.legacy.sql(
        "SELECT tgname::text FROM pg_trigger WHERE tgname LIKE '%walk\\_%' UNION ALL"
        " SELECT proname::text FROM pg_proc WHERE proname LIKE 'walk\\_%' UNION ALL"
        " SELECT relname::text FROM pg_class WHERE relname LIKE 'walk\\_%'"
    )
    return [name for (name,) in found]
