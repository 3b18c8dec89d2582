"""Purged keys, and what else a server has of rows, on MySQL and MariaDB. Keys go under the counter row, as puts do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pymysql import err

from schemaless_core.cell.standing import Gate, ShardState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mending import check_mend
from schemaless_core.engine.mysql.counted import STATE, TAKE_COUNTER, CounterVerbs
from schemaless_core.engine.mysql.purged_keys import among
from schemaless_core.engine.mysql.reads import heads
from schemaless_core.engine.mysql.rows import stored_cell
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, binary, bound
from schemaless_core.engine.mysql.wire.transactions import transact
from schemaless_core.engine.mysql.wire.translation import is_missing
from schemaless_core.engine.purging import (
    FORMER_SECONDS,
    IDS_PER_LOOK,
    KeptKey,
    Key,
    PurgedKey,
    RowTraces,
    RowVersions,
    Superseded,
    Unerased,
)
from schemaless_core.errors import SchemaMissing, Unavailable, missing_shard
from schemaless_core.failpoints import reach

# `schema apply` makes this table after all else. Times of tables are whole seconds.
IS_KNOWN = f"""\
SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = 'purged_key'
 AND create_time < NOW() - INTERVAL {int(FORMER_SECONDS) + 1} SECOND"""
GUARD = "UPDATE {state} SET guarded = 1 WHERE GATE AND guarded = 0"
KEEP = """\
INSERT INTO {purged_key} (shard, row_key, column_name, ref_key, at)
WITH w (row_key, column_name, ref_key) AS (VALUES ROWS)
SELECT s.shard, w.row_key, w.column_name, w.ref_key, UTC_TIMESTAMP(6) FROM {state} s JOIN w WHERE GATE
ON DUPLICATE KEY UPDATE ref_key = GREATEST({purged_key}.ref_key, VALUES(ref_key)), is_erased = 0"""

_CELL = "added_id, row_key, column_name, ref_key, body, created_at"
VERSIONS = f"SELECT {_CELL} FROM {{cell}} WHERE row_key = %s ORDER BY column_name, ref_key LIMIT %s"
SUPERSEDED = f"""\
SELECT {_CELL} FROM {{cell}} c WHERE added_id > %s AND added_id <= %s AND column_name IN %s
 AND EXISTS (SELECT 1 FROM {{cell}} n
  WHERE n.row_key = c.row_key AND n.column_name = c.column_name AND n.ref_key > c.ref_key)
 ORDER BY added_id LIMIT %s"""

WHOLE_ROWS = """\
SELECT shard, row_key FROM {purged_key} WHERE column_name = _binary'' AND shard >= %s
 AND (shard > %s OR row_key > %s) ORDER BY shard, row_key LIMIT %s"""
UNERASED = """\
SELECT row_key, column_name, ref_key FROM {purged_key} WHERE shard = %s AND NOT is_erased AND column_name <> _binary''
 ORDER BY row_key, column_name LIMIT %s"""
LAST_LINE = "SELECT COALESCE(MAX(id), 0) FROM {mended}"
KEPT = """\
SELECT row_key, column_name, ref_key, is_erased FROM {purged_key}
 WHERE shard = %s AND (row_key > %s OR row_key = %s AND column_name > %s) ORDER BY row_key, column_name LIMIT %s"""
# Of a whole row all lines, of a column those of purged cells.
_ITS_BODIES = """\
(m.old_body IS NOT NULL OR m.new_body IS NOT NULL)
  AND (k.column_name = _binary''
   OR (k.column_name = m.column_name AND m.action = 'purge' AND m.ref_key <= k.ref_key))"""
ERASE = f"""\
UPDATE {{mended}} m JOIN {{purged_key}} k ON k.shard = m.shard AND k.row_key = m.row_key
 JOIN {{state}} s ON s.shard = m.shard
 SET m.old_body = NULL, m.new_body = NULL
 WHERE GATE AND (k.row_key, k.column_name) IN (KEYS) AND m.id <= %s AND {_ITS_BODIES}"""
ERASED = f"""\
UPDATE {{purged_key}} k JOIN {{state}} s ON s.shard = k.shard
 SET k.is_erased = 1 WHERE GATE AND (k.row_key, k.column_name) IN (KEYS)
  AND NOT EXISTS (SELECT 1 FROM {{mended}} m WHERE m.shard = k.shard AND m.row_key = k.row_key AND {_ITS_BODIES})"""
# More lines than a server ever has.
_ALL_LINES = 2**63 - 1

NO_SECOND = "DELETE FROM {second} WHERE number IN (SELECT number FROM {buffered} WHERE row_key IN %s)"
NO_WAITING = "DELETE FROM {buffered} WHERE row_key IN %s"
NO_CONFLICT = "DELETE FROM {conflict} WHERE row_key IN %s"
NO_INDEX_ERROR = "DELETE FROM {index_error} WHERE row_key IN %s"
COPIES = "SELECT shard FROM {state} WHERE state = 'MOVED' AND shard IN %s ORDER BY shard"
COUNT_IN_COPY = "SELECT COUNT(*) FROM {cell} WHERE row_key IN %s"
PASS_IN_COPY = """\
INSERT INTO {purged} (shard, added_id, at) SELECT s.shard, c.added_id, UTC_TIMESTAMP(6)
 FROM {state} s JOIN {cell} c ON c.row_key IN %s WHERE s.shard = %s AND s.state = 'MOVED'
 ON DUPLICATE KEY UPDATE added_id = {purged}.added_id"""
STRIP_IN_COPY = """\
UPDATE {mended} m JOIN {state} s ON s.shard = m.shard SET m.old_body = NULL, m.new_body = NULL
 WHERE m.row_key IN %s AND s.shard = %s AND s.state = 'MOVED'"""
DELETE_IN_COPY = """\
DELETE FROM {cell} WHERE row_key IN %s AND EXISTS (SELECT 1 FROM {state} WHERE shard = %s AND state = 'MOVED')"""
TRACES = """\
SELECT (SELECT COUNT(*) FROM {buffered} WHERE row_key IN %s), (SELECT COUNT(*) FROM {conflict} WHERE row_key IN %s),
 (SELECT COUNT(*) FROM {index_error} WHERE row_key IN %s)"""


class MySQLPurging(CounterVerbs):
    """The verbs of a purge on one server."""

    def is_known(self, deadline: Deadline) -> bool:
        def look(connection: DeadlineConnection) -> bool:
            self._refuse_former(connection)
            with connection.cursor() as cursor:
                cursor.execute(IS_KNOWN, (f"{self.names.datastore}_meta",))
                return cursor.fetchone() is not None

        return self._sessions.run(look, deadline)

    def keep(self, gate: Gate, keys: Sequence[PurgedKey], deadline: Deadline) -> None:
        def keep(connection: DeadlineConnection) -> None:
            self._refuse_former(connection)
            rows = [b"%s, %s, %d" % (binary(row), binary(name), ref) for row, name, ref in keys]
            statements = [
                self._bound(connection, gate, TAKE_COUNTER, (gate.shard,)),
                self._bound(connection, gate, GUARD, gate.identity),
                self._listed(connection, gate, KEEP, rows, gate.identity),
            ]
            reach("purging.before_send")
            look = self._bound(connection, gate, STATE, (gate.shard,))
            self._check(gate, transact(connection, statements, deadline, look).rows)
            reach("purging.answered")
            if len(among(connection, self.names, gate.shard, keys)) < len(keys):
                raise _refused(gate.shard)

        self._sessions.write(keep, deadline)

    def among(self, shard: int, keys: Sequence[Key], deadline: Deadline) -> dict[Key, int]:
        return self._sessions.run(lambda connection: among(connection, self.names, shard, keys), deadline)

    def kept(self, shard: int, after: PurgedKey | None, limit: int, deadline: Deadline) -> list[KeptKey]:
        row_key, name = (b"", b"") if after is None else after[:2]

        def read(connection: DeadlineConnection) -> list[KeptKey]:
            if not self.names.guard.is_told:
                self.names.guard.look(connection)
            if not self.names.guard.is_told:
                return []  # tables of an earlier version, in which nothing was purged
            with connection.cursor() as cursor:
                cursor.execute(self.names.meta_sql(KEPT), (shard, row_key, row_key, name, limit))
                return [KeptKey(PurgedKey(*row[:3]), bool(row[3])) for row in cursor.fetchall()]

        return self._sessions.run(read, deadline)

    def versions(self, shard: int, row_key: bytes, limit: int, deadline: Deadline) -> RowVersions:
        def read(connection: DeadlineConnection) -> RowVersions:
            with connection.cursor() as cursor:
                cursor.execute(self.names.sql(VERSIONS, shard), (row_key, limit))
                cells = [stored_cell(row) for row in cursor.fetchall()]
            return RowVersions(self._head(connection, shard), cells)

        return self._sessions.run(read, deadline)

    def superseded(
        self, shard: int, columns: Sequence[bytes], after: int, last: int, limit: int, deadline: Deadline
    ) -> Superseded:
        end = min(last, after + IDS_PER_LOOK)

        def read(connection: DeadlineConnection) -> Superseded:
            with connection.cursor() as cursor:
                cursor.execute(self.names.sql(SUPERSEDED, shard), (after, end, list(columns), limit))
                cells = [stored_cell(row) for row in cursor.fetchall()]
            reached = cells[-1].added_id if len(cells) == limit else end
            return Superseded(self._head(connection, shard), cells, reached)

        return self._sessions.run(read, deadline)

    def whole_rows(self, after: tuple[int, bytes], limit: int, deadline: Deadline) -> list[tuple[int, bytes]]:
        def read(connection: DeadlineConnection) -> list[tuple[int, bytes]]:
            guard = self.names.guard
            if not guard.is_told:
                guard.look(connection, again=True)
            if not guard.is_told:
                return []  # its tables are of a version that purged nothing
            with connection.cursor() as cursor:
                cursor.execute(self.names.meta_sql(WHOLE_ROWS), (after[0], *after, limit))
                return list(cursor.fetchall())

        return self._sessions.run(read, deadline)

    def unerased(self, shard: int, limit: int, deadline: Deadline) -> Unerased:
        def read(connection: DeadlineConnection) -> Unerased:
            with connection.cursor() as cursor:
                cursor.execute(self.names.meta_sql(UNERASED), (shard, limit))
                keys = [PurgedKey(*row) for row in cursor.fetchall()]
                cursor.execute(self.names.meta_sql(LAST_LINE))
                (last,) = cursor.fetchone() or (0,)
            return Unerased(keys, self._head(connection, shard).epoch, int(last))

        return self._sessions.run(read, deadline)

    def erase(self, gate: Gate, keys: Sequence[PurgedKey], deadline: Deadline, last_line: int | None = None) -> None:
        """Under the counter row: a delete that comes between would be noted as erased."""

        def erase(connection: DeadlineConnection) -> None:
            listed = ", ".join(["(%s, %s)"] * len(keys))
            values = (*gate.identity, *(part for key in keys for part in key[:2]))
            erase, erased = (template.replace("KEYS", listed).replace("GATE", "s.GATE") for template in (ERASE, ERASED))
            last = _ALL_LINES if last_line is None else last_line
            statements = [
                self._bound(connection, gate, TAKE_COUNTER, (gate.shard,)),
                self._bound(connection, gate, erase, (*values, last)),
                self._bound(connection, gate, erased, values),
            ]
            look = self._bound(connection, gate, STATE, (gate.shard,))
            self._check(gate, transact(connection, statements, deadline, look).rows)

        self._sessions.write(erase, deadline)

    def forget(self, row_keys: Sequence[bytes], deadline: Deadline) -> RowTraces:
        def forget(connection: DeadlineConnection) -> RowTraces:
            before = self._traces(connection, row_keys)
            statements = [
                bound(connection, self.names.meta_sql(template), (list(row_keys),))
                for template in (NO_SECOND, NO_WAITING, NO_CONFLICT, NO_INDEX_ERROR)
            ]
            transact(connection, statements, deadline)
            return before

        return self._sessions.write(forget, deadline)

    def forget_in_copies(self, rows: Mapping[int, Sequence[bytes]], deadline: Deadline) -> int:
        def forget(connection: DeadlineConnection) -> int:
            with connection.cursor() as cursor:
                cursor.execute(self.names.meta_sql(COPIES), (list(rows),))
                return sum(self._forget_in(connection, shard, rows[shard], deadline) for (shard,) in cursor.fetchall())

        return self._sessions.write(forget, deadline)

    def _forget_in(
        self, connection: DeadlineConnection, shard: int, row_keys: Sequence[bytes], deadline: Deadline
    ) -> int:
        """Under its row, as all that changes a copy does; one that has become the shard meanwhile stays as it is."""
        keys = list(row_keys)
        statements = [
            bound(connection, self._filled(template, shard), values)
            for template, values in (
                (TAKE_COUNTER, (shard,)),
                (PASS_IN_COPY, (keys, shard)),
                (STRIP_IN_COPY, (keys, shard)),
                (DELETE_IN_COPY, (keys, shard)),
            )
        ]
        count = self._count_in(connection, shard, keys)
        if count is None:
            statements = [statements[0], statements[2]]  # its tables were dropped by hand
        # Without a cell there may be lines of them.
        transact(connection, statements, deadline)
        return count or 0

    def _count_in(self, connection: DeadlineConnection, shard: int, keys: Sequence[bytes]) -> int | None:
        """None: there is no table of cells."""
        try:
            with connection.cursor() as cursor:
                cursor.execute(self._filled(COUNT_IN_COPY, shard), (keys,))
                (count,) = cursor.fetchone() or (0,)
        except err.Error as error:
            if not is_missing(error):
                raise
            return None
        return int(count)

    def traces(self, row_keys: Sequence[bytes], deadline: Deadline) -> RowTraces:
        return self._sessions.run(lambda connection: self._traces(connection, row_keys), deadline)

    def _traces(self, connection: DeadlineConnection, row_keys: Sequence[bytes]) -> RowTraces:
        with connection.cursor() as cursor:
            cursor.execute(self.names.meta_sql(TRACES), (list(row_keys),) * 3)
            return RowTraces(*map(int, cursor.fetchone() or (0, 0, 0)))

    def _head(self, connection: DeadlineConnection, shard: int) -> ShardState:
        """What the shard says of itself after the cells were read."""
        seen = heads(connection, self.names, [shard])
        if shard not in seen:
            raise missing_shard(shard)
        return seen[shard].state

    def _refuse_former(self, connection: DeadlineConnection) -> None:
        if not self.names.guard.is_told:
            self.names.guard.look(connection, again=True)
        if not self.names.guard.is_told:
            raise SchemaMissing(
                "The tables of this server are of a version that purges nothing.", hint="Run `tripstore schema apply`."
            )

    def _check(self, gate: Gate, rows: Sequence[tuple[int, int, str]]) -> None:
        if not rows:
            raise missing_shard(gate.shard)
        check_mend(gate, ShardState(*rows[0]))


def _refused(shard: int) -> Unavailable:
    return Unavailable(f"Shard {shard} did not take purged keys.", hint="Repeat the purge: it goes on where it was.")
