"""Batches: cells of many shards in one packet, a few shards per transaction.

A transaction takes the counter rows of its shards in ascending order, so that two batches never wait for each other
in a circle. They are found by their key (FORCE INDEX): of few counters a server would go through all, and wait for
those of others on the way. A commit costs the disk once, and while it is under way other writers of those shards wait,
so their number is bounded. No statement raises an error for a key that exists:

INSERT_ONE      for one cell of a shard, as a put does it: the index itself meets a key that exists. A relay's batches
                are mostly of these, and what they cost is understanding the statements: this one is the simplest.
INSERT_ALL      for many cells of one shard: all or none. Existing keys are met by the index itself and change nothing;
                if there was one, UNDO takes the others out again before a reader can have seen them. IF_UNMOVED asks
                besides that a row has got no cell since the caller read it: then it is all or none for good.
INSERT_MISSING  for few cells, and for many of which some are there, after INSERT_ALL stored none: looks each key up
                first, exact under the counter row.

A shard that has purged keys (`guard.py`) stores nothing of these: the batch is sent again, and each key is looked up.

What was there before is read back afterwards and compared. When the server refuses a transaction, each of its shards is
tried alone. docs/decisions/0003 has the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from pymysql import err
from pymysql.cursors import Cursor

from schemaless_core.cell.standing import Gate, ShardState
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Batch, BatchAnswer, Stored
from schemaless_core.engine.mysql.guard import NONE_PURGED, NOT_PURGED
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.purged_keys import among
from schemaless_core.engine.mysql.reads import find_many
from schemaless_core.engine.mysql.rows import values_of
from schemaless_core.engine.mysql.wire.connection import WAIT_TIMEOUT_SECONDS, DeadlineConnection, bound, quoted
from schemaless_core.engine.mysql.wire.translation import translate
from schemaless_core.engine.mysql.writes import condition_of, damaged_counter, gated
from schemaless_core.engine.purging import Key
from schemaless_core.errors import (
    CellPurged,
    ConnectionBroken,
    PacketTooLarge,
    SchemalessError,
    StaleEpoch,
    missing_shard,
)
from schemaless_core.failpoints import reach

TAKE_COUNTERS = """\
SELECT shard, epoch, authority_epoch, {status}, next_added_id, {guarded} FROM {state} FORCE INDEX (PRIMARY)
 WHERE SHARDS ORDER BY shard FOR UPDATE"""

# Takes the counter rows, and sets the one time of all cells of the transaction. If cells were put there
# without moving the counter: from here on everything at or above it is this packet's own.
CATCH_UP = """\
UPDATE {state} FORCE INDEX (PRIMARY) SET next_added_id = CASE shard WHENS END,
  last_created_at = GREATEST(UTC_TIMESTAMP(6), last_created_at) WHERE GATES"""

INSERT_ALL = """\
INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at)
WITH w (n, row_key, column_name, ref_key, body) AS (VALUES ROWS)
SELECT s.next_added_id + w.n, w.row_key, w.column_name, w.ref_key, w.body, s.last_created_at
 FROM {state} s JOIN w WHERE GATE
