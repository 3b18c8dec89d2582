"""Which cell a function is called for, and how often its shard was claimed: what outlives the process."""

from __future__ import annotations

from collections.abc import Collection

from schemaless_core.engine.groups import CallNote, ClaimSeen
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.transactions import write

# The count first: assignments are made from left to right, and it looks at the place of the claim before.
CLAIMED = """\
INSERT INTO {call} (group_name, shard, epoch, added_id, claims, called_epoch, called_id, calls)
 SELECT group_name, shard, epoch, added_id, 1, 0, 0, 0 FROM {offset} WHERE group_name = %s AND shard IN (SHARDS)
 ON DUPLICATE KEY UPDATE
  claims = IF({call}.epoch = VALUES(epoch) AND {call}.added_id = VALUES(added_id), {call}.claims + 1, 1),
  epoch = VALUES(epoch), added_id = VALUES(added_id)"""
FIND = "SELECT shard, claims, called_epoch, called_id, calls FROM {call} WHERE group_name = %s AND shard IN (SHARDS)"
CALLED = """\
UPDATE {call} SET called_epoch = %s, called_id = %s, calls = %s WHERE group_name = %s AND shard = %s
 AND EXISTS (SELECT 1 FROM {offset} WHERE group_name = %s AND shard = %s AND fence = %s)"""
REMOVE = "DELETE FROM {call} WHERE group_name = %s"


def note_claims(
    connection: DeadlineConnection, names: Names, group: str, shards: Collection[int]
) -> dict[int, ClaimSeen]:
    """Count a claim of each of these shards; return what is noted of them then."""
    listed = ", ".join(str(int(shard)) for shard in shards)
    write(connection, (names.meta_sql(CLAIMED).replace("SHARDS", listed), (group,)))
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(FIND).replace("SHARDS", listed), (group,))
        return {shard: ClaimSeen(claims, CallNote(*call)) for shard, claims, *call in cursor.fetchall()}


def note_call(connection: DeadlineConnection, names: Names, group: str, shard: int, fence: int, call: CallNote) -> None:
    """Note the cell that is called for, under the newest fence only."""
    write(connection, (names.meta_sql(CALLED), (*call, group, shard, group, shard, fence)))


def remove(connection: DeadlineConnection, names: Names, group: str) -> None:
    write(connection, (names.meta_sql(REMOVE), (group,)))
