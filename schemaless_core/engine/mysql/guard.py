"""Purged keys as puts look at them, under the counter row that they hold anyway.

The row of a shard says whether it is guarded, that is, has purged keys. A put's simple statements pass only a shard
that is not: one more condition on a row that is read in any case. In a guarded shard they store nothing. The writer
then looks why, remembers it, and from there on looks each key up, in a statement that begins after it holds the row.
A purge writes its keys under the same row: what commits before it is seen by it, what comes after it sees the keys.
"""

from __future__ import annotations

import math
import time

from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.purging import FORMER_SECONDS

HAS_COLUMN = """\
SELECT COUNT(*) FROM information_schema.columns
 WHERE table_schema = %s AND table_name = 'shard_state' AND column_name = 'guarded'"""

UNGUARDED = " AND guarded = 0"
# The key of one cell; and of a table of rows w.
NOT_PURGED = """
  AND NOT EXISTS (SELECT 1 FROM {purged_key} k WHERE k.shard = %s AND k.row_key = %s
   AND k.column_name IN (_binary'', %s) AND k.ref_key >= %s)"""
NONE_PURGED = """
  AND NOT EXISTS (SELECT 1 FROM {purged_key} k WHERE k.shard = s.shard AND k.row_key = w.row_key
   AND k.column_name IN (_binary'', w.column_name) AND k.ref_key >= w.ref_key)"""


class Guard:
    """What this process knows of one server's guarded shards. None ceases to be one."""

    def __init__(self, datastore: str) -> None:
        self._meta = f"{datastore}_meta"
        self._looked_at = -math.inf
        #: Whether the rows of shards say that they are guarded: those of an earlier version do not.
        self.is_told = False
        #: What simple statements ask of a shard's row.
        self.condition = ""
        self.shards = set[int]()

    def look(self, connection: DeadlineConnection, *, again: bool = False) -> None:
        """See whether the server's tables are of this version; not `again` if that was a moment ago."""
        now = time.monotonic()
        if not again and now - self._looked_at < FORMER_SECONDS:
            return
        with connection.cursor() as cursor:
            cursor.execute(HAS_COLUMN, (self._meta,))
            (count,) = cursor.fetchone() or (0,)
        self._looked_at = now
        if count:
            self.is_told, self.condition = True, UNGUARDED