ON DUPLICATE KEY UPDATE ref_key = {cell}.ref_key"""

INSERT_ONE = """\
INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at)
SELECT s.next_added_id, VALUES_OF_ONE, s.last_created_at FROM {state} s WHERE GATE
ON DUPLICATE KEY UPDATE ref_key = {cell}.ref_key"""

IF_UNMOVED = """\
 AND NOT EXISTS (SELECT 1 FROM {cell} moved WHERE moved.row_key = ROW_KEY AND moved.added_id > ADDED_ID)"""

UNDO = """\
DELETE FROM {cell} WHERE added_id >= (SELECT next_added_id FROM {state} WHERE GATE)
 AND (SELECT k FROM (SELECT COUNT(*) AS k FROM {cell}
   WHERE added_id >= (SELECT next_added_id FROM {state} WHERE GATE)) given) <> %s"""

INSERT_MISSING = """\
INSERT INTO {cell} (added_id, row_key, column_name, ref_key, body, created_at)
WITH w (n, row_key, column_name, ref_key, body) AS (VALUES ROWS)
SELECT s.next_added_id - 1 + ROW_NUMBER() OVER (ORDER BY w.n), w.row_key, w.column_name, w.ref_key, w.body,
  s.last_created_at
 FROM {state} s JOIN w WHERE GATE
  AND NOT EXISTS (SELECT 1 FROM {cell} c
   WHERE c.row_key = w.row_key AND c.column_name = w.column_name AND c.ref_key = w.ref_key)"""

ADVANCE_COUNTERS = "UPDATE {state} FORCE INDEX (PRIMARY) SET next_added_id = CASE shard WHENS END WHERE GATES"
NEXT = "WHEN %s THEN GREATEST(next_added_id, (SELECT COALESCE(MAX(added_id), 0) + 1 FROM {cell}))"

# MySQL ends a session that holds locks and is silent (stopped, cut off) only by its idle time-out.
HURRY = b"SET SESSION wait_timeout = 2"
EASE = b"SET SESSION wait_timeout = %d" % WAIT_TIMEOUT_SECONDS

#: Shards whose counter rows one transaction holds: about as long as 500 cells of one shard hold theirs.
SHARDS_PER_TRANSACTION = 16
#: Cells of one transaction, unless one shard's batch has more.
CELLS_PER_TRANSACTION = 500
#: From how many cells of a shard on INSERT_ALL is worth its second statement.
CELLS_FOR_INSERT_ALL = 64

#: Bytes of a packet besides its transactions.
BYTES_AROUND = 256

Answer = BatchAnswer | SchemalessError


class _Task(NamedTuple):
    """A batch on its way, and how it is inserted."""

    batch: Batch
    is_all_or_none: bool


class _Count(NamedTuple):
    """What the server said of one batch: the shard's state (None: no such shard) and the rows it inserted."""

    state: ShardState | None
    first_added_id: int
    inserted: int
    is_guarded: bool


def put_many(
    connection: DeadlineConnection, names: Names, batches: Sequence[Batch], deadline: Deadline
) -> list[Answer]:
    """Store batches, each for another shard; one answer per batch, in order."""
    if not names.guard.is_told:
        names.guard.look(connection)
    tasks = [
        _Task(batch, batch.seen is not None or (len(batch.cells) >= CELLS_FOR_INSERT_ALL and not batch.may_exist))
        for batch in sorted(batches, key=lambda batch: batch.gate.shard)
    ]
    waiting = _transactions(tasks)
    answers: dict[int, Answer] = {}
    while waiting:
        counts, refusal = _send(connection, names, waiting, deadline)
        done, waiting = waiting[: len(counts)], waiting[len(counts) :]
        if refusal is not None:
            waiting = _without_refused(waiting, refusal, answers)
        for task, count in zip(chain.from_iterable(done), chain.from_iterable(counts), strict=True):
            answer = _answer(connection, names, task, count)
            if answer is None:
                waiting.append([_Task(task.batch, is_all_or_none=task.batch.seen is not None)])
            else:
                answers[task.batch.gate.shard] = answer
    return [answers[batch.gate.shard] for batch in batches]


def _transactions(tasks: Sequence[_Task]) -> list[list[_Task]]:
    """Which batches are committed together."""
    groups: list[list[_Task]] = []
    cells = 0
    for task in tasks:
        cells += len(task.batch.cells)
        if not groups or len(groups[-1]) == SHARDS_PER_TRANSACTION or cells > CELLS_PER_TRANSACTION:
            groups.append([])
            cells = len(task.batch.cells)
        groups[-1].append(task)
    return groups


def _without_refused(
    waiting: list[list[_Task]], refusal: SchemalessError, answers: dict[int, Answer]
) -> list[list[_Task]]:
    """Part the transaction that the server refused into single shards; a shard refused alone has its answer."""
    refused, *others = waiting
    if len(refused) > 1:
        return [[task] for task in refused] + others
    answers[refused[0].batch.gate.shard] = refusal
    return others


