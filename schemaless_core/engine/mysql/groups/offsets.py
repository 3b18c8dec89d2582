"""Offsets of groups: how far each has come in each shard, moved only by the holder of the shard's newest fence.

They live beside the counter rows of their shards, not in the control database: a cell that is parked or put by a
transactional trigger commits with the offset, and offsets are saved while the control database is down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemaless_core.cell.standing import ShardHead, ShardState
from schemaless_core.engine.groups import Beyond, GroupStart, GroupStep, Offset, OffsetSeen, ParkedCell
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import heads_from, heads_statement
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, bound
from schemaless_core.engine.mysql.wire.transactions import send, together, write
from schemaless_core.failpoints import reach

BEGIN = """\
INSERT INTO {offset} (group_name, shard, epoch, added_id, fence, token, updated_at)
 SELECT %s, shard, epoch, START, 0, 0, UTC_TIMESTAMP(6) FROM {state} WHERE SHARDS AND state <> 'MOVED'
 ON DUPLICATE KEY UPDATE fence = {offset}.fence"""

CLAIM = """\
UPDATE {offset} SET fence = GREATEST(fence, CASE shard WHENS END), updated_at = UTC_TIMESTAMP(6)
 WHERE group_name = %s AND shard IN (SHARDS)"""

FIND = "SELECT shard, epoch, added_id, fence FROM {offset} WHERE group_name = %s AND shard IN (SHARDS)"
FIND_ALL = "SELECT shard, epoch, added_id, fence FROM {offset} WHERE group_name = %s"

FIND_BEYOND = """\
SELECT o.group_name, o.shard, o.epoch, o.added_id, s.next_added_id - 1 FROM {offset} o JOIN {state} s USING (shard)
 WHERE s.state <> 'MOVED' AND (o.epoch > s.epoch OR o.epoch = s.epoch AND o.added_id >= s.next_added_id)
 ORDER BY o.group_name, o.shard"""

# Forward only: a packet that a slow server runs late must not take the offset back.
ADVANCE = """\
UPDATE {offset} SET epoch = CASE shard EPOCHS END, added_id = CASE shard IDS END, updated_at = UTC_TIMESTAMP(6)
 WHERE group_name = %s AND (STEPS)"""
MINE = """\
shard = {shard} AND fence = {fence} AND (epoch < {epoch} OR epoch = {epoch} AND added_id <= {added_id})
 AND (SELECT s.epoch FROM {state} s WHERE s.shard = {shard}) = {shard_epoch}"""

PARK = """\
INSERT INTO {parked} (group_name, shard, added_id, row_key, column_name, ref_key, attempts, is_waiting, error,
  parked_at, next_attempt_at)
SELECT group_name, shard, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND
 FROM {offset} WHERE group_name = %s AND MINE FOR UPDATE
ON DUPLICATE KEY UPDATE attempts = {parked}.attempts"""

RESET = """\
UPDATE {offset} SET fence = fence + 1, epoch = CASE shard EPOCHS END, added_id = CASE shard IDS END,
  updated_at = UTC_TIMESTAMP(6) WHERE group_name = %s AND shard IN (SHARDS)"""
REMOVE = "DELETE FROM {offset} WHERE group_name = %s"
REMOVE_PARKED = "DELETE FROM {parked} WHERE group_name = %s"


def begin(connection: DeadlineConnection, names: Names, group: str, start: GroupStart) -> None:
    """Create a group's offsets in all shards of this server, or leave those it has. One look decides what is now."""
    if isinstance(start, str):
        added_id, shards = ("next_added_id - 1" if start == "now" else "0"), "TRUE"
    elif start:
        added_id, shards = f"CASE shard {_whens(start)} END", f"shard IN ({_listed(start)})"
    else:
        return
    statement = names.meta_sql(BEGIN).replace("START", added_id).replace("SHARDS", shards)
    write(connection, (statement, (group,)))


def claim(connection: DeadlineConnection, names: Names, group: str, fences: Mapping[int, int]) -> dict[int, OffsetSeen]:
    """Raise the fences to these, unless they are higher already; return the offsets as they are then."""
    update = names.meta_sql(CLAIM).replace("WHENS", _whens(fences)).replace("SHARDS", _listed(fences))
    return _seen(connection, names, group, list(fences), update)


def find(connection: DeadlineConnection, names: Names, group: str, shards: Sequence[int]) -> dict[int, OffsetSeen]:
    return _seen(connection, names, group, shards, None)


def find_all(connection: DeadlineConnection, names: Names, group: str) -> dict[int, Offset]:
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(FIND_ALL), (group,))
        return {shard: Offset(*found) for shard, *found in cursor.fetchall()}


