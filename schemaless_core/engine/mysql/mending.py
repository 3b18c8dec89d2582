"""Repair of cells: the only code that changes or deletes a row of `cell`, and puts one below the head.

Each verb is one packet that the server runs to its end. It takes the counter row, writes a line of the audit table if
the shard admits the caller and the cell is still as it was read, and does the rest for that line only: the line and the
change are both there, or neither. A look behind the commit says which lines are. Each line has a token of its own.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any

from schemaless_core.cell.standing import Gate, ShardState
from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.bodies import FORMS_MAX
from schemaless_core.engine.mending import (
    IDS_PER_LOOK,
    BodyChange,
    Filled,
    Lack,
    Mended,
    MendLine,
    MendNote,
    check_mend,
)
from schemaless_core.engine.mysql.counted import STATE, TAKE_COUNTER, CounterVerbs
from schemaless_core.engine.mysql.guard import NONE_PURGED
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import find_many, heads
from schemaless_core.engine.mysql.rows import utc
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, binary, quoted
from schemaless_core.engine.mysql.wire.transactions import transact
from schemaless_core.errors import missing_shard
from schemaless_core.failpoints import reach

LINE = """\
INSERT INTO {mended}
 (token, shard, added_id, action, row_key, column_name, ref_key, old_body, new_body, job, who, host, at)
