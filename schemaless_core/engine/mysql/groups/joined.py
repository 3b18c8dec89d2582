"""Puts that join a group's progress: a trigger's cells and its offset, or the parked cell it settles, both or neither.

One packet, like any put, so that no client holds the counter row across a round trip. First the progress is made, on
the conditions of both: the newest fence, a shard that takes owners' writes, no other body under a key; and a token that
no other packet has is left there. The inserts ask for the token: not whether the progress was made, but whether this
packet made it. A packet that is run again finds its token, or nothing to do; another one for the same cell, sent after
an answer was lost, puts nothing. (Not by ROW_COUNT(), which answers -1 once the client is gone.)

A cell whose key was purged is left out, and the progress is made. No purge comes in between: it takes the counter row.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from schemaless_core.cell.standing import Gate
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.engine.groups import GroupStep, OffsetSeen, Settling
from schemaless_core.engine.mysql.groups.offsets import find, parks
from schemaless_core.engine.mysql.groups.parking import IF_SAME_EPOCH, NEXT_OF_ROW, is_parked, next_of_row
from schemaless_core.engine.mysql.guard import NOT_PURGED
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import find_many
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, binary, bound
from schemaless_core.engine.mysql.writes import ADVANCE as ADVANCE_COUNTER
from schemaless_core.engine.mysql.writes import INSERT, TAKE_COUNTER, condition_of, gated
from schemaless_core.failpoints import reach

MOVE = """\
UPDATE {offset} SET epoch = %s, added_id = %s, token = %s, updated_at = UTC_TIMESTAMP(6)
 WHERE group_name = %s AND shard = %s AND fence = %s AND (epoch < %s OR epoch = %s AND added_id < %s)"""
MARK = """\
UPDATE {parked} SET token = %s WHERE group_name = %s AND shard = %s AND added_id = %s
 AND EXISTS (SELECT 1 FROM {offset} WHERE group_name = %s AND shard = %s AND fence = %s)"""
FORGET = "DELETE FROM {parked} WHERE group_name = %s AND shard = %s AND added_id = %s AND token = %s"

IF_OPEN = " AND EXISTS (SELECT 1 FROM {state} WHERE GATE)"
IF_NO_OTHER_BODY = " AND NOT EXISTS (SELECT 1 FROM {cell} WHERE OTHERS)"
OTHER = b"row_key = %s AND column_name = %s AND ref_key = %d AND body <> %s"
IF_MOVED = "EXISTS (SELECT 1 FROM {offset} WHERE group_name = %s AND shard = %s AND token = %s)"
IF_MARKED = "EXISTS (SELECT 1 FROM {parked} WHERE group_name = %s AND shard = %s AND token = %s)"

TOKEN_BITS = 63


def put_and_advance(
    connection: DeadlineConnection, names: Names, gate: Gate, group: str, cells: Sequence[NewCell], step: GroupStep
) -> tuple[OffsetSeen, list[StoredCell]]:
    """Put cells and move the offset, or do nothing; return the offset and what is stored under the keys then."""
    token, to = secrets.randbits(TOKEN_BITS), (step.epoch, step.added_id)
    fenced = (group, gate.shard, step.fence, step.epoch, *to)
    moved = bound(
        connection,
        names.meta_sql(MOVE),
        (*to, token, *fenced),
    )
    moved += _conditions(connection, names, gate, cells, step.shard_epoch)
    parked = parks(connection, names, group, gate.shard, step)
    _send(connection, names, gate, cells, [*parked, moved], (IF_MOVED, group, gate.shard, token), [])
    seen = find(connection, names, group, [gate.shard])[gate.shard]
    return seen, _stored(connection, names, gate, cells)


def put_and_settle(
    connection: DeadlineConnection, names: Names, gate: Gate, group: str, cells: Sequence[NewCell], settling: Settling
) -> tuple[bool, list[StoredCell]]:
    """Put cells and forget the parked cell, or do nothing; return whether it is still parked, and what is stored."""
    token, place = secrets.randbits(TOKEN_BITS), (group, gate.shard, settling.added_id)
    fence = (group, gate.shard, settling.fence)
    marked = bound(
        connection,
        names.meta_sql(MARK),
        (token, *place, *fence),
    )
    marked += _conditions(connection, names, gate, cells, settling.shard_epoch)
    after = [
        bound(
            connection,
            names.meta_sql(FORGET),
            (*place, token),
        ),
        bound(connection, names.meta_sql(NEXT_OF_ROW), next_of_row(group, gate.shard, settling)),
    ]
    _send(connection, names, gate, cells, [marked], (IF_MARKED, group, gate.shard, token), after)
    return is_parked(connection, names, *place), _stored(connection, names, gate, cells)


def _send(
    connection: DeadlineConnection,
    names: Names,
    gate: Gate,
    cells: Sequence[NewCell],
    before: Sequence[bytes],
    made: tuple[object, ...],
    after: Sequence[bytes],
) -> None:
    if not names.guard.is_told:
        names.guard.look(connection)
    take = bound(connection, gated(names, TAKE_COUNTER, gate), (gate.shard,))
    # Cells go by the shard's row; cells that are parked beside them would go into a server that is fenced.
    looks = [connection.may_write] if connection.may_write else []
    statements = [f"{names.look}BEGIN".encode(), *looks, take, *before]
    for cell in cells:
        statements += [_insert(connection, names, gate, cell, made), _count(connection, names, gate)]
    reach("joined.before_send")
    with connection.cursor() as cursor:
        cursor.execute(b"; ".join([*statements, *after, b"COMMIT"]))  # type: ignore[call-overload]  # the stubs say str
        while cursor.nextset():
            pass
    reach("joined.answered")


def _conditions(
    connection: DeadlineConnection, names: Names, gate: Gate, cells: Sequence[NewCell], shard_epoch: int
) -> bytes:
    """What the shard and its cells must be like for the progress to be made."""
    others = b" OR ".join(
        b"(" + OTHER % (binary(cell.row_key), binary(cell.column_name), cell.ref_key, binary(cell.body)) + b")"
        for cell in cells
    )
    is_open = bound(connection, gated(names, IF_OPEN, gate), gate.identity)
    is_same = bound(
        connection,
        names.meta_sql(IF_SAME_EPOCH),
        (gate.shard, shard_epoch),
    )
    return is_open + is_same + names.sql(IF_NO_OTHER_BODY, gate.shard).encode().replace(b"OTHERS", others)


def _insert(connection: DeadlineConnection, names: Names, gate: Gate, cell: NewCell, made: tuple[object, ...]) -> bytes:
    condition, *values = made
    is_free, key = (NOT_PURGED, (gate.shard, *cell[:3])) if names.guard.is_told else ("", ())
    template = INSERT.replace("WHERE GATE", f"WHERE {condition_of(names, gate)}{is_free} AND IF_MADE")
    statement = names.sql(template, gate.shard).replace("IF_MADE", names.meta_sql(str(condition)))
    return bound(
        connection,
        statement,
        (*cell, *gate.identity, *key, *values),
    )


def _count(connection: DeadlineConnection, names: Names, gate: Gate) -> bytes:
    return bound(connection, gated(names, ADVANCE_COUNTER, gate), gate.identity)


def _stored(connection: DeadlineConnection, names: Names, gate: Gate, cells: Sequence[NewCell]) -> list[StoredCell]:
    return find_many(connection, names, {gate.shard: [cell[:3] for cell in cells]})[gate.shard].cells
