"""Repair of cells: the only code that changes or deletes a row of `cell`, and puts one below the head.

Each verb is one packet that the server runs to its end. It takes the counter row, writes a line of the audit table if
the shard admits the caller and the cell is still as he saw it, and does the rest for that line only: the line and the
change are both there, or neither. A look behind the commit says whether the line is.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

from schemaless_core.deadline import Deadline
from schemaless_core.engine.cells import NewCell, StoredCell
from schemaless_core.engine.mending import (
    IDS_PER_LOOK,
    Filled,
    Mended,
    MendLine,
    MendNote,
    check_mend,
    gaps,
)
from schemaless_core.engine.mysql.connection import DeadlineConnection
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import find, heads
from schemaless_core.engine.mysql.rows import utc
from schemaless_core.engine.mysql.sessions import Sessions
from schemaless_core.engine.mysql.transactions import bound, transact
from schemaless_core.engine.mysql.writes import OWNER_GATE
from schemaless_core.errors import missing_shard
from schemaless_core.failpoints import reach
from schemaless_core.standing import Gate, Kind, ShardState

MIRROR_GATE = "shard = %s AND epoch = %s AND authority_epoch <= %s AND state = 'COPY'"

TAKE_COUNTER = "SELECT epoch FROM {state} WHERE shard = %s FOR UPDATE"

LINE = """\
INSERT INTO {mended}
 (token, shard, added_id, action, row_key, column_name, ref_key, old_body, new_body, job, who, host, at)
