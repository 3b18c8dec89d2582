"""`Log`: the log of a shard, emulated. Dense ids are given to changes when a reader asks.

A change is numbered once its transaction is below every one that is still open, in the order of transactions: one that
commits late holds the others back, and none is ever skipped. A reader waits for the one that numbers. For phase off and
for tests: other consumers tail Schemaless.

A caller that drops parts of `tripstore.log` calls `leave_gaps` before, and `forget` afterwards. To number what has no
reader would cost a row for every change there ever was. Instead one id is left out in each shard that loses changes
without an id: a reader before the gap gets `LogPurged`, a reader that has read them all goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.answers import Location, Position, ShardPage
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.cell.page_bytes import bound
from schemaless_core.cell.requests import check_limit, check_location, check_shard
from schemaless_core.deadline import Deadline
from schemaless_core.errors import PositionUnknown
from schemaless_core.habits import Habits
from tripstore.backends.postgres.cells.datastore_shape import DatastoreShape
from tripstore.backends.postgres.cells.read.reads import CELLS_PER_PORTION, KEYS_PER_CALL, LegacyReads
from tripstore.backends.postgres.cells.read.scan import shard_sql
from tripstore.backends.postgres.errors import HistoryTruncated, LogPurged
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection

_WALK = "Walk the rows with scan_rows, then go on from the head."
#: The advisory lock of the session that gives ids.
_NUMBERING = 0x7472697073746F72

_NUMBER = """\
SELECT pg_catalog.pg_advisory_xact_lock({lock});
WITH change AS (
    SELECT DISTINCT ON (q.row_key, q.column_name, q.ref_key) {shard} AS shard, q.*
    FROM (SELECT row_key, column_name, ref_key, xid, id, at FROM tripstore.queue
          UNION ALL SELECT row_key, column_name, ref_key, xid, id, at FROM tripstore.log) AS q
    WHERE q.xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
    AND NOT EXISTS (SELECT FROM tripstore.numbered AS n WHERE n.row_key = q.row_key
                    AND n.column_name = q.column_name AND n.ref_key = q.ref_key)
    ORDER BY q.row_key, q.column_name, q.ref_key, q.xid, q.id
)
INSERT INTO tripstore.numbered (shard, added_id, row_key, column_name, ref_key, created_at)
SELECT change.shard, coalesce(head.added_id, 0) + row_number() OVER log, row_key, column_name, ref_key,
       greatest(max(change.at) OVER log, head.created_at)
FROM change LEFT JOIN LATERAL (
    SELECT n.added_id, n.created_at FROM tripstore.numbered AS n WHERE n.shard = change.shard
    ORDER BY n.added_id DESC LIMIT 1
) AS head ON true
WHERE {wanted}
WINDOW log AS (PARTITION BY change.shard ORDER BY change.xid, change.id ROWS UNBOUNDED PRECEDING)"""
_HEADS = """\
SELECT wanted.shard, coalesce(max(n.added_id), 0) FROM unnest(%s::int[]) AS wanted (shard)
LEFT JOIN tripstore.numbered AS n ON n.shard = wanted.shard GROUP BY wanted.shard"""
_BEFORE = "SELECT coalesce(max(added_id), 0) FROM tripstore.numbered WHERE shard = %s AND created_at < %s"
_SINCE = "SELECT since FROM tripstore.capture"
_PAGE = """\
SELECT added_id, row_key::text, column_name, ref_key, created_at FROM tripstore.numbered
WHERE shard = %s AND added_id > %s ORDER BY added_id LIMIT %s"""

#: The last of the changes that go gets the id behind the gap, so that the log goes on where they ended.
_GAPS = """\
SELECT pg_catalog.pg_advisory_xact_lock({lock});
INSERT INTO tripstore.numbered (shard, added_id, row_key, column_name, ref_key, created_at)
SELECT gone.shard, coalesce(head.added_id, 0) + 2, row_key, column_name, ref_key, greatest(gone.at, head.created_at)
FROM (
    SELECT DISTINCT ON (1) {shard} AS shard, q.row_key, q.column_name, q.ref_key, q.at
    FROM {source} AS q
    WHERE NOT EXISTS (SELECT FROM tripstore.numbered AS n WHERE n.row_key = q.row_key
                      AND n.column_name = q.column_name AND n.ref_key = q.ref_key)
    ORDER BY 1, q.at DESC, q.id DESC
) AS gone LEFT JOIN LATERAL (
    SELECT n.added_id, n.created_at FROM tripstore.numbered AS n WHERE n.shard = gone.shard
    ORDER BY n.added_id DESC LIMIT 1
) AS head ON true"""
#: A shard's last row stays: from it others count on. A change that is still there would get a second id.
_FORGET = """\
DELETE FROM tripstore.numbered AS n WHERE n.created_at < %s
AND EXISTS (SELECT FROM tripstore.numbered AS later WHERE later.shard = n.shard AND later.added_id > n.added_id)
AND NOT EXISTS (SELECT FROM tripstore.queue AS q WHERE q.row_key = n.row_key
                AND q.column_name = n.column_name AND q.ref_key = n.ref_key)
