"""`PastReader`: chunks of rows out of Postgres by COPY, as encoded cells, in row-key order.

A chunk is one transaction that reads as of one snapshot, so no row is torn, and the authority row is of that snapshot,
too: what is read while Postgres is not the authority is no past. What was read is durable before it is handed out.

All tables are held before the snapshot is made (`held_tables`): what ALTER TABLE writes anew carries the number of its
own transaction, so an older snapshot sees an empty table, and a chunk would end the part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import UUID

import psycopg2
from psycopg2 import errors as postgres
from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter

from schemaless_core.process.collecting import uncollected
from tripstore.backends.postgres.capture.timeline import TIMELINE
from tripstore.backends.postgres.cells.past.block_rows import BlockRows, hold, is_there, stands
from tripstore.backends.postgres.cells.past.block_sizes import BlockSizes
from tripstore.backends.postgres.cells.past.chunk_reading import ChunkReading
from tripstore.backends.postgres.cells.past.chunk_rows import Asking, reach
from tripstore.backends.postgres.cells.past.copied_lines import CopyTooLarge
from tripstore.backends.postgres.cells.past.held_tables import hold_all, hold_beside_blocks
from tripstore.backends.postgres.cells.past.pauses import Rests, work_within
from tripstore.backends.postgres.cells.past.sources import PastSources, past_sources
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.flush import flush
from tripstore.backends.postgres.wire.own_reads import OwnReads
from tripstore.backends.postgres.wire.past_connection import PastConnection, past_connection
from tripstore.backends.postgres.wire.translation import Again, ConnectionLost, not_the_authority, translate
from tripstore.errors import StaleLayout
from tripstore.handover.ports import Chunk, Past, Selection

T = TypeVar("T")

#: What COPY may send from one table for a chunk; with more the chunk is read again with fewer rows.
BYTES_PER_CHUNK = 16 * 1024 * 1024

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; {held}"
#: The first statement that needs a snapshot: LOCK TABLE needs none.
_AUTHORITY = f"""\
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
        self._sizes = BlockSizes()
        self._sources: tuple[tuple[str, ...] | None, PastSources] = (None, past_sources(layout, None))

    def read(self, chunk: Chunk) -> Past:
        """Read a chunk. With bodies too large for one it is shorter than was asked for.

        `StaleEpoch`: Postgres is not the authority, or is being handed over. `StaleLayout`: another one is in force.
        """
        cut_seconds = 0.0
        if chunk.blocks is not None:
            chunk = chunk._replace(blocks=self._sizes.fitting(chunk.blocks, BYTES_PER_CHUNK))
        while True:
            begun = time.perf_counter()
            try:
                with uncollected():
                    past = self._run(partial(self._read, chunk=chunk))
                return past._replace(source_seconds=past.source_seconds + cut_seconds)
            except CopyTooLarge as cut:
                self.close()  # half of a COPY is unread
                if chunk.blocks is not None:
                    self._sizes.saw(chunk.blocks, cut.bytes)
                chunk = _smaller(chunk, BYTES_PER_CHUNK / cut.bytes)
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
        with connection.driver.cursor() as cursor:
            epoch, is_standing = self._begin_for(cursor, chunk)
            reads = OwnReads(cursor, is_counting=chunk.counts_blocks)
            rests = Rests.begin(cursor, chunk.source_share)
            reading = ChunkReading(
                cursor, self._lookups, None if _is_least(chunk) else BYTES_PER_CHUNK, rests.condition
            )
            past = Past((), epoch, is_rewritten=True)
            if is_standing:
                past = self._reading_of(chunk)(reading, chunk, epoch, connection.search_path)
            blocks_read = reads.since()
            rested = min(max(rests.rested_seconds(), 0.0), reading.seconds)  # the server's clock may be set meanwhile
            cursor.execute("ROLLBACK")  # a predicate may have set something of the session
            past = past._replace(
                source_seconds=reading.seconds - rested, rested_seconds=rested, blocks_read=blocks_read
            )
            # On this connection: after a crash of the server it is broken, and the chunk is read again. One without
            # cells, too: what is gone from it may come back with a crash.
            flush(cursor)
        return past

    def _begin(self, cursor: Cursor) -> int:
        """Begin a transaction, and return the epoch at which Postgres is the authority in its snapshot."""
        return self._see(cursor, _BEGIN.format(held=hold_all(self._layout)))

    def _begin_for(self, cursor: Cursor, chunk: Chunk) -> tuple[int, bool]:
        """The same where one leaf is read, too; and whether it stands, with the blocks that were meant."""
        if chunk.blocks is not None:
            return self._begin_held(cursor, chunk.blocks.leaf, partial(stands, cursor, chunk.blocks))
        if chunk.leaf is not None:
            return self._begin_held(cursor, chunk.leaf.name, partial(is_there, cursor, chunk.leaf))
        return self._begin(cursor), True

    def _begin_held(self, cursor: Cursor, leaf: str, is_standing: Callable[[], bool]) -> tuple[int, bool]:
        try:
            # Alone: that another table is gone says nothing of this leaf.
            cursor.execute(_BEGIN.format(held=hold(leaf)))
        except postgres.UndefinedTable:
            cursor.execute("ROLLBACK")
            return self._begin(cursor), False
        return self._see(cursor, hold_beside_blocks(self._layout)), is_standing()

    def _reading_of(self, chunk: Chunk) -> Callable[[ChunkReading, Chunk, int, str], Past]:
        if chunk.blocks is not None:
            return self._read_blocks
        return self._read_keys if chunk.leaf is None else self._read_leaf

    def _see(self, cursor: Cursor, held: str) -> int:
        """Make the snapshot, when all that is read in it is held; the epoch at which Postgres is the authority."""
        cursor.execute(f"{held}; {_AUTHORITY}")
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
        return int(epoch)

    def _read_keys(self, reading: ChunkReading, chunk: Chunk, epoch: int, search_path: str) -> Past:
        """What row keys have in all tables, or in ours alone."""
        everything = self._sources_of(chunk.selection)
        sources = everything.ours() if chunk.only_ours else everything
        rows, after = reach(Asking(reading.rows_of, sources, reading.rest, search_path), chunk)
        if rows is not None:
            if rows.keys is not None:
                reading.by_index()
            for table in sources.tables:
                reading.table(table, rows, self._codecs[table.column.name], chunk.selection.columns)
            reading.tombs(sources.tombs, rows)
            reading.own_cells(sources.cells, rows)
        if chunk.tells_keyless and chunk.after is None and chunk.selection.where is None and chunk.keys is None:
            reading.without_uuid(self._layout, everything.tables)
        past = reading.past(epoch, after)
        return past._replace(rows=reading.orphans(everything.parent)) if chunk.only_ours else past

    def _read_blocks(self, reading: ChunkReading, chunk: Chunk, epoch: int, _search_path: str) -> Past:
        """What one table has in some blocks."""
        blocks = chunk.blocks
        assert blocks is not None
        rows = BlockRows(blocks.first, blocks.upto)
        sources = self._sources_of(chunk.selection)
        for table in sources.of_leaf(blocks.table, blocks.leaf):
            reading.table(table, rows, self._codecs[table.column.name], chunk.selection.columns)
        self._sizes.saw(blocks, reading.bytes)
        return self._alone(reading, blocks.table, epoch, None)._replace(next_block=blocks.upto)

    def _read_leaf(self, reading: ChunkReading, chunk: Chunk, epoch: int, search_path: str) -> Past:
        """What row keys have in one leaf."""
        leaf = chunk.leaf
        assert leaf is not None
        sources = self._sources_of(chunk.selection).in_leaf(leaf.table, leaf.name)
        rows, after = reach(Asking(reading.rows_of, sources, reading.rest, search_path), chunk)
        assert rows is not None
        for table in sources.tables:
            reading.table(table, rows, self._codecs[table.column.name], chunk.selection.columns)
        return self._alone(reading, leaf.table, epoch, after)

    def _alone(self, reading: ChunkReading, table: str, epoch: int, after: UUID | None) -> Past:
        """Of what was read of one table without the others. A row counts where it is one of the parent's."""
        reading.leave_own_ids()
        past = reading.past(epoch, after)
        return past._replace(rows=past.rows if table == self._layout.parent.table.sql else 0)

    def _sources_of(self, selection: Selection) -> PastSources:
        columns, sources = self._sources
        if selection.columns != columns:
            sources = past_sources(self._layout, selection.columns)
            self._sources = (selection.columns, sources)
        return sources


def _is_least(chunk: Chunk) -> bool:
    """Whether less of it cannot be read."""
    return chunk.rows == 1 if chunk.blocks is None else chunk.blocks.upto - chunk.blocks.first == 1


def _smaller(chunk: Chunk, room: float) -> Chunk:
    """Half of it or less; `room`: for which share of it there is room."""
    if chunk.blocks is None:
        return chunk._replace(rows=_less(chunk.rows, room))
    first, upto = chunk.blocks.first, chunk.blocks.upto
    return chunk._replace(blocks=chunk.blocks._replace(upto=first + _less(upto - first, room)))


def _less(count: int, room: float) -> int:
    return max(min(count // 2, int(count * room / 2)), 1)