def _send(
    connection: DeadlineConnection, names: Names, groups: Sequence[Sequence[_Task]], deadline: Deadline
) -> tuple[list[list[_Count]], SchemalessError | None]:
    """Send transactions as one packet; the replies of those that committed, and why the next one did not.

    Those that do not fit into it are left for the next.
    """
    committed: list[list[_Count]] = []
    refusal: SchemalessError | None = None
    with connection.cursor() as cursor:
        try:
            reach("batch.before_send")
            packet = _packet(connection, names, groups)
            groups = groups[: len(packet)]
            hurries = not connection.is_mariadb and any(len(group) > 1 for group in groups)
            before = [*([names.look.rstrip("; ").encode()] if names.is_leased else []), *([HURRY] if hurries else [])]
            _execute(cursor, b"; ".join([*before, *packet, *([EASE] if hurries else [])]))
            for _reply in before:
                cursor.nextset()
            for number, group in enumerate(groups):
                committed.append(_replies(cursor, group, is_last=number == len(groups) - 1 and not hurries))
        except PacketTooLarge as error:
            refusal = error  # of the first transaction; nothing was sent
        except err.Error as error:
            refusal = translate(error, connection.node, deadline)
            if isinstance(refusal, ConnectionBroken) or deadline.is_over:
                raise
            refusal.__cause__ = error
            connection.rollback()
            _execute(cursor, EASE)
    reach("batch.answered")
    return committed, refusal


def _packet(connection: DeadlineConnection, names: Names, groups: Sequence[Sequence[_Task]]) -> list[bytes]:
    """The transactions that fit into one packet: at least the first, which is refused when it is sent."""
    packet: list[bytes] = []
    room = connection.packet_bytes_max - BYTES_AROUND
    for group in groups:
        transaction = _transaction(connection, names, group)
        room -= len(transaction) + 2
        if packet and room <= 0:
            break
        packet.append(transaction)
    return packet


def _replies(cursor: Cursor, group: Sequence[_Task], *, is_last: bool) -> list[_Count]:
    """Read the replies of one transaction up to its COMMIT's; the cursor stands at its BEGIN's."""
    cursor.nextset()
    cursor.nextset()
    counters = {shard: (ShardState(*state), first, guarded) for shard, *state, first, guarded in cursor.fetchall()}
    counts = []
    for task in group:
        cursor.nextset()
        state, first_added_id, guarded = counters.get(task.batch.gate.shard, (None, 0, 0))
        counts.append(_Count(state, first_added_id, cursor.rowcount, bool(guarded)))
        if task.is_all_or_none:
            cursor.nextset()
    for _advance_commit in range(2 if is_last else 3):  # and the BEGIN of the next
        cursor.nextset()
    return counts


def _answer(connection: DeadlineConnection, names: Names, task: _Task, count: _Count) -> Answer | None:
    """What became of a batch; None when it is to be sent again, cell by cell."""
    gate, cells = task.batch.gate, task.batch.cells
    if count.state is None:
        return missing_shard(gate.shard)
    try:
        gate.check_write(count.state)
    except StaleEpoch as refusal:
        return refusal
    ours = range(count.first_added_id, count.first_added_id + count.inserted)
    if count.inserted == len(cells):
        return ours
    if count.is_guarded and gate.shard not in names.guard.shards:
        names.guard.shards.add(gate.shard)
        return None
    purged = among(connection, names, gate.shard, [cell[:3] for cell in cells]) if count.is_guarded else {}
    if task.batch.seen is not None:
        return CellPurged(*next(iter(purged.items()))) if purged else range(0)
    if task.is_all_or_none and count.inserted:
        return None
    return _read_back(connection, names, task.batch, ours, purged)


def _read_back(
    connection: DeadlineConnection, names: Names, batch: Batch, ours: range, purged: Mapping[Key, int]
) -> Answer:
    """Some keys were there before: look at what is stored. Cells never change, so later is as good as then.

    What is new has the ids from the counter on, in the order of the batch: only the others are read.
    """
    keys = [cell[:3] for cell in batch.cells]
    sighting = find_many(connection, names, {batch.gate.shard: keys}, below=ours.start)[batch.gate.shard]
    before = {key: Stored(False, None, None, up_to) for key, up_to in purged.items()}
    before |= {cell[1:4]: Stored(False, None, cell) for cell in sighting.cells}
    if len(before) + len(ours) < len(keys):
        return damaged_counter(batch.gate.shard)
    added_ids = iter(ours)
    return [before.get(key) or Stored(True, next(added_ids), None) for key in keys]


