"""`OwnReads`: how many blocks Postgres has read for this session, and for no other, within its open transaction.

Statistics of the server and of its tables are of all sessions, and a session adds to them when its transaction has
ended. What a session counts for itself it can be asked at any time: blocks that it wanted of each relation, and those
of them that it found in shared buffers. The rest was read, be it from a disk or from memory of the system.
"""

from __future__ import annotations

from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter

from schemaless_core.errors import InvalidRequest
from tripstore.backends.postgres.wire.wire import LegacyConnection

# Of an earlier transaction that is not added yet there may be counts, so two looks are needed.
_READ = """\
SELECT coalesce(sum(pg_catalog.pg_stat_get_xact_blocks_fetched(c.oid)
    OPERATOR(pg_catalog.-) pg_catalog.pg_stat_get_xact_blocks_hit(c.oid)), 0)
FROM pg_catalog.pg_class AS c WHERE c.relkind IN ('r', 'i', 't', 'm')"""
_COUNTS = "SELECT pg_catalog.current_setting('track_counts')"


class OwnReads:
    """Of one transaction; one that is not to count asks nothing."""

    def __init__(self, cursor: Cursor, *, is_counting: bool) -> None:
        self._cursor = cursor
        self._is_counting = is_counting
        self._seen = self._asked()

    def since(self) -> int:
        """Blocks that were read since this was asked last."""
        before, self._seen = self._seen, self._asked()
        return max(0, self._seen - before)

    def _asked(self) -> int:
        if not self._is_counting:
            return 0
        self._cursor.execute(_READ)
        ((blocks,),) = self._cursor.fetchall()
        return int(blocks)


def check_counted(connection: LegacyConnection) -> None:
    """Raise `InvalidRequest` where sessions count nothing: blocks that nothing counts would be without a limit."""
    if connection.rows(_COUNTS) != [("on",)]:
        raise InvalidRequest(
            "The blocks that Postgres reads cannot be limited: track_counts is off, so it does not count them.",
            hint="Switch track_counts on, as autovacuum needs it, or leave --max-blocks and throttle.blocks_max out.",
        )