AND NOT EXISTS (SELECT FROM tripstore.log AS q WHERE q.row_key = n.row_key
                AND q.column_name = n.column_name AND q.ref_key = n.ref_key)"""


def leave_gaps(connection: Connection, source: str, shards: int) -> None:
    """Before these changes go (`source` is a table or a query in brackets): readers without them get `LogPurged`."""
    rows(connection, _GAPS.format(lock=_NUMBERING, shard=shard_sql("q.row_key", shards), source=source))


def forget(connection: Connection, until: datetime) -> None:
    """Take ids back whose change is gone, so that no more of them are kept than of changes."""
    rows(connection, _FORGET, (until,))


class Log:
    """The log half of the legacy store."""

    def __init__(self, database: LegacyDatabase, reads: LegacyReads, shape: DatastoreShape, habits: Habits) -> None:
        self._database = database
        self._reads = reads
        self._shape = shape
        self._habits = habits

    def pages(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        """The next pages of all these shards."""
        check_limit(limit)
        for shard, location in locations.items():
            check_shard(shard, self._shape.shards)
            check_location(location, self._shape.store)

        def look(connection: LegacyConnection) -> dict[int, ShardPage]:
            self._number(connection, list(locations))
            heads: dict[int, int] = dict(connection.rows(_HEADS, (list(locations),)))
            pages, room = dict[int, ShardPage](), bound()
            for shard, location in locations.items():
                start = self._start(connection, shard, location, heads[shard])
                pages[shard] = self._page(connection, shard, start, limit, heads[shard], room)
                room -= sum(len(canonical_bytes(cell.body)) for cell in pages[shard].cells)
            return pages

        return self._database.run(look, self._deadline()) if locations else {}

    def _number(self, connection: LegacyConnection, shards: Sequence[int]) -> None:
        wanted = f"change.shard = ANY (ARRAY[{', '.join(map(str, shards))}]::int[])"
        shard = shard_sql("q.row_key", self._shape.shards)
        connection.rows(_NUMBER.format(lock=_NUMBERING, shard=shard, wanted=wanted))

    def _start(self, connection: LegacyConnection, shard: int, location: Location, head: int) -> int:
        """The added id after which a page starts."""
        if isinstance(location, Position):
            if location.epoch == self._shape.epoch and location.added_id > head:
                raise PositionUnknown(shard, location.epoch, location.added_id, self._shape.epoch, head)
            return location.added_id
        if isinstance(location, datetime):
            since = connection.rows(_SINCE)
            if since and since[0][0] is not None and location < since[0][0]:
                raise LogPurged(
                    f"The log of Postgres begins at {since[0][0].isoformat()}, after {location.isoformat()}.",
                    hint="Begin at location 0, or walk the rows with scan_rows.",
                )
            return int(connection.rows(_BEFORE, (shard, location))[0][0])
        return location

    def _page(
        self, connection: LegacyConnection, shard: int, start: int, limit: int, head: int, room: int
    ) -> ShardPage:
        numbered = connection.rows(_PAGE, (shard, start, limit)) if start < head else []
        for expected, (added_id, *_rest) in enumerate(numbered, start + 1):
            if added_id != expected:
                raise self._purged(shard, expected)
        keys = [CellKey(UUID(row_key), name, ref_key) for _id, row_key, name, ref_key, _at in numbered]
        cells: list[Cell] = []
        for first in range(0, len(keys), CELLS_PER_PORTION):
            if cells and room <= 0:
                break
            last = first + CELLS_PER_PORTION
            found = self._found(connection, keys[first:last])
            for (added_id, *_key, created_at), key in zip(numbered[first:last], keys[first:last], strict=True):
                if cells and room <= 0:
                    break
                cell = found.get(key)
                if cell is None:
                    raise self._purged(shard, added_id)
                cells.append(Cell(cell.row_key, cell.column_name, cell.ref_key, cell.body, added_id, created_at))
                room -= len(canonical_bytes(cell.body))
        end = start + len(cells)
        return ShardPage(cells, end, Position(self._shape.store, self._shape.epoch, end), max(head, 0))

    def _purged(self, shard: int, added_id: int) -> LogPurged:
        return LogPurged(f"The log of shard {shard} has no added id {added_id} any more.", hint=_WALK)

    def _found(self, connection: LegacyConnection, keys: Sequence[CellKey]) -> dict[CellKey, Cell]:
        found: dict[CellKey, Cell] = {}
        for first in range(0, len(keys), KEYS_PER_CALL):
            wanted = dict(enumerate(keys[first : first + KEYS_PER_CALL]))
            try:
                cells = self._reads.find_many(connection, wanted)
            except HistoryTruncated as truncated:
                raise LogPurged(
                    f"The log has lost cells: {truncated.message}",
                    hint=_WALK,
                ) from truncated
            found |= {wanted[n]: cell for n, cell in cells.items()}
        return found

    def _deadline(self) -> Deadline:
        seconds = self._habits.deadline
        return Deadline(self._database.settings.deadlines.read_seconds if seconds is None else seconds)