SELECT """
# SHA2: the bytes themselves would go over the wire twice, and a server may take no packet so large.
CHANGED = f"""\
{LINE}%s, s.shard, c.added_id, %s, c.row_key, c.column_name, c.ref_key, c.body, %s, %s, %s, %s, UTC_TIMESTAMP(6)
 FROM {{state}} s JOIN {{cell}} c ON c.added_id = %s AND c.row_key = %s AND c.column_name = %s AND c.ref_key = %s
  AND SHA2(c.body, 256) = %s
 WHERE GATE"""
SET_BODY = "UPDATE {cell} c JOIN {mended} m ON m.added_id = c.added_id SET c.body = m.new_body WHERE m.token = %s"
DELETE = "DELETE FROM {cell} WHERE added_id = (SELECT m.added_id FROM {mended} m WHERE m.token = %s)"
PASS = """\
INSERT INTO {purged} (shard, added_id, at) SELECT m.shard, m.added_id, m.at FROM {mended} m WHERE m.token = %s
 ON DUPLICATE KEY UPDATE added_id = {purged}.added_id"""

IS_HOLE = """\
%s < s.next_added_id AND NOT EXISTS (SELECT 1 FROM {cell} c WHERE c.added_id = %s)
  AND NOT EXISTS (SELECT 1 FROM {purged} p WHERE p.shard = s.shard AND p.added_id = %s)"""
LACKING = f"""\
{LINE}%s, s.shard, GREATEST(s.next_added_id, (SELECT COALESCE(MAX(c.added_id), 0) + 1 FROM {{cell}} c)),
  'put', %s, %s, %s, NULL, %s, %s, %s, %s, UTC_TIMESTAMP(6)
 FROM {{state}} s WHERE GATE AND {IS_HOLE}
  AND NOT EXISTS (SELECT 1 FROM {{cell}} c WHERE c.row_key = %s AND c.column_name = %s AND c.ref_key = %s)"""
INSERT = """\
INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at)
SELECT m.added_id, m.row_key, m.column_name, m.ref_key, m.new_body, GREATEST(m.at, s.last_created_at)
 FROM {mended} m JOIN {state} s ON s.shard = m.shard WHERE m.token = %s"""
CLOSED_BESIDE = f"""\
{LINE}%s, m.shard, %s, 'close', NULL, NULL, NULL, NULL, NULL, m.job, m.who, m.host, m.at
 FROM {{mended}} m WHERE m.token = %s"""
ADVANCE = """\
UPDATE {state} s JOIN {mended} m ON m.shard = s.shard AND m.added_id >= s.next_added_id
 SET s.next_added_id = m.added_id + 1, s.last_created_at = GREATEST(m.at, s.last_created_at) WHERE m.token = %s"""
CLOSED = f"""\
{LINE}%s, s.shard, %s, 'close', NULL, NULL, NULL, NULL, NULL, %s, %s, %s, UTC_TIMESTAMP(6)
 FROM {{state}} s WHERE GATE AND {IS_HOLE}"""

LOOK = """\
SELECT s.epoch, s.authority_epoch, s.state, (SELECT COUNT(*) FROM {mended} m WHERE m.token = %s)
 FROM {state} s WHERE s.shard = %s"""

COUNT_IDS = """\
SELECT (SELECT COUNT(*) FROM {cell} WHERE added_id > %s AND added_id <= %s)
 + (SELECT COUNT(*) FROM {purged} WHERE shard = %s AND added_id > %s AND added_id <= %s)"""
IDS = """\
SELECT added_id FROM {cell} WHERE added_id > %s AND added_id <= %s
UNION SELECT added_id FROM {purged} WHERE shard = %s AND added_id > %s AND added_id <= %s ORDER BY added_id"""
TOUCHED = "SELECT DISTINCT row_key FROM {mended} WHERE row_key IN %s AND old_body IS NOT NULL"
_LINE = "shard, added_id, action, row_key, column_name, ref_key, old_body, new_body, job, who, host, at"
LINES = f"SELECT {_LINE} FROM {{mended}} WHERE %s IS NULL OR job = %s ORDER BY id DESC LIMIT %s"
OF_ROW = f"SELECT {_LINE} FROM {{mended}} WHERE row_key = %s AND shard = %s ORDER BY id"


class MySQLMending:
    """The verbs of repair on one server."""

    def __init__(self, sessions: Sessions, names: Names) -> None:
        self._sessions = sessions
        self._names = names

    def holes(self, shard: int, after: int, limit: int, deadline: Deadline) -> list[int]:
        return self._sessions.run(lambda connection: self._holes(connection, shard, after, limit), deadline)

    def put_beside(self, gate: Gate, cell: NewCell, hole: int, note: MendNote, deadline: Deadline) -> Filled | None:
        def put(connection: DeadlineConnection) -> Filled | None:
            token, beside = _token(), _token()
            is_hole, key = (hole, hole, hole), cell[:3]
            values = (token, *key, cell.body, *note, *gate.identity, *is_hole, *key)
            statements = [
                self._bound(connection, gate, LACKING, values),
                self._bound(connection, gate, INSERT, (token,)),
                self._bound(connection, gate, CLOSED_BESIDE, (beside, hole, token)),
                self._bound(connection, gate, PASS, (beside,)),
                self._bound(connection, gate, ADVANCE, (token,)),
            ]
            is_created = self._commit(connection, gate, token, statements, deadline)
            found = find(connection, self._names, gate.shard, *key).cells
            return Filled(is_created, found[0]) if found else None

        return self._sessions.run(put, deadline)

    def mend(self, gate: Gate, stored: StoredCell, body: bytes, note: MendNote, deadline: Deadline) -> bool:
        return self._change(gate, Mended.MEND, stored, body, note, [SET_BODY], deadline)

    def purge(self, gate: Gate, stored: StoredCell, note: MendNote, deadline: Deadline) -> bool:
        return self._change(gate, Mended.PURGE, stored, None, note, [PASS, DELETE], deadline)

    def close_hole(self, gate: Gate, hole: int, note: MendNote, deadline: Deadline) -> bool:
        def close(connection: DeadlineConnection) -> bool:
            token = _token()
            values = (token, hole, *note, *gate.identity, hole, hole, hole)
            statements = [
                self._bound(connection, gate, CLOSED, values),
                self._bound(connection, gate, PASS, (token,)),
            ]
            return self._commit(connection, gate, token, statements, deadline)

        return self._sessions.run(close, deadline)

    def of_row(self, shard: int, row_key: bytes, deadline: Deadline) -> list[MendLine]:
        return self._lines(OF_ROW, (row_key, shard), deadline)

    def touched(self, row_keys: Sequence[bytes], deadline: Deadline) -> set[bytes]:
        def read(connection: DeadlineConnection) -> set[bytes]:
            with connection.cursor() as cursor:
                cursor.execute(self._names.meta_sql(TOUCHED), (list(row_keys),))
                return {row_key for (row_key,) in cursor.fetchall()}

        return self._sessions.run(read, deadline) if row_keys else set()

    def lines(self, job: str | None, limit: int, deadline: Deadline) -> list[MendLine]:
        return self._lines(LINES, (job, job, limit), deadline)

    def _lines(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> list[MendLine]:
        def read(connection: DeadlineConnection) -> list[MendLine]:
            with connection.cursor() as cursor:
                cursor.execute(self._names.meta_sql(statement), values)
                return [_line(found) for found in cursor.fetchall()]

        return self._sessions.run(read, deadline)

    def _change(
        self,
        gate: Gate,
        action: Mended,
        stored: StoredCell,
        body: bytes | None,
        note: MendNote,
        changes: Sequence[str],
        deadline: Deadline,
    ) -> bool:
        def change(connection: DeadlineConnection) -> bool:
            token = _token()
            as_seen = (*stored[:4], hashlib.sha256(stored.body).hexdigest())
            values = (token, action.value, body, *note, *as_seen, *gate.identity)
            line = self._bound(connection, gate, CHANGED, values)
            rest = [self._bound(connection, gate, each, (token,)) for each in changes]
            return self._commit(connection, gate, token, [line, *rest], deadline)

        return self._sessions.run(change, deadline)

    def _commit(
        self, connection: DeadlineConnection, gate: Gate, token: bytes, statements: Sequence[bytes], deadline: Deadline
    ) -> bool:
        """Commit a line and what goes with it; whether there is a line. Raise when the shard refused."""
        lock = self._bound(connection, gate, TAKE_COUNTER, (gate.shard,))
        look = self._bound(connection, gate, LOOK, (token, gate.shard))
        reach("mending.before_send")
        rows = transact(connection, [lock, *statements], deadline, look).rows
        reach("mending.answered")
        if not rows:
            raise missing_shard(gate.shard)
        *state, lines = rows[0]
        if not lines:
            check_mend(gate, ShardState(*state))
        return bool(lines)

    def _holes(self, connection: DeadlineConnection, shard: int, after: int, limit: int) -> list[int]:
        seen = heads(connection, self._names, [shard])
        if shard not in seen:
            raise missing_shard(shard)
        end = min(seen[shard].head, after + IDS_PER_LOOK)
        between = (after, end, shard, after, end)
        with connection.cursor() as cursor:
            cursor.execute(self._filled(COUNT_IDS, shard), between)
            (count,) = cursor.fetchone() or (0,)
            if count >= end - after:
                return []
            cursor.execute(self._filled(IDS, shard), between)
            return gaps([added_id for (added_id,) in cursor.fetchall()], after, end)[:limit]

    def _bound(self, connection: DeadlineConnection, gate: Gate, template: str, values: Sequence[Any]) -> bytes:
        condition = OWNER_GATE if gate.kind is Kind.OWNER else MIRROR_GATE
        return bound(connection, self._filled(template, gate.shard).replace("GATE", condition), values)

    def _filled(self, template: str, shard: int) -> str:
        names = self._names
        tables = {"mended": names.mended, "purged": names.purged}
        return template.format(cell=names.cell(shard), state=names.shard_state, **tables)


def _token() -> bytes:
    return secrets.token_bytes(16)


def _line(found: tuple[Any, ...]) -> MendLine:
    shard, added_id, action, *cell, job, who, host, at = found
    row_key, column_name, ref_key, old_body, new_body = cell
    note = MendNote(job, who, host)
    return MendLine(shard, added_id, Mended(action), row_key, column_name, ref_key, old_body, new_body, note, utc(at))
