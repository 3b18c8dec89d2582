"""Puts. The counter row gives the added id, orders the commits, and is the fence; see docs/decisions/0003.

Each put is one packet that the server runs to its end whatever becomes of the client: no client holds a counter row
across a round trip. `ON DUPLICATE KEY UPDATE` to the same value makes a duplicate a row count of 0 instead of an error
that would leave the transaction open. The row count of the insert is the answer; the id is taken from the update's
own reply, and only when the insert says 1: with 0 rows matched that reply may hold the id of another shard.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from schemaless_core.cell.answers import ANY
from schemaless_core.cell.standing import Gate, Kind, ShardStatus
from schemaless_core.cell.stored import NewCell
from schemaless_core.engine.base import Stored
from schemaless_core.engine.mysql.guard import NOT_PURGED
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.purged_keys import among, is_guarded
from schemaless_core.engine.mysql.reads import find, find_latest
from schemaless_core.engine.mysql.remembered import look_again
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, replies
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach

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

# From what is stored, never by the clock, which may step back between two statements, and never by ROW_COUNT(): when
# the client is gone the server runs the packet to its end, but ROW_COUNT() then answers -1, and the counter went back
# below ids that were given (a test shows it).
ADVANCE = """\
UPDATE {state} SET next_added_id =
  LAST_INSERT_ID(GREATEST(next_added_id, (SELECT COALESCE(MAX(added_id), 0) + 1 FROM {cell}))),
  last_created_at = GREATEST(last_created_at,
    COALESCE((SELECT created_at FROM {cell} ORDER BY added_id DESC LIMIT 1), last_created_at))
 WHERE GATE"""

# The same past one cell: the one that the insert stored under the counter's id. It looks for no end of the log,
# and after an insert of nothing it meets no row.
STEP = """\
UPDATE {state} s JOIN {cell} c ON c.added_id = s.next_added_id
 SET s.next_added_id = LAST_INSERT_ID(s.next_added_id + 1),
  s.last_created_at = GREATEST(s.last_created_at, c.created_at)
 WHERE GATE"""

# The insert alone goes by the lease, once: to advance a counter to what is stored is right without one.
PUT = f"BEGIN; {INSERT.replace('GATE', 'GATEHELD')}; {STEP}; COMMIT"
PUT_AFTER = f"LOOKBEGIN; {TAKE_COUNTER}; {INSERT_AFTER}; {STEP}; COMMIT"
# In a guarded shard. The counter row is taken first: a key that a purge writes meanwhile is seen.
_INSERT_GUARDED = INSERT.replace("GATE", f"GATE{NOT_PURGED}")
PUT_GUARDED = f"LOOKBEGIN; {TAKE_COUNTER}; {_INSERT_GUARDED}; {STEP}; COMMIT"
PUT_AFTER_GUARDED = PUT_AFTER.replace("WHERE GATE\n  AND (SELECT", f"WHERE GATE{NOT_PURGED}\n  AND (SELECT")
# What a put that met no reason sends behind it: its id was taken, so the counter lags behind what is stored.
CATCH_UP = f"BEGIN; {ADVANCE}; COMMIT"

#: One after a look at the shard's guard, one after the counter has caught up.
TRIES = 3


def put(connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, expect_latest: Any) -> Stored:
    """Store one cell, or find what stands in its way."""
    guard = names.guard
    if not guard.is_told:
        guard.look(connection)
    for attempt in range(TRIES):
        reach("put.before_send")
        if attempt:
            catch_up = _with_kind(CATCH_UP, kind_of(gate), names.remembered)
            replies(connection, names.sql(catch_up, gate.shard), gate.identity)
        if gate.shard in guard.shards:
            stored = _put_guarded(connection, names, gate, cell, expect_latest)
        elif expect_latest is ANY:
            stored = _put(connection, names, gate, cell, looks=attempt > 0)
        else:
            stored = _put_after(connection, names, gate, cell, expect_latest)
        reach("put.answered")
        if stored is not None:
            return stored
        found = _in_the_way(connection, names, gate, cell, expect_latest)
        if found is not None:
            return found
    if names.is_leased:  # twice the server took longer than a session remembers its lease
        state = find(connection, names, gate.shard, *cell[:3]).state
        gate.check_write(state._replace(status=ShardStatus.UNLEASED.value))
    raise damaged_counter(gate.shard)


def _put(connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, *, looks: bool) -> Stored | None:
    """`looks`: at the lease, whatever the session remembers: the server may have taken longer than that lasts."""
    identity = gate.identity
    packet = names.sql(_with_kind(PUT, kind_of(gate), names.remembered + names.guard.condition), gate.shard)
    look = look_again(connection, names.remember, always=looks) if names.remember else ""
    return _stored(connection, f"{look}{packet}", (*cell, *identity, *identity))


def _put_after(
    connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, expect_latest: int | None
) -> Stored | None:
    expected = (cell.row_key, cell.column_name, expect_latest)
    values = (gate.shard, *cell, *gate.identity, *expected, *gate.identity)
    packet = PUT_AFTER.replace("GATE", f"GATE{names.guard.condition}", 1)
    return _stored(connection, gated(names, packet, gate), values)


def _put_guarded(
    connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, expect_latest: Any
) -> Stored | None:
    packet, expected = PUT_GUARDED, list[Any]()
    if expect_latest is not ANY:
        packet, expected = PUT_AFTER_GUARDED, [cell.row_key, cell.column_name, expect_latest]
    values = (gate.shard, *cell, *gate.identity, gate.shard, *cell[:3], *expected, *gate.identity)
    return _stored(connection, gated(names, packet, gate), values)


def _stored(connection: DeadlineConnection, packet: str, values: tuple[Any, ...]) -> Stored | None:
    """What the packet's last three replies say: those to INSERT, STEP and COMMIT."""
    (inserted, _), (_, next_added_id), _ = replies(connection, packet, values)[-3:]
    return Stored(True, next_added_id - 1, None) if inserted == 1 else None