"""
# SHA2: the bytes themselves would go over the wire twice, and a server may take no packet so large.
CHANGED = f"""\
{LINE}WITH w (token, added_id, row_key, column_name, ref_key, digest, other, body) AS (VALUES ROWS)
SELECT w.token, s.shard, c.added_id, %s, c.row_key, c.column_name, c.ref_key, c.body, NEW_BODY, %s, %s, %s,
  UTC_TIMESTAMP(6)
 FROM {{state}} s JOIN w STRAIGHT_JOIN {{cell}} c ON c.added_id = w.added_id
  AND c.row_key = w.row_key AND c.column_name = w.column_name AND c.ref_key = w.ref_key
  AND SHA2(c.body, 256) IN (w.digest, w.other)
 WHERE GATE"""
# From the lines to the cells: no other line is looked at, and none is locked.
_LINES_OF = "{mended} m FORCE INDEX (token)"
SET_BODY = f"""\
UPDATE {_LINES_OF} STRAIGHT_JOIN {{cell}} c ON c.added_id = m.added_id SET c.body = m.new_body
 WHERE m.token IN (TOKENS)"""
# An alias of what is deleted from would have to be in the session's own database.
DELETE = f"""\
DELETE {{cell}} FROM {_LINES_OF} STRAIGHT_JOIN {{cell}} ON {{cell}}.added_id = m.added_id WHERE m.token IN (TOKENS)"""
PASS = f"""\
INSERT INTO {{purged}} (shard, added_id, at) SELECT m.shard, m.added_id, m.at FROM {_LINES_OF} WHERE m.token IN (TOKENS)
 ON DUPLICATE KEY UPDATE added_id = {{purged}}.added_id"""
# Keys of a purge: the line has a body again. Where there is no such table, nothing was ever purged.
NOT_ERASED = f"""\
UPDATE {_LINES_OF} STRAIGHT_JOIN {{purged_key}} k ON k.shard = m.shard AND k.row_key = m.row_key
  AND k.column_name IN (_binary'', m.column_name)
 SET k.is_erased = 0 WHERE m.token IN (TOKENS) AND k.is_erased = 1"""

IS_HOLE = """\
HOLE < s.next_added_id AND NOT EXISTS (SELECT 1 FROM {cell} c WHERE c.added_id = HOLE)
  AND NOT EXISTS (SELECT 1 FROM {purged} p WHERE p.shard = s.shard AND p.added_id = HOLE)"""
# What was purged is not put again. PURGED_TOO: on a server of an earlier version nothing was.
LACKING = f"""\
{LINE}WITH w (n, token, hole, row_key, column_name, ref_key, body) AS (VALUES ROWS)
SELECT w.token, s.shard,
  GREATEST(s.next_added_id, (SELECT COALESCE(MAX(c.added_id), 0) + 1 FROM {{cell}} c)) - 1
   + ROW_NUMBER() OVER (ORDER BY w.n),
  'put', w.row_key, w.column_name, w.ref_key, NULL, w.body, %s, %s, %s, UTC_TIMESTAMP(6)
 FROM {{state}} s JOIN w WHERE GATEPURGED_TOO AND {IS_HOLE.replace("HOLE", "w.hole")}
  AND NOT EXISTS (SELECT 1 FROM {{cell}} c
   WHERE c.row_key = w.row_key AND c.column_name = w.column_name AND c.ref_key = w.ref_key)"""
INSERT = f"""\
INSERT INTO {{cell}} (added_id, row_key, column_name, ref_key, body, created_at)
SELECT m.added_id, m.row_key, m.column_name, m.ref_key, m.new_body, GREATEST(m.at, s.last_created_at)
 FROM {_LINES_OF} STRAIGHT_JOIN {{state}} s ON s.shard = m.shard WHERE m.token IN (TOKENS)"""
CLOSED_BESIDE = f"""\
{LINE}WITH w (token, beside, hole) AS (VALUES ROWS)
SELECT w.beside, m.shard, w.hole, 'close', NULL, NULL, NULL, NULL, NULL, m.job, m.who, m.host, m.at
 FROM w STRAIGHT_JOIN {_LINES_OF} ON m.token = w.token"""
ADVANCE = f"""\
UPDATE {{state}} s
 JOIN (SELECT MAX(m.added_id) AS added_id, MAX(m.at) AS at FROM {_LINES_OF} WHERE m.token IN (TOKENS)) m
 ON m.added_id >= s.next_added_id
 SET s.next_added_id = m.added_id + 1, s.last_created_at = GREATEST(m.at, s.last_created_at) WHERE s.shard = %s"""
CLOSED = f"""\
{LINE}SELECT %s, s.shard, %s, 'close', NULL, NULL, NULL, NULL, NULL, %s, %s, %s, UTC_TIMESTAMP(6)
 FROM {{state}} s WHERE GATE AND {IS_HOLE.replace("HOLE", "%s")}"""

RAISE_COUNTER = """\
UPDATE {state}
 JOIN (SELECT MAX(added_id) AS last, MAX(created_at) AS at FROM {cell} WHERE added_id > %s) c ON c.last >= next_added_id
 SET next_added_id = c.last + 1, last_created_at = GREATEST(last_created_at, c.at) WHERE GATE"""
RAISE_TIME = """\
UPDATE {cell} c JOIN {state} ON GATE
 SET c.created_at = %s, last_created_at = GREATEST(last_created_at, %s)
 WHERE c.added_id = %s AND c.row_key = %s AND c.created_at = %s"""

LOOK = """\
SELECT s.epoch, s.authority_epoch, s.state, m.token FROM {state} s LEFT JOIN {mended} m ON m.token IN (TOKENS)
 WHERE s.shard = %s"""

COUNT_IDS = """\
SELECT (SELECT COUNT(*) FROM {cell} WHERE added_id > %s AND added_id <= %s)
 + (SELECT COUNT(*) FROM {purged} WHERE shard = %s AND added_id > %s AND added_id <= %s)"""
# What stands right before and right behind each gap. Nothing is twice among the ids: what was purged is no cell.
GAPS = """\
SELECT i.before_it, i.added_id
 FROM (SELECT u.added_id, COALESCE(LAG(u.added_id) OVER (ORDER BY u.added_id), %s) AS before_it
   FROM (SELECT added_id FROM {cell} WHERE added_id > %s AND added_id <= %s
     UNION ALL SELECT added_id FROM {purged} WHERE shard = %s AND added_id > %s AND added_id <= %s
     UNION ALL SELECT %s) u) i
 WHERE i.added_id > i.before_it + 1 ORDER BY i.added_id"""
TOUCHED = "SELECT DISTINCT row_key FROM {mended} WHERE row_key IN %s AND old_body IS NOT NULL"
PURGED_OF = """\
SELECT row_key, column_name, ref_key FROM {mended} WHERE row_key IN %s AND action = 'purge' ORDER BY id"""
_LINE = "shard, added_id, action, row_key, column_name, ref_key, old_body, new_body, job, who, host, at"
LINES = f"SELECT {_LINE} FROM {{mended}} WHERE %s IS NULL OR job = %s ORDER BY id DESC LIMIT %s"
OF_ROW = f"SELECT {_LINE} FROM {{mended}} WHERE row_key = %s AND shard = %s ORDER BY id"


class MySQLMending(CounterVerbs):
    """The verbs of repair on one server."""

    def holes(self, shard: int, after: int, limit: int, deadline: Deadline) -> list[int]:
        return self._sessions.run(lambda connection: self._holes(connection, shard, after, limit), deadline)

    def put_beside(self, gate: Gate, lacks: Sequence[Lack], note: MendNote, deadline: Deadline) -> list[Filled | None]:
        def put(connection: DeadlineConnection) -> list[Filled | None]:
            tokens, beside = _tokens(lacks), _tokens(lacks)
            guard = self.names.guard
            if not guard.is_told:
                guard.look(connection)
            lacking = LACKING.replace("PURGED_TOO", NONE_PURGED if guard.is_told else "")
            statements = [
                self._listed(connection, gate, lacking, _lacking(tokens, lacks), (*note, *gate.identity)),
                self._of(connection, gate, INSERT, tokens),
                self._listed(connection, gate, CLOSED_BESIDE, _closed(tokens, beside, lacks), ()),
                self._of(connection, gate, PASS, beside),
                self._of(connection, gate, ADVANCE, tokens, gate.shard),
            ]
            created = self._commit(connection, gate, tokens, statements, deadline)
            keys = [lack.cell[:3] for lack in lacks]
            stored = {
                cell[1:4]: cell for cell in find_many(connection, self.names, {gate.shard: keys})[gate.shard].cells
            }
            return [
                Filled(token in created, stored[key]) if key in stored else None
                for token, key in zip(tokens, keys, strict=True)
            ]

        return self._sessions.write(put, deadline)

    def change(self, gate: Gate, changes: Sequence[BodyChange], note: MendNote, deadline: Deadline) -> list[bool]:
        def change(connection: DeadlineConnection) -> list[bool]:
            forms = [self._form(each.stored) for each in changes]
            done, left = set[int](), list(range(len(changes)))
            for _attempt in range(FORMS_MAX):
                portion = [(changes[n], forms[n]) for n in left]
                are_done = self._change(connection, gate, portion, note, deadline)
                done |= {n for n, is_done in zip(left, are_done, strict=True) if is_done}
                left = self._in_other_forms(connection, gate.shard, changes, forms, [n for n in left if n not in done])
                if not left:
                    break
            return [n in done for n in range(len(changes))]

        return self._sessions.write(change, deadline)

    def _change(
        self,
        connection: DeadlineConnection,
        gate: Gate,
        changes: Sequence[tuple[BodyChange, bytes]],
        note: MendNote,
        deadline: Deadline,
    ) -> list[bool]:
        """Each beside one form in which its cell may be stored, besides its plain one."""
        tokens, action = _tokens(changes), changes[0][0].action
        values = (action.value, *note, *gate.identity)
        template = CHANGED.replace("NEW_BODY", "NULL" if action is Mended.PURGE else "w.body")
        line = self._listed(connection, gate, template, _changed(tokens, changes), values)
        guard = self.names.guard
        if not guard.is_told:
            guard.look(connection)
        steps = [PASS, DELETE] if action is Mended.PURGE else [SET_BODY]
        steps += [NOT_ERASED] if guard.is_told else []
        rest = [self._of(connection, gate, step, tokens) for step in steps]
        done = self._commit(connection, gate, tokens, [line, *rest], deadline)
        return [token in done for token in tokens]

    def _form(self, stored: StoredCell) -> bytes:
        return self.names.bodies.kept_body(stored.column_name, stored.body)

    def _in_other_forms(
        self,
        connection: DeadlineConnection,
        shard: int,
        changes: Sequence[BodyChange],
        forms: list[bytes],
        left: Sequence[int],
    ) -> list[int]:
        """Those whose cells are as they were read, compressed in another way: that way is in `forms` then."""
        if not left:
            return []
        keys = [changes[n].stored[1:4] for n in left]
        found = find_many(connection, self.names.as_stored, {shard: keys})[shard].cells
        bodies = {cell[:4]: cell.body for cell in found}
        again = []
        for n in left:
            stored = changes[n].stored
            body = bodies.get(stored[:4])
            if body is not None and body != forms[n] and self.names.bodies.plain(body) == stored.body:
                forms[n] = body
                again.append(n)
        return again

    def close_hole(self, gate: Gate, hole: int, note: MendNote, deadline: Deadline) -> bool:
        def close(connection: DeadlineConnection) -> bool:
            (token,) = _tokens([hole])
            values = (token, hole, *note, *gate.identity, hole, hole, hole)
            statements = [
                self._bound(connection, gate, CLOSED, values),
                self._of(connection, gate, PASS, [token]),
            ]
            return bool(self._commit(connection, gate, [token], statements, deadline))

        return self._sessions.write(close, deadline)

    def raise_counter(self, gate: Gate, head: int, deadline: Deadline) -> None:
        self._raise(gate, RAISE_COUNTER, (head, *gate.identity), deadline)

    def raise_time(self, gate: Gate, cell: StoredCell, moment: datetime, deadline: Deadline) -> None:
        before, after = (each.replace(tzinfo=None) for each in (cell.created_at, moment))
        values = (*gate.identity, after, after, cell.added_id, cell.row_key, before)
        self._raise(gate, RAISE_TIME, values, deadline)

    def _raise(self, gate: Gate, template: str, values: Sequence[Any], deadline: Deadline) -> None:
        def change(connection: DeadlineConnection) -> None:
            lock, look = (self._bound(connection, gate, each, (gate.shard,)) for each in (TAKE_COUNTER, STATE))
            rows = transact(connection, [lock, self._bound(connection, gate, template, values)], deadline, look).rows
            if not rows:
                raise missing_shard(gate.shard)
            check_mend(gate, ShardState(*rows[0]))

        self._sessions.write(change, deadline)

    def of_row(self, shard: int, row_key: bytes, deadline: Deadline) -> list[MendLine]:
        return self._lines(OF_ROW, (row_key, shard), deadline)

    def purged(self, row_keys: Sequence[bytes], deadline: Deadline) -> list[tuple[bytes, bytes, int]]:
        def read(connection: DeadlineConnection) -> list[tuple[bytes, bytes, int]]:
            with connection.cursor() as cursor:
                cursor.execute(self.names.meta_sql(PURGED_OF), (list(row_keys),))
                return list(cursor.fetchall())

        return self._sessions.run(read, deadline) if row_keys else []

    def touched(self, row_keys: Sequence[bytes], deadline: Deadline) -> set[bytes]:
        def read(connection: DeadlineConnection) -> set[bytes]:
            with connection.cursor() as cursor:
                cursor.execute(self.names.meta_sql(TOUCHED), (list(row_keys),))
                return {row_key for (row_key,) in cursor.fetchall()}

        return self._sessions.run(read, deadline) if row_keys else set()

    def lines(self, job: str | None, limit: int, deadline: Deadline) -> list[MendLine]:
        return self._lines(LINES, (job, job, limit), deadline)

    def _lines(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> list[MendLine]:
        def read(connection: DeadlineConnection) -> list[MendLine]:
            with connection.cursor() as cursor:
                cursor.execute(self.names.meta_sql(statement), values)
                return [_line(self.names, found) for found in cursor.fetchall()]

        return self._sessions.run(read, deadline)

    def _commit(
        self,
        connection: DeadlineConnection,
        gate: Gate,
        tokens: Sequence[bytes],
        statements: Sequence[bytes],
        deadline: Deadline,
    ) -> set[bytes]:
        """Commit lines and what goes with them; the tokens of those there are. Raise when the shard refused."""
        lock = self._bound(connection, gate, TAKE_COUNTER, (gate.shard,))
        look = self._of(connection, gate, LOOK, tokens, gate.shard)
        reach("mending.before_send")
        rows = transact(connection, [lock, *statements], deadline, look).rows
        reach("mending.answered")
        if not rows:
            raise missing_shard(gate.shard)
        lines = {token for *_state, token in rows if token is not None}
        if not lines:
            check_mend(gate, ShardState(*rows[0][:3]))
        return lines

    def _holes(self, connection: DeadlineConnection, shard: int, after: int, limit: int) -> list[int]:
        seen = heads(connection, self.names, [shard])
        if shard not in seen:
            raise missing_shard(shard)
        end = min(seen[shard].head, after + IDS_PER_LOOK)
        between = (after, end, shard, after, end)
        with connection.cursor() as cursor:
            cursor.execute(self._filled(COUNT_IDS, shard), between)
            (count,) = cursor.fetchone() or (0,)
            if count >= end - after:
                return []
            cursor.execute(self._filled(GAPS, shard), (after, *between, end + 1))
            # Where signed and unsigned meet, a server answers with decimals.
            found = chain.from_iterable(range(int(before) + 1, int(behind)) for before, behind in cursor.fetchall())
            return list(islice(found, limit))

    def _of(
        self, connection: DeadlineConnection, gate: Gate, template: str, tokens: Sequence[bytes], *values: int
    ) -> bytes:
        """A statement about the lines with these tokens."""
        listed = b", ".join(map(binary, tokens))
        return self._bound(connection, gate, template, values).replace(b"TOKENS", listed, 1)


def _tokens(lines: Sequence[object]) -> list[bytes]:
    return [secrets.token_bytes(16) for _line in lines]


def _lacking(tokens: Sequence[bytes], lacks: Sequence[Lack]) -> list[bytes]:
    """The table of LACKING."""
    return [
        b"%d, %s, %d, %s, _binary'%s'"
        % (number, binary(token), lack.hole, _key(*lack.cell[:3]), quoted(lack.cell.body))
        for number, (token, lack) in enumerate(zip(tokens, lacks, strict=True))
    ]


def _closed(tokens: Sequence[bytes], beside: Sequence[bytes], lacks: Sequence[Lack]) -> list[bytes]:
    """The table of CLOSED_BESIDE."""
    return [
        b"%s, %s, %d" % (binary(token), binary(other), lack.hole)
        for token, other, lack in zip(tokens, beside, lacks, strict=True)
    ]


def _changed(tokens: Sequence[bytes], changes: Sequence[tuple[BodyChange, bytes]]) -> list[bytes]:
    """The table of CHANGED."""
    return [
        b"%s, %d, %s, '%s', '%s', _binary'%s'"
        % (
            binary(token),
            stored.added_id,
            _key(*stored[1:4]),
            hashlib.sha256(stored.body).hexdigest().encode(),
            hashlib.sha256(form).hexdigest().encode(),
            quoted(body or b""),
        )
        for token, ((stored, body), form) in zip(tokens, changes, strict=True)
    ]


def _key(row_key: bytes, column_name: bytes, ref_key: int) -> bytes:
    return b"%s, %s, %d" % (binary(row_key), binary(column_name), ref_key)


def _line(names: Names, found: tuple[Any, ...]) -> MendLine:
    shard, added_id, action, *cell, job, who, host, at = found
    row_key, column_name, ref_key, old_body, new_body = cell
    old_body = None if old_body is None else names.bodies.plain(old_body)
    note = MendNote(job, who, host)
    return MendLine(shard, added_id, Mended(action), row_key, column_name, ref_key, old_body, new_body, note, utc(at))
