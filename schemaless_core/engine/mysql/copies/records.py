"""Parts of logs as the records of a backup: the server puts them together, and Python never sees a cell of them."""

from __future__ import annotations

from schemaless_core.deadline import Deadline
from schemaless_core.engine.copies import CopySeen, LogRecords
from schemaless_core.engine.mysql.copies.rows import LOOK, CopyRows
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.failpoints import reach

#: Of one answer, in the server's memory; it warns where there is more.
_ROOM = f"SET SESSION group_concat_max_len = {16 * 1024 * 1024}"
# As `backups/records.py` has them.
RECORDS = """\
SELECT COUNT(*), GROUP_CONCAT(
 CONCAT(added_id, ' ', ref_key, ' ', created_at, ' ', OCTET_LENGTH(column_name), ' ', OCTET_LENGTH(body), ' ',
  row_key, column_name, body) SEPARATOR '')
 FROM {cell} WHERE added_id BETWEEN {first} AND {last}"""
# What is purged between the two statements is counted by both: the numbers do not add up then.
PURGED = """\
SELECT p.added_id FROM {purged} p WHERE p.shard = {shard} AND p.added_id BETWEEN {first} AND {last}
 AND NOT EXISTS (SELECT 1 FROM {cell} c WHERE c.added_id = p.added_id) ORDER BY p.added_id"""


class CopiedRecords(CopyRows):
    """The verb about them."""

    def records(self, shard: int, first: int, last: int, deadline: Deadline) -> LogRecords:
        part = {"cell": self.names.cell(shard), "first": int(first), "last": int(last)}
        cells = RECORDS.format(**part)
        gone = PURGED.format(**part, purged=self.names.purged, shard=int(shard))
        look = LOOK.format(state=self.names.shard_state).replace("%s", str(int(shard)))

        def read(connection: DeadlineConnection) -> LogRecords:
            with connection.cursor() as cursor:
                cursor.execute(f"{_ROOM}; {cells}; {gone}; {look}")
                cursor.nextset()
                ((count, records),) = cursor.fetchall()
                is_cut = cursor.warning_count > 0
                cursor.nextset()
                purged = tuple(int(added_id) for (added_id,) in cursor.fetchall())
                cursor.nextset()
                (row,) = cursor.fetchall()
            reach("copies.records_read")
            seen = CopySeen(int(row[0]), str(row[1]), int(row[2]))
            return LogRecords(seen, int(count), None if is_cut else records or b"", purged)

        return self._sessions.run(read, deadline)
