"""Parked cells: set aside by a group together with its offset, settled or tried again by the shard's worker."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from schemaless_core.engine.groups import ParkedCell, ParkedKey, ParkedRow, Settling
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.rows import utc
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.transactions import write

_ROW = """\
shard, added_id, row_key, column_name, ref_key, attempts, is_waiting, error, parked_at, next_attempt_at,
 next_attempt_at <= UTC_TIMESTAMP(6)"""

LIST = f"SELECT {_ROW} FROM {{parked}} WHERE group_name = %s AND (%s IS NULL OR shard = %s)"
ORDERED = " ORDER BY shard, added_id LIMIT %s"
OF_SHARDS = f"SELECT {_ROW} FROM {{parked}} WHERE group_name = %s AND shard IN (SHARDS) ORDER BY shard, added_id"
# All shards may be asked for: a range is no list of thousands.
KEYS = "SELECT shard, added_id, row_key FROM {parked} WHERE group_name = %s AND shard BETWEEN %s AND %s"
COUNT = "SELECT COUNT(*) FROM {parked} WHERE group_name = %s AND is_waiting = 0"
DUE = """\
SELECT DISTINCT shard FROM {parked}
 WHERE group_name = %s AND is_waiting = 0 AND next_attempt_at <= UTC_TIMESTAMP(6)"""

# After a parked cell was settled, the first of its row that waits behind it is due; not if the first was overtaken.
NEXT_OF_ROW = """\
UPDATE {parked} SET is_waiting = 0, next_attempt_at = UTC_TIMESTAMP(6)
 WHERE group_name = %s AND shard = %s AND is_waiting = 1
 AND NOT EXISTS (SELECT 1 FROM (SELECT 1 FROM {parked} WHERE group_name = %s AND shard = %s AND added_id = %s) there)
 AND added_id = (SELECT added_id FROM
  (SELECT MIN(added_id) AS added_id FROM {parked} WHERE group_name = %s AND shard = %s AND row_key = %s) first)
 AND EXISTS (SELECT 1 FROM {offset} WHERE group_name = %s AND shard = %s AND fence = %s)"""
IS_PARKED = "SELECT 1 FROM {parked} WHERE group_name = %s AND shard = %s AND added_id = %s"

IF_SAME_EPOCH = " AND EXISTS (SELECT 1 FROM {state} WHERE shard = %s AND epoch = %s)"
SETTLE = f"""\
DELETE FROM {{parked}} WHERE group_name = %s AND shard = %s AND added_id = %s
 AND EXISTS (SELECT 1 FROM {{offset}} WHERE group_name = %s AND shard = %s AND fence = %s){IF_SAME_EPOCH}"""

POSTPONE = """\
UPDATE {parked} SET attempts = %s, is_waiting = %s, error = %s,
  next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND
 WHERE group_name = %s AND shard = %s AND added_id = %s
 AND EXISTS (SELECT 1 FROM {offset} WHERE group_name = %s AND shard = %s AND fence = %s)"""

RETRY = "UPDATE {parked} SET next_attempt_at = UTC_TIMESTAMP(6) WHERE group_name = %s AND (%s IS NULL OR shard = %s)"
RETRY_ONE = " AND added_id = %s"


def parked(connection: DeadlineConnection, names: Names, group: str, shard: int | None, limit: int) -> list[ParkedRow]:
    """The parked cells of a group on this server, in the order of their shards' logs."""
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(LIST) + ORDERED, (group, shard, shard, limit))
        return [_row(found) for found in cursor.fetchall()]


def parked_of(connection: DeadlineConnection, names: Names, group: str, shards: Collection[int]) -> list[ParkedRow]:
    """All parked cells of these shards."""
    if not shards:
        return []
    listed = ", ".join(str(int(shard)) for shard in shards)
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(OF_SHARDS).replace("SHARDS", listed), (group,))
        return [_row(found) for found in cursor.fetchall()]


def parked_keys(connection: DeadlineConnection, names: Names, group: str, shards: Collection[int]) -> list[ParkedKey]:
    """The rows of these shards that have parked cells, and where those stand."""
    if not shards:
        return []
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(KEYS), (group, min(shards), max(shards)))
        wanted = set(shards)
        return [ParkedKey._make(found) for found in cursor.fetchall() if found[0] in wanted]


def count(connection: DeadlineConnection, names: Names, group: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(COUNT), (group,))
        (found,) = cursor.fetchone() or (0,)
        return int(found)


def due(connection: DeadlineConnection, names: Names, group: str) -> set[int]:
    """The shards that have a cell whose next attempt is due, by the server's clock."""
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(DUE), (group,))
        return {int(shard) for (shard,) in cursor.fetchall()}


def settle(connection: DeadlineConnection, names: Names, group: str, shard: int, settling: Settling) -> None:
    """A parked cell was delivered; the next of its row comes to its head."""
    place, fenced = (group, shard, settling.added_id), (group, shard, settling.fence)
    settled = (names.meta_sql(SETTLE), (*place, *fenced, shard, settling.shard_epoch))
    write(connection, settled, (names.meta_sql(NEXT_OF_ROW), next_of_row(group, shard, settling)))


def next_of_row(group: str, shard: int, settling: Settling) -> tuple[Any, ...]:
    """What `NEXT_OF_ROW` takes."""
    own = (group, shard)
    return (*own, *own, settling.added_id, *own, settling.row_key, *own, settling.fence)


def is_parked(connection: DeadlineConnection, names: Names, group: str, shard: int, added_id: int) -> bool:
    with connection.cursor() as cursor:
        return bool(cursor.execute(names.meta_sql(IS_PARKED), (group, shard, added_id)))


def postpone(
    connection: DeadlineConnection, names: Names, group: str, shard: int, fence: int, cell: ParkedCell
) -> None:
    """A parked cell failed again, or comes to the head of its row."""
    microseconds = int(cell.retry_in_seconds * 1_000_000)
    news = (cell.attempts, int(cell.is_waiting), cell.error, microseconds)
    values = (*news, group, shard, cell.added_id, group, shard, fence)
    write(connection, (names.meta_sql(POSTPONE), values))


def retry(connection: DeadlineConnection, names: Names, group: str, shard: int | None, added_id: int | None) -> int:
    """Make the next attempt of these due now; how many there are."""
    statement, values = names.meta_sql(RETRY), [group, shard, shard]
    if added_id is not None:
        statement, values = statement + RETRY_ONE, [*values, added_id]
    return write(connection, (statement, values))


def _row(found: tuple[Any, ...]) -> ParkedRow:
    *cell, is_waiting, error, parked_at, next_attempt_at, is_due = found
    return ParkedRow._make((*cell, bool(is_waiting), error, utc(parked_at), utc(next_attempt_at), bool(is_due)))
