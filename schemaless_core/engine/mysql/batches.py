"""Batches: cells of many shards in one packet, a few shards per transaction.

A transaction takes the counter rows of its shards in ascending order, so that two batches never wait for each other
in a circle; each commit costs the disk once, and while it is under way other writers of those shards wait, so it spans
few. The check for existing keys is exact under the counter row and raises no error; what was there before is read back
afterwards and compared. When the server refuses a transaction, each of its shards is tried alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pymysql import err
from pymysql.cursors import Cursor

from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Batch, Stored, StoredCell
from schemaless_core.engine.mysql.connection import DeadlineConnection
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import find_many, missing_shard
from schemaless_core.engine.mysql.rows import binary, values_of
from schemaless_core.engine.mysql.translation import translate
from schemaless_core.engine.mysql.writes import ADVANCE, TAKE_COUNTER, damaged_counter, gated
from schemaless_core.errors import ConnectionBroken, SchemalessError, StaleEpoch
from schemaless_core.failpoints import reach
from schemaless_core.standing import ShardState

INSERT_MANY = """\
INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at)
WITH w (n, row_key, column_name, ref_key, body) AS (VALUES ROWS)
SELECT s.next_added_id - 1 + ROW_NUMBER() OVER (ORDER BY w.n), w.row_key, w.column_name, w.ref_key, w.body,
  GREATEST(UTC_TIMESTAMP(6), s.last_created_at)
 FROM {state} s JOIN w WHERE GATE
  AND NOT EXISTS (SELECT 1 FROM {cell} c
   WHERE c.row_key = w.row_key AND c.column_name = w.column_name AND c.ref_key = w.ref_key)"""

PUT_BATCH = f"{TAKE_COUNTER}; {INSERT_MANY}; {ADVANCE}"

#: Shards whose counter rows one transaction holds; docs/decisions/0003 has the measurements.
SHARDS_PER_TRANSACTION = 4

Answer = list[Stored] | SchemalessError


class _Count(NamedTuple):
    """The replies to one shard's statements."""

    state: ShardState | None
    first_added_id: int
    inserted: int


def put_many(
    connection: DeadlineConnection, names: Names, batches: Sequence[Batch], deadline: Deadline
) -> list[Answer]:
    """Store batches, each for another shard; one answer per batch, in order."""
    ordered = sorted(batches, key=lambda batch: batch.gate.shard)
    waiting = [
        ordered[first : first + SHARDS_PER_TRANSACTION] for first in range(0, len(ordered), SHARDS_PER_TRANSACTION)
    ]
    answers: dict[int, Answer] = {}
    while waiting:
        counts, refusal = _send(connection, names, waiting, deadline)
        for group, of_group in zip(waiting, counts, strict=False):
            for batch, count in zip(group, of_group, strict=True):
                answers[batch.gate.shard] = _answer(connection, names, batch, count)
        waiting = waiting[len(counts) :]
        if refusal is not None:
            waiting = _without_refused(waiting, refusal, answers)
    return [answers[batch.gate.shard] for batch in batches]


def _without_refused(
    waiting: list[list[Batch]], refusal: SchemalessError, answers: dict[int, Answer]
) -> list[list[Batch]]:
    """Part the transaction that the server refused into single shards; a shard refused alone has its answer."""
    refused, *others = waiting
    if len(refused) > 1:
        return [[batch] for batch in refused] + others
    answers[refused[0].gate.shard] = refusal
    return others


def _send(
    connection: DeadlineConnection, names: Names, groups: Sequence[Sequence[Batch]], deadline: Deadline
) -> tuple[list[list[_Count]], SchemalessError | None]:
    """Send transactions as one packet; the replies of those that committed, and why the next one did not."""
    committed: list[list[_Count]] = []
    refusal: SchemalessError | None = None
    with connection.cursor() as cursor:
        try:
            reach("batch.before_send")
            _execute(cursor, b"; ".join(_transaction(connection, names, group) for group in groups))
            for number, group in enumerate(groups):
                committed.append(_replies(cursor, len(group), is_last=number == len(groups) - 1))
        except err.Error as error:
            refusal = translate(error, connection.node, deadline)
            if isinstance(refusal, ConnectionBroken) or deadline.is_over:
                raise
            refusal.__cause__ = error
            connection.rollback()
    reach("batch.answered")
    return committed, refusal


def _replies(cursor: Cursor, shards: int, *, is_last: bool) -> list[_Count]:
    """Read the replies of one transaction up to its COMMIT's; the cursor stands at its BEGIN's."""
    counts = []
    for _ in range(shards):
        cursor.nextset()
        row = cursor.fetchone()
        cursor.nextset()
        inserted = cursor.rowcount
        cursor.nextset()
        counts.append(_Count(ShardState(*row[:3]), row[3], inserted) if row else _Count(None, 0, 0))
    cursor.nextset()
    if not is_last:
        cursor.nextset()
    return counts


def _answer(connection: DeadlineConnection, names: Names, batch: Batch, count: _Count) -> Answer:
    if count.state is None:
        return missing_shard(batch.gate.shard)
    try:
        batch.gate.check_write(count.state)
    except StaleEpoch as refusal:
        return refusal
    ours = range(count.first_added_id, count.first_added_id + count.inserted)
    if count.inserted == len(batch.cells):
        return [Stored(True, added_id, None) for added_id in ours]
    return _read_back(connection, names, batch, ours)


def _read_back(connection: DeadlineConnection, names: Names, batch: Batch, ours: range) -> Answer:
    """Some keys were there before: look at what is stored. Cells never change, so later is as good as then."""
    keys = [cell[:3] for cell in batch.cells]
    sighting = find_many(connection, names, {batch.gate.shard: keys})[batch.gate.shard]
    stored = {cell[1:4]: cell for cell in sighting.cells}
    if len(stored) < len(keys):
        return damaged_counter(batch.gate.shard)
    return [_stored(stored[key], ours) for key in keys]


def _stored(cell: StoredCell, ours: range) -> Stored:
    return Stored(True, cell.added_id, None) if cell.added_id in ours else Stored(False, None, cell)


def _transaction(connection: DeadlineConnection, names: Names, group: Sequence[Batch]) -> bytes:
    parts = [_statements(connection, names, batch) for batch in group]
    return b"; ".join([b"BEGIN", *parts, b"COMMIT"])


def _statements(connection: DeadlineConnection, names: Names, batch: Batch) -> bytes:
    gate = batch.gate
    identity = (gate.shard, gate.epoch, gate.authority_epoch)
    with connection.cursor() as cursor:
        text = cursor.mogrify(gated(names, PUT_BATCH, gate), (gate.shard, *identity, *identity)).encode()
    rows = (
        b"%d, %s, %s, %d, %s" % (n, binary(row_key), binary(column_name), ref_key, binary(body))
        for n, (row_key, column_name, ref_key, body) in enumerate(batch.cells)
    )
    return text.replace(b"VALUES ROWS", values_of(connection, rows))


def _execute(cursor: Cursor, packet: bytes) -> None:
    cursor.execute(packet)  # type: ignore[call-overload]  # PyMySQL takes bytes as they are; its stubs say str