def _transaction(connection: DeadlineConnection, names: Names, group: Sequence[_Task]) -> bytes:
    gates = [task.batch.gate for task in group]
    shards = " OR ".join(f"shard = {int(gate.shard)}" for gate in gates)
    guarded = "guarded" if names.guard.is_told else "0"
    take = TAKE_COUNTERS.format(state=names.shard_state, status=names.status_held, guarded=guarded)
    take = take.replace("SHARDS", shards)
    catch_up = _counters(connection, names, CATCH_UP, gates)
    inserts = [part for task in group for part in _inserts(connection, names, task)]
    advance = _counters(connection, names, ADVANCE_COUNTERS, gates)
    return b"; ".join([b"BEGIN", catch_up, take.encode(), *inserts, advance, b"COMMIT"])


def _inserts(connection: DeadlineConnection, names: Names, task: _Task) -> list[bytes]:
    gate, cells = task.batch.gate, task.batch.cells
    columns = {name: quoted(name) for name in {cell.column_name for cell in cells}}
    values = [
        b"_binary'%s', _binary'%s', %d, _binary'%s'" % (quoted(row_key), columns[name], ref_key, quoted(body))
        for row_key, name, ref_key, body in cells
    ]
    if len(values) == 1 and not task.is_all_or_none:
        insert = _insert(connection, names, INSERT_ONE, gate, cells[0])
        return [insert.replace(b"VALUES_OF_ONE", values[0])]
    template = INSERT_ALL if task.is_all_or_none else INSERT_MISSING
    seen = task.batch.seen
    if seen is not None:
        template = template.replace("WHERE GATE", f"WHERE GATE{IF_UNMOVED}")
    rows = [b"%d, %s" % numbered for numbered in enumerate(values)]
    insert = _insert(connection, names, template, gate)
    if seen is not None:
        row_key = b"x'%s'" % seen.row_key.hex().encode()  # as it is, it might look like what is replaced next
        insert = insert.replace(b"ADDED_ID", b"%d" % seen.added_id).replace(b"ROW_KEY", row_key)
    insert = insert.replace(b"VALUES ROWS", values_of(connection, rows))
    if not task.is_all_or_none:
        return [insert]
    return [insert, bound(connection, gated(names, UNDO, gate), (*gate.identity, *gate.identity, len(cells)))]


def _insert(
    connection: DeadlineConnection, names: Names, template: str, gate: Gate, one: NewCell | None = None
) -> bytes:
    """An insert with the condition on purged keys that its shard needs."""
    if gate.shard not in names.guard.shards:
        return bound(
            connection, gated(names, template.replace("GATE", f"GATE{names.guard.condition}"), gate), gate.identity
        )
    condition, key = (NONE_PURGED, ()) if one is None else (NOT_PURGED, (gate.shard, *one[:3]))
    return bound(connection, gated(names, template.replace("GATE", f"GATE{condition}"), gate), (*gate.identity, *key))


def _counters(connection: DeadlineConnection, names: Names, template: str, gates: Sequence[Gate]) -> bytes:
    """One statement about the counter rows of several shards."""
    statement = template.format(state=names.shard_state)
    statement = statement.replace("WHENS", " ".join(names.sql(NEXT, gate.shard) for gate in gates))
    statement = statement.replace("GATES", " OR ".join(f"({condition_of(names, gate)})" for gate in gates))
    shards = [gate.shard for gate in gates]
    return bound(connection, statement, (*shards, *(value for gate in gates for value in gate.identity)))


def _execute(cursor: Cursor, packet: bytes) -> None:
    cursor.execute(packet)  # type: ignore[call-overload]  # PyMySQL takes bytes as they are; its stubs say str
