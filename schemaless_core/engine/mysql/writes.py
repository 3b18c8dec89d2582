"""Puts. The counter row gives the added id, orders the commits, and is the fence; see docs/decisions/0003.

Each put is one packet that the server runs to its end whatever becomes of the client: nobody holds a counter row
across a round trip. `ON DUPLICATE KEY UPDATE` to the same value makes a duplicate a row count of 0 instead of an error
that would leave the transaction open. The row count of the insert is the answer; the id is taken from the update's
own reply, and only when the insert says 1: with 0 rows matched that reply may hold the id of another shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymysql import err
from pymysql.cursors import Cursor

from schemaless_core.answers import ANY
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Batch, NewCell, Stored, StoredCell
from schemaless_core.engine.mysql.connection import DeadlineConnection
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import find, find_latest, find_many, missing_shard
from schemaless_core.engine.mysql.rows import binary, values_of
from schemaless_core.engine.mysql.translation import translate
from schemaless_core.errors import ConnectionBroken, SchemalessError, StaleEpoch
from schemaless_core.failpoints import reach
from schemaless_core.standing import Gate, Kind, ShardState

OWNER_GATE = "shard = %s AND epoch = %s AND authority_epoch = %s AND state = 'RW'"
COPIER_GATE = "shard = %s AND epoch = %s AND authority_epoch <= %s AND state IN ('RW', 'COPY')"

TAKE_COUNTER = """\
SELECT epoch, authority_epoch, state, next_added_id FROM {state} WHERE shard = %s FOR UPDATE"""

INSERT = """\
INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at)
SELECT next_added_id, %s, %s, %s, %s, GREATEST(UTC_TIMESTAMP(6), last_created_at)
 FROM {state} WHERE GATE FOR UPDATE
ON DUPLICATE KEY UPDATE ref_key = {cell}.ref_key"""

INSERT_AFTER = """\
INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at)
SELECT next_added_id, %s, %s, %s, %s, GREATEST(UTC_TIMESTAMP(6), last_created_at)
 FROM {state} WHERE GATE
  AND (SELECT MAX(c.ref_key) FROM {cell} c WHERE c.row_key = %s AND c.column_name = %s) <=> %s
ON DUPLICATE KEY UPDATE ref_key = {cell}.ref_key"""

INSERT_MANY = """\
INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at)
WITH w (n, row_key, column_name, ref_key, body) AS (VALUES ROWS)
SELECT s.next_added_id - 1 + ROW_NUMBER() OVER (ORDER BY w.n), w.row_key, w.column_name, w.ref_key, w.body,
  GREATEST(UTC_TIMESTAMP(6), s.last_created_at)
 FROM {state} s JOIN w WHERE GATE
  AND NOT EXISTS (SELECT 1 FROM {cell} c
   WHERE c.row_key = w.row_key AND c.column_name = w.column_name AND c.ref_key = w.ref_key)"""

ADVANCE = """\
UPDATE {state} SET next_added_id = LAST_INSERT_ID(next_added_id + ROW_COUNT()),
  last_created_at = GREATEST(UTC_TIMESTAMP(6), last_created_at)
 WHERE GATE"""

PUT = f"BEGIN; {INSERT}; {ADVANCE}; COMMIT"
PUT_AFTER = f"BEGIN; {TAKE_COUNTER}; {INSERT_AFTER}; {ADVANCE}; COMMIT"
PUT_MANY = f"BEGIN; {TAKE_COUNTER}; {INSERT_MANY}; {ADVANCE}; COMMIT"

_OWNER = {template: template.replace("GATE", OWNER_GATE) for template in (PUT, PUT_AFTER, PUT_MANY)}
_COPIER = {template: template.replace("GATE", COPIER_GATE) for template in (PUT, PUT_AFTER, PUT_MANY)}


def put(connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, expect_latest: Any) -> Stored:
    """Store one cell, or find what stands in its way."""
    for _attempt in range(2):
        reach("put.before_send")
        if expect_latest is ANY:
            stored = _put(connection, names, gate, cell)
        else:
            stored = _put_after(connection, names, gate, cell, expect_latest)
        reach("put.answered")
        if stored is not None:
            return stored
        found = _in_the_way(connection, names, gate, cell, expect_latest)
        if found is not None:
            return found
    raise damaged_counter(gate.shard)


def _put(connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell) -> Stored | None:
    identity = gate[:2] + (gate.authority_epoch,)
    with connection.cursor() as cursor:
        cursor.execute(_sql(names, PUT, gate), (*cell, *identity, *identity))
        cursor.nextset()
        inserted = cursor.rowcount
        cursor.nextset()
        next_added_id = cursor.lastrowid
        cursor.nextset()
    return Stored(True, next_added_id - 1, None) if inserted == 1 else None


def _put_after(
    connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, expect_latest: int | None
) -> Stored | None:
    identity = gate[:2] + (gate.authority_epoch,)
    expected = (cell.row_key, cell.column_name, expect_latest)
    with connection.cursor() as cursor:
        cursor.execute(_sql(names, PUT_AFTER, gate), (gate.shard, *cell, *identity, *expected, *identity))
        cursor.nextset()
        cursor.nextset()
        inserted = cursor.rowcount
        cursor.nextset()
        next_added_id = cursor.lastrowid
        cursor.nextset()
    return Stored(True, next_added_id - 1, None) if inserted == 1 else None


def _in_the_way(
    connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, expect_latest: Any
) -> Stored | None:
    """After an insert of no row: the shard refuses, an equal key is stored, or the latest is another."""
    sighting = find(connection, names, gate.shard, *cell[:3])
    gate.check_write(sighting.state)
    if sighting.cells:
        return Stored(False, None, sighting.cells[0])
    if expect_latest is ANY:
        return None
    latest = find_latest(connection, names, gate.shard, cell.row_key, cell.column_name).cells
    if (latest[0].ref_key if latest else None) == expect_latest:
        return None  # it became the expected one between the two statements: once more
    return Stored(False, None, latest[0] if latest else None)


def put_many(
    connection: DeadlineConnection, names: Names, batches: Sequence[Batch], deadline: Deadline
) -> list[list[Stored] | SchemalessError]:
    """Store batches for several shards in one packet, one transaction per shard."""
    answers: list[list[Stored] | SchemalessError] = []
    while len(answers) < len(batches):
        answers.extend(_put_many(connection, names, batches[len(answers) :], deadline))
    return answers


def _put_many(
    connection: DeadlineConnection, names: Names, batches: Sequence[Batch], deadline: Deadline
) -> list[list[Stored] | SchemalessError]:
    """Send the packet; stop at the first batch that the server refuses, since it drops what follows."""
    counted: list[tuple[ShardState | None, int, int]] = []
    refusal: SchemalessError | None = None
    with connection.cursor() as cursor:
        try:
            reach("batch.before_send")
            _send(cursor, _packet(connection, names, batches))
            for number in range(len(batches)):
                counted.append(_count(cursor, is_last=number == len(batches) - 1))  # noqa: PERF401  # kept on an error
        except err.Error as error:
            refusal = translate(error, str(connection.host), deadline)
            if isinstance(refusal, ConnectionBroken) or deadline.is_over:
                raise
            refusal.__cause__ = error
            connection.rollback()
    reach("batch.answered")
    answers: list[list[Stored] | SchemalessError] = []
    for batch, (state, first_added_id, inserted) in zip(batches, counted, strict=False):
        answers.append(_answer(connection, names, batch, state, first_added_id, inserted))
    if refusal is not None:
        answers.append(refusal)
    return answers


def _count(cursor: Cursor, *, is_last: bool) -> tuple[ShardState | None, int, int]:
    """Read the replies of one shard's transaction: its state, the first id it would give, the rows inserted."""
    cursor.nextset()
    row = cursor.fetchone()
    cursor.nextset()
    inserted = cursor.rowcount
    cursor.nextset()
    cursor.nextset()
    if not is_last:
        cursor.nextset()
    if row is None:
        return None, 0, 0
    return ShardState(*row[:3]), row[3], inserted


