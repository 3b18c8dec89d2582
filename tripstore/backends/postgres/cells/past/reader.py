"""`PastReader`: chunks of rows out of Postgres by COPY, as encoded cells, in row-key order.

A chunk is one transaction that reads as of one snapshot, so no row is torn, and the authority row is of that snapshot,
too: what is read while Postgres is not the authority is no past. What was read is durable before it is handed out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import psycopg2

from schemaless_core.process.collecting import uncollected
from tripstore.backends.postgres.capture.timeline import TIMELINE
from tripstore.backends.postgres.cells.past.chunk_reading import ChunkReading
from tripstore.backends.postgres.cells.past.chunk_rows import BY_INDEX, Asking, reach
from tripstore.backends.postgres.cells.past.copied_lines import CopyTooLarge
from tripstore.backends.postgres.cells.past.pauses import Rests, work_within
from tripstore.backends.postgres.cells.past.sources import PastSources, past_sources
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.flush import flush
from tripstore.backends.postgres.wire.past_connection import PastConnection, past_connection
from tripstore.backends.postgres.wire.translation import Again, ConnectionLost, not_the_authority, translate
from tripstore.errors import StaleLayout
from tripstore.handover.ports import Chunk, Past, Selection

T = TypeVar("T")

#: What COPY may send from one table for a chunk; with more the chunk is read again with fewer rows.
BYTES_PER_CHUNK = 16 * 1024 * 1024

_BEGIN = f"""\
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
SELECT epoch, backend = 'postgres' AND target IS NULL, layout, backend, timeline, {TIMELINE}
FROM tripstore.authority"""


class PastReader:
    """Reads chunks on a connection of its own. For one thread at a time."""

    def __init__(self, url: str, layout: Layout, *, statement_seconds: float = 60.0) -> None:
        self._url = url
        self._layout = layout
        self._statement_seconds = statement_seconds
        self._connection: PastConnection | None = None
        self._lookups = LookupCache(layout)
        self._codecs = {
            name: ColumnarCodec(column, ColumnCodec(column, self._lookups), self._lookups)
            for name, column in layout.columns.items()
        }
        self._sources: tuple[tuple[str, ...] | None, PastSources] = (None, past_sources(layout, None))

    def read(self, chunk: Chunk) -> Past:
        """Read a chunk. With bodies too large for one it is shorter than was asked for.

        `StaleEpoch`: Postgres is not the authority, or is being handed over. `StaleLayout`: another one is in force.
        """
        cut_seconds = 0.0
        while True:
            begun = time.perf_counter()
            try:
                with uncollected():
                    past = self._run(partial(self._read, chunk=chunk))
                return past._replace(source_seconds=past.source_seconds + cut_seconds)
            except CopyTooLarge as cut:
                self.close()  # half of a COPY is unread
                rows = max(min(chunk.rows // 2, chunk.rows * BYTES_PER_CHUNK // (2 * cut.bytes)), 1)
                chunk = chunk._replace(rows=rows)
                cut_seconds += work_within(time.perf_counter() - begun, chunk.source_share)

    def close(self) -> None:
        """Close the connection; the next chunk makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg2.Error):
                connection.driver.close()

    def _run(self, verb: Callable[[PastConnection], T]) -> T:
        """On the connection, once more on a new one when the old one was dead."""
        is_new = self._connection is None
        while True:
            if self._connection is None:
                self._connection = past_connection(self._url, statement_seconds=self._statement_seconds)
            try:
                return verb(self._connection)
            except psycopg2.Error as error:
                self.close()
                ours = translate(error, None)
                if isinstance(ours, Again) or (isinstance(ours, ConnectionLost) and not is_new):
                    is_new = True
                    continue
                raise ours from error

    def _read(self, connection: PastConnection, chunk: Chunk) -> Past:
        sources = self._sources_of(chunk.selection)
        with connection.driver.cursor() as cursor:
            cursor.execute(_BEGIN)
            ((epoch, is_authority, in_force, backend, given, now),) = cursor.fetchall()
            if given not in (None, now):
                cursor.execute("ROLLBACK")
                raise PostgresNotAccepted(backend, epoch, given, now)
            if in_force not in (None, self._layout.digest):
                cursor.execute("ROLLBACK")
                raise StaleLayout(self._layout.digest, in_force)
            if not is_authority:
                cursor.execute("ROLLBACK")
                raise not_the_authority(f"at epoch {epoch} Postgres is not the authority, or is being handed over")
            bytes_max = None if chunk.rows == 1 else BYTES_PER_CHUNK
            rests = Rests.begin(cursor, chunk.source_share)
            reading = ChunkReading(cursor, self._lookups, bytes_max, rests.condition)
            asking = Asking(reading.rows_of, sources, rests.condition, connection.search_path)
            rows, after = reach(asking, chunk)
            if rows is not None:
                if rows.keys is not None:
                    cursor.execute(BY_INDEX)
                for table in sources.tables:
                    reading.table(table, rows, self._codecs[table.column.name], chunk.selection.columns)
                reading.tombs(sources.tombs, rows)
                reading.own_cells(sources.cells, rows)
            if chunk.after is None and chunk.selection.where is None and chunk.keys is None:
                reading.without_uuid(self._layout, sources.tables)
            rested = min(max(rests.rested_seconds(), 0.0), reading.seconds)  # the server's clock may be set meanwhile
            cursor.execute("ROLLBACK")  # a predicate may have set something of the session
            past = reading.past(epoch, after)._replace(source_seconds=reading.seconds - rested, rested_seconds=rested)
            # On this connection: after a crash of the server it is broken, and the chunk is read again. One without
            # cells, too: what is gone from it may come back with a crash.
            flush(cursor)
        return past

    def _sources_of(self, selection: Selection) -> PastSources:
        columns, sources = self._sources
        if selection.columns != columns:
            sources = past_sources(self._layout, selection.columns)
            self._sources = (selection.columns, sources)
        return sources
