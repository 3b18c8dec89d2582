"""Entries of indexes, as they are copied: by buckets of rows, which the servers compare."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pymysql import err

from schemaless_core.cell.answers import Scalar
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import IndexTable
from schemaless_core.engine.copies import Row, Rows
from schemaless_core.engine.index_sql import at_keys, columns, field_columns
from schemaless_core.engine.mysql.copies.rows import CopyRows
from schemaless_core.engine.mysql.indexes.natives import DIALECT
from schemaless_core.engine.mysql.indexes.tables import create_table
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.translation import is_missing

#: So many that few rows travel again for one that has changed.
BUCKETS = 8192
_BUCKET = f"CRC32(row_key) % {BUCKETS}"
ENTRY_SUMS = f"SELECT {_BUCKET} AS bucket, COUNT(*), SUM(CRC32(CONCAT_WS('|', HEXED))) FROM TABLE GROUP BY bucket"
ENTRIES = f"SELECT COLUMNS FROM TABLE WHERE {_BUCKET} IN (BUCKETS)"
PAGE = "SELECT COLUMNS FROM TABLE WHERE AFTER ORDER BY FIELD, row_key LIMIT %s"
DELETE_PAGE = "DELETE FROM TABLE WHERE AFTER AND UP_TO"
# As two ranges of the primary key, which a comparison of rows is not on every server.
AFTER = "(FIELD > VALUE OR (FIELD = VALUE AND row_key > %s))"
UP_TO = "(FIELD < VALUE OR (FIELD = VALUE AND row_key <= %s))"
DELETE_ENTRIES = f"DELETE FROM TABLE WHERE {_BUCKET} IN (BUCKETS)"
THERE = "SELECT shard FROM {state} WHERE state = 'MOVED' ORDER BY shard"
FORGET = "DELETE FROM TABLE WHERE KEYS"
#: Entries that one statement names.
KEYS_PER_STATEMENT = 200


class CopiedEntries(CopyRows):
    """The verbs about entries."""

    def make_index(self, shard: int, table: IndexTable, deadline: Deadline) -> None:
        self._sessions.write(lambda connection: create_table(connection, self.names, table, shard), deadline)

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

    def entries_after(self, shard: int, table: IndexTable, after: Row | None, limit: int, deadline: Deadline) -> Rows:
        where, values = _bound_of(AFTER, table, after)
        statement = self._of_entries(PAGE.replace("AFTER", where), shard, table)
        return self._sessions.run(lambda connection: self._rows(connection, statement, (*values, limit)), deadline)

    def put_entries_after(
        self,
        shard: int,
        claim: int,
        table: IndexTable,
        after: Row | None,
        page: Rows,
        end: Row | None,
        deadline: Deadline,
    ) -> bool:
        (above, first), (up_to, last) = _bound_of(AFTER, table, after), _bound_of(UP_TO, table, end)
        delete = self._of_entries(DELETE_PAGE.replace("AFTER", above).replace("UP_TO", up_to), shard, table)
        insert = f"INSERT INTO {self.names.index(shard, table.name)} ({', '.join(columns(table))})"

        def put(connection: DeadlineConnection) -> bool:
            with self._held(connection, shard) as seen:
                if not self._may(connection, shard, seen, claim):
                    return False
                self._do(connection, delete, (*first, *last))
                self._fill(connection, insert, "", page)
            return True

        return self._sessions.write(put, deadline)

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

    def there(self, deadline: Deadline) -> list[int]:
        return self._sessions.run(lambda connection: [int(row[0]) for row in self._rows(connection, THERE)], deadline)

    def forget_entries(
        self, shard: int, table: IndexTable, keys: Sequence[tuple[Scalar, bytes]], deadline: Deadline
    ) -> None:
        template = self._of_entries(FORGET, shard, table)

        def forget(connection: DeadlineConnection) -> None:
            with self._held(connection, shard) as seen:
                if seen is None or seen.state != "MOVED":
                    return
                for first in range(0, len(keys), KEYS_PER_STATEMENT):
                    clause = at_keys(table, keys[first : first + KEYS_PER_STATEMENT], DIALECT)
                    self._do(connection, template.replace("KEYS", clause.text), clause.values)

        def forget_if_there(connection: DeadlineConnection) -> None:
            try:
                forget(connection)
            except err.Error as error:
                if not is_missing(error):
                    raise  # else the copy is older than the index

        self._sessions.write(forget_if_there, deadline)

    def _of_entries(self, template: str, shard: int, table: IndexTable, buckets: Collection[int] = ()) -> str:
        statement = template.replace("TABLE", self.names.index(shard, table.name))
        statement = statement.replace("COLUMNS", ", ".join(columns(table))).replace("FIELD", field_columns(table)[0])
        return statement.replace("BUCKETS", ", ".join(str(int(bucket)) for bucket in sorted(buckets)))


def _bound_of(template: str, table: IndexTable, entry: Row | None) -> tuple[str, tuple[Any, ...]]:
    """A bound by the primary key, which is the first two columns of an entry; none without an entry."""
    if entry is None:
        return "TRUE", ()
    field, row_key = entry[:2]
    return template.replace("VALUE", DIALECT.placeholder(table.fields[0].kind)), (field, field, row_key)