def _answer(
    connection: DeadlineConnection,
    names: Names,
    batch: Batch,
    state: ShardState | None,
    first_added_id: int,
    inserted: int,
) -> list[Stored] | SchemalessError:
    if state is None:
        return missing_shard(batch.gate.shard)
    try:
        batch.gate.check_write(state)
    except StaleEpoch as refusal:
        return refusal
    if inserted == len(batch.cells):
        return [Stored(True, first_added_id + n, None) for n in range(inserted)]
    return _read_back(connection, names, batch, range(first_added_id, first_added_id + inserted))


def _read_back(
    connection: DeadlineConnection, names: Names, batch: Batch, ours: range
) -> list[Stored] | SchemalessError:
    """Some keys were there before: look at what is stored. Cells never change, so later is as good as then."""
    keys = [cell[:3] for cell in batch.cells]
    sighting = find_many(connection, names, {batch.gate.shard: keys})[batch.gate.shard]
    stored = {cell[1:4]: cell for cell in sighting.cells}
    if len(stored) < len(keys):
        return damaged_counter(batch.gate.shard)
    return [_stored(stored[key], ours) for key in keys]


def _stored(cell: StoredCell, ours: range) -> Stored:
    return Stored(True, cell.added_id, None) if cell.added_id in ours else Stored(False, None, cell)


def damaged_counter(shard: int) -> SchemalessError:
    """Neither stored, nor refused, nor there: the counter points at an id that is taken."""
    return SchemalessError(
        f"Shard {shard} could not give an added id.",
        hint="Its counter is damaged; stop writers and run `tripstore doctor`.",
    )


def _packet(connection: DeadlineConnection, names: Names, batches: Sequence[Batch]) -> bytes:
    return b"; ".join(_transaction(connection, names, batch) for batch in batches)


def _transaction(connection: DeadlineConnection, names: Names, batch: Batch) -> bytes:
    gate = batch.gate
    identity = gate[:2] + (gate.authority_epoch,)
    with connection.cursor() as cursor:
        text = cursor.mogrify(_sql(names, PUT_MANY, gate), (gate.shard, *identity, *identity)).encode()
    rows = values_of(
        connection,
        (
            b"%d, %s, %s, %d, %s" % (n, binary(row_key), binary(column_name), ref_key, binary(body))
            for n, (row_key, column_name, ref_key, body) in enumerate(batch.cells)
        ),
    )
    return text.replace(b"VALUES ROWS", rows)


def _send(cursor: Cursor, packet: bytes) -> None:
    cursor.execute(packet)  # type: ignore[call-overload]  # PyMySQL takes bytes as they are; its stubs say str


def _sql(names: Names, template: str, gate: Gate) -> str:
    gated = _OWNER[template] if gate.kind is Kind.OWNER else _COPIER[template]
    return names.sql(gated, gate.shard)
