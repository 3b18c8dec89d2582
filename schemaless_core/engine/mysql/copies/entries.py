"""Entries of indexes, as they are copied: by buckets of rows, which the servers compare."""

from __future__ import annotations

from collections.abc import Collection

from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import IndexTable
from schemaless_core.engine.copies import Rows
from schemaless_core.engine.index_sql import columns
from schemaless_core.engine.mysql.copies.rows import CopyRows
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection

#: So many that few rows travel again for one that has changed.
BUCKETS = 8192
_BUCKET = f"CRC32(row_key) % {BUCKETS}"
ENTRY_SUMS = f"SELECT {_BUCKET} AS bucket, COUNT(*), SUM(CRC32(CONCAT_WS('|', HEXED))) FROM TABLE GROUP BY bucket"
ENTRIES = f"SELECT COLUMNS FROM TABLE WHERE {_BUCKET} IN (BUCKETS)"
DELETE_ENTRIES = f"DELETE FROM TABLE WHERE {_BUCKET} IN (BUCKETS)"


class CopiedEntries(CopyRows):
    """The verbs about entries."""

    def entry_sums(self, shard: int, table: IndexTable, deadline: Deadline) -> dict[int, tuple[int, int]]:
        hexed = ", ".join(f"IFNULL(HEX(CAST({column} AS BINARY)), '-')" for column in columns(table))
        statement = self._of_entries(ENTRY_SUMS, shard, table).replace("HEXED", hexed)

        def add(connection: DeadlineConnection) -> dict[int, tuple[int, int]]:
            rows = self._rows(connection, statement)
            return {int(bucket): (int(count), int(total)) for bucket, count, total in rows}

        return self._sessions.run(add, deadline)

    def entries(self, shard: int, table: IndexTable, buckets: Collection[int], deadline: Deadline) -> Rows:
        statement = self._of_entries(ENTRIES, shard, table, buckets)
        return self._sessions.run(lambda connection: self._rows(connection, statement), deadline)

    def put_entries(
        self, shard: int, claim: int, table: IndexTable, buckets: Collection[int], rows: Rows, deadline: Deadline
    ) -> None:
        insert = f"INSERT INTO {self.names.index(shard, table.name)} ({', '.join(columns(table))})"

        def put(connection: DeadlineConnection) -> None:
            with self._held(connection, shard) as seen:
                if self._may(connection, shard, seen, claim):
                    self._do(connection, self._of_entries(DELETE_ENTRIES, shard, table, buckets))
                    self._fill(connection, insert, "", rows)

        self._sessions.write(put, deadline)

    def _of_entries(self, template: str, shard: int, table: IndexTable, buckets: Collection[int] = ()) -> str:
        statement = template.replace("TABLE", self.names.index(shard, table.name))
        statement = statement.replace("COLUMNS", ", ".join(columns(table)))
        return statement.replace("BUCKETS", ", ".join(str(int(bucket)) for bucket in sorted(buckets)))