def find_beyond(connection: DeadlineConnection, names: Names) -> list[Beyond]:
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(FIND_BEYOND))
        return [Beyond(group.decode(), *found) for group, *found in cursor.fetchall()]


def advance(
    connection: DeadlineConnection, names: Names, group: str, steps: Mapping[int, GroupStep]
) -> dict[int, OffsetSeen]:
    """Move offsets and park cells with them, each shard only under its fence; return the offsets as they are then."""
    parts = [park for shard, step in steps.items() for park in parks(connection, names, group, shard, step)]
    epochs = _whens({shard: step.epoch for shard, step in steps.items()})
    ids = _whens({shard: step.added_id for shard, step in steps.items()})
    ours = " OR ".join(f"({_mine(names, shard, step)})" for shard, step in steps.items())
    update = names.meta_sql(ADVANCE).replace("EPOCHS", epochs).replace("IDS", ids).replace("STEPS", ours)
    reach("offsets.before_send")
    if not parts:
        seen = _seen(connection, names, group, list(steps), update)
    else:
        packet = b"; ".join(together(connection, [*parts, bound(connection, update, (group,))]))
        with send(connection, packet) as cursor:
            while cursor.nextset():
                pass
        seen = _seen(connection, names, group, list(steps), None)
    reach("offsets.advanced")
    return seen


def reset(connection: DeadlineConnection, names: Names, group: str, to: Mapping[int, tuple[int, int]]) -> None:
    """Set offsets to (epoch, added id), backwards too; the workers that hold the shards must claim them anew."""
    epochs = _whens({shard: epoch for shard, (epoch, _added_id) in to.items()})
    ids = _whens({shard: added_id for shard, (_epoch, added_id) in to.items()})
    statement = names.meta_sql(RESET).replace("EPOCHS", epochs).replace("IDS", ids).replace("SHARDS", _listed(to))
    write(connection, (statement, (group,)))


def remove(connection: DeadlineConnection, names: Names, group: str) -> None:
    write(connection, *((names.meta_sql(statement), (group,)) for statement in (REMOVE, REMOVE_PARKED)))


def parks(connection: DeadlineConnection, names: Names, group: str, shard: int, step: GroupStep) -> list[bytes]:
    """The statements that park a step's cells, if the step may be made."""
    statement = names.meta_sql(PARK).replace("MINE", _mine(names, shard, step))
    with connection.cursor() as cursor:
        return [
            cursor.mogrify(statement, (*_values(parked), group)).encode("utf-8", "surrogateescape")
            for parked in step.parked
        ]


def _values(parked: ParkedCell) -> tuple[object, ...]:
    microseconds = int(parked.retry_in_seconds * 1_000_000)
    cell = (parked.added_id, parked.row_key, parked.column_name, parked.ref_key)
    return (*cell, parked.attempts, int(parked.is_waiting), parked.error, microseconds)


def _mine(names: Names, shard: int, step: GroupStep) -> str:
    """The condition under which a step may be made."""
    return MINE.format(
        state=names.shard_state,
        shard=int(shard),
        fence=int(step.fence),
        epoch=int(step.epoch),
        added_id=int(step.added_id),
        shard_epoch=int(step.shard_epoch),
    )


def _seen(
    connection: DeadlineConnection, names: Names, group: str, shards: Sequence[int], update: str | None
) -> dict[int, OffsetSeen]:
    """Run a change, if any; then look at the offsets and at the shards' own states behind it, in the same packet."""
    if not shards:  # a server may be without any
        return {}
    find = names.meta_sql(FIND).replace("SHARDS", _listed(shards))
    changes = together(connection, [bound(connection, update, (group,))] if update else [])
    looks = [bound(connection, find, (group,)), heads_statement(names, shards).encode()]
    with send(connection, b"; ".join([*changes, *looks])) as cursor:
        for _change in changes:
            cursor.nextset()
        offsets = {shard: Offset(*found) for shard, *found in cursor.fetchall()}
        cursor.nextset()
        heads: dict[int, ShardHead] = heads_from(cursor.fetchall())
    absent = ShardState(0, 0, "MOVED")
    return {
        shard: OffsetSeen(heads[shard].state if shard in heads else absent, offsets.get(shard), _head(heads, shard))
        for shard in shards
    }


def _whens(values: Mapping[int, int]) -> str:
    return " ".join(f"WHEN {int(shard)} THEN {int(value)}" for shard, value in values.items())


def _head(heads: Mapping[int, ShardHead], shard: int) -> int:
    return heads[shard].head if shard in heads else 0


def _listed(shards: Sequence[int] | Mapping[int, object]) -> str:
    return ", ".join(str(int(shard)) for shard in shards)