def _in_the_way(
    connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, expect_latest: Any
) -> Stored | None:
    """After an insert of no row: the shard refuses, an equal key is stored, or the latest is another."""
    latest = None
    if expect_latest is not ANY:
        latest = find_latest(connection, names, gate.shard, cell.row_key, cell.column_name).cells
        reach("put.latest_seen")
    # The key after the latest: one that is not there now was not there then, so the latest alone stood in the way.
    sighting = find(connection, names, gate.shard, *cell[:3])
    gate.check_write(sighting.state)
    if sighting.cells:
        return Stored(False, None, sighting.cells[0])
    if is_guarded(connection, names, gate.shard):
        for up_to in among(connection, names, gate.shard, [cell[:3]]).values():
            return Stored(False, None, None, up_to)
    if latest is None or (latest[0].ref_key if latest else None) == expect_latest:
        return None  # it became the expected one between the two statements: once more
    return Stored(False, None, latest[0] if latest else None)


def damaged_counter(shard: int) -> SchemalessError:
    """Neither stored, nor refused, nor there: the counter points at an id that is taken."""
    return SchemalessError(
        f"Shard {shard} could not give an added id.",
        hint="Its counter is damaged; stop writers and run `tripstore doctor`.",
    )


def gated(names: Names, template: str, gate: Gate) -> str:
    """A statement for the gate's shard, with the condition that its writer must meet."""
    return names.sql(_with_condition(template, condition_of(names, gate), names.look), gate.shard)


def condition_of(names: Names, gate: Gate) -> str:
    """What a shard's row must say for a writer of this kind; its values are the gate's identity.

    Of a server with leases the packet has looked at its lease before: `names.look`.
    """
    return kind_of(gate) + names.held


def kind_of(gate: Gate) -> str:
    """The same, but for the lease."""
    return OWNER_GATE if gate.kind is Kind.OWNER else COPIER_GATE


@lru_cache
def _with_kind(template: str, condition: str, remembered: str) -> str:
    return template.replace("HELD", remembered).replace("GATE", condition)


@lru_cache
def _with_condition(template: str, condition: str, look: str) -> str:
    return template.replace("GATE", condition).replace("LOOK", look, 1)
