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
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeVar

from schemaless_core.cell.standing import Gate
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.engine.bodies import FORMS_MAX
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
# Not by the bytes themselves: the packet has each body once, whatever forms of it are known.
OTHER = b"row_key = %s AND column_name = %s AND ref_key = %d AND SHA2(body, 256) NOT IN (%s)"
IF_MOVED = "EXISTS (SELECT 1 FROM {offset} WHERE group_name = %s AND shard = %s AND token = %s)"
IF_MARKED = "EXISTS (SELECT 1 FROM {parked} WHERE group_name = %s AND shard = %s AND token = %s)"

TOKEN_BITS = 63

T = TypeVar("T")
#: Of each key the stored bytes that are the body of its cell.
_Forms = dict[tuple[bytes, bytes, int], set[bytes]]


def put_and_advance(
    connection: DeadlineConnection, names: Names, gate: Gate, group: str, cells: Sequence[NewCell], step: GroupStep
) -> tuple[OffsetSeen, list[StoredCell]]:
    """Put cells and move the offset, or do nothing; return the offset and what is stored under the keys then."""
    to = (step.epoch, step.added_id)
    fenced = (group, gate.shard, step.fence, step.epoch, *to)
    parked = parks(connection, names, group, gate.shard, step)

    def put(forms: _Forms) -> OffsetSeen:
        token = secrets.randbits(TOKEN_BITS)
        moved = bound(connection, names.meta_sql(MOVE), (*to, token, *fenced))
        moved += _conditions(connection, names, gate, forms, step.shard_epoch)
        _send(connection, names, gate, cells, [*parked, moved], (IF_MOVED, group, gate.shard, token), [])
        return find(connection, names, group, [gate.shard])[gate.shard]

    return _put(connection, names, gate, cells, put)


def put_and_settle(
    connection: DeadlineConnection, names: Names, gate: Gate, group: str, cells: Sequence[NewCell], settling: Settling
) -> tuple[bool, list[StoredCell]]:
    """Put cells and forget the parked cell, or do nothing; return whether it is still parked, and what is stored."""
    place = (group, gate.shard, settling.added_id)
    fence = (group, gate.shard, settling.fence)
    next_one = bound(connection, names.meta_sql(NEXT_OF_ROW), next_of_row(group, gate.shard, settling))

    def put(forms: _Forms) -> bool:
        token = secrets.randbits(TOKEN_BITS)
        marked = bound(connection, names.meta_sql(MARK), (token, *place, *fence))
        marked += _conditions(connection, names, gate, forms, settling.shard_epoch)
        after = [bound(connection, names.meta_sql(FORGET), (*place, token)), next_one]
        _send(connection, names, gate, cells, [marked], (IF_MARKED, group, gate.shard, token), after)
        return is_parked(connection, names, *place)

    return _put(connection, names, gate, cells, put)


def _put(
    connection: DeadlineConnection, names: Names, gate: Gate, cells: Sequence[NewCell], put: Callable[[_Forms], T]
) -> tuple[T, list[StoredCell]]:
    """Once more where what was in the way is the same body, as another writer compressed it."""
    forms: _Forms = {cell[:3]: {cell.body, names.bodies.kept_one(cell).body} for cell in cells}
    bodies = {cell[:3]: cell.body for cell in cells}
    for _attempt in range(FORMS_MAX):
        answer = put(forms)
        stored = find_many(connection, names.as_stored, {gate.shard: list(forms)})[gate.shard].cells
        plain = [cell._replace(body=names.bodies.plain(cell.body)) for cell in stored]
        equal = [raw for raw, cell in zip(stored, plain, strict=True) if cell.body == bodies[cell[1:4]]]
        if all(raw.body in forms[raw[1:4]] for raw in equal):
            break
        for raw in equal:
            forms[raw[1:4]].add(raw.body)
    return answer, plain


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


def _conditions(connection: DeadlineConnection, names: Names, gate: Gate, forms: _Forms, shard_epoch: int) -> bytes:
    """What the shard and its cells must be like for the progress to be made."""
    others = b" OR ".join(
        b"(" + OTHER % (binary(row_key), binary(name), ref_key, b", ".join(map(binary, map(_digest, bodies)))) + b")"
        for (row_key, name, ref_key), bodies in forms.items()
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
        (*names.bodies.kept_one(cell), *gate.identity, *key, *values),
    )


def _digest(body: bytes) -> bytes:
    return sha256(body).hexdigest().encode()


def _count(connection: DeadlineConnection, names: Names, gate: Gate) -> bytes:
    return bound(connection, gated(names, ADVANCE_COUNTER, gate), gate.identity)
