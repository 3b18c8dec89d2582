"""What jobs spare, as tests drive it: a probe that waits for a lock, and tables of which no block is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from schemaless_core.control.jobs.jobs import Jobs
from tests.facades import Migration
from tripstore.cli.jobs.documents import ProgressDocument, progress_document

#: Waits for as long as a test holds the table, as services would.
PROBE = "SELECT count(*) FROM contended"
LIMIT_SECONDS, DEADLINE_SECONDS = 0.5, 2.0
PROBING: dict[str, Any] = {
    "probe": PROBE,
    "probe_seconds_max": LIMIT_SECONDS,
    "probe_deadline_seconds": DEADLINE_SECONDS,
}
NO_ANSWER = f"the probe had no answer within {1000 * DEADLINE_SECONDS:g} ms, the limit is {1000 * LIMIT_SECONDS:g} ms"
CONTENDED = "CREATE TABLE contended ()"
#: Ends whatever holds it.
RELEASED = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE relation = 'contended'::regclass AND mode = 'AccessExclusiveLock' AND granted"""
#: Seven rows or so in each block.
WIDE = """
INSERT INTO trips (status, memo) SELECT 'old', repeat('m', 1000) FROM generate_series(1, {trips});
ANALYZE trips;
DELETE FROM tripstore.queue
"""
_COLD = "cold"


class FewRows:
    """Turns of few rows, which wait for nothing."""

    counts_blocks = True

    def __init__(self, rows: int = 3) -> None:
        self._rows = rows
        #: Rows of each turn.
        self.turns: list[int] = []
        self.blocks_read = 0

    def next_rows(self) -> int:
        return self._rows

    def read(self, rows: int, seconds: float, blocks_read: int) -> None:
        self.turns.append(rows)
        self.blocks_read += blocks_read


@contextmanager
def services_wait(made: Migration) -> Iterator[None]:
    """As long as the block lasts."""
    with closing(made.legacy.connect()) as holding:
        holding.cursor().execute("LOCK TABLE contended IN ACCESS EXCLUSIVE MODE")
        yield


def chill(made: Migration, *tables: str) -> None:
    """Have none of their blocks in Postgres' memory: a file that moves is copied past it."""
    server = made.legacy.server
    if not server.query("SELECT 1 FROM pg_tablespace WHERE spcname = %s", _COLD):
        with closing(made.legacy.connect()) as connection:
            connection.autocommit = True
            connection.cursor().execute("SET allow_in_place_tablespaces = on")
            connection.cursor().execute(f"CREATE TABLESPACE {_COLD} LOCATION ''")
    for table in tables:
        made.legacy.sql(f"ALTER TABLE {table} SET TABLESPACE pg_default")
        made.legacy.sql(f"ALTER TABLE {table} SET TABLESPACE {_COLD}")


def heap_blocks(made: Migration, table: str) -> int:
    ((blocks,),) = made.legacy.sql("SELECT pg_relation_size(%s::regclass) / 8192", table)
    return int(str(blocks))


def seen(jobs: Jobs, job: str) -> ProgressDocument:
    """What `status` shows."""
    return progress_document(jobs.progress(job))
