"""Looks at purged keys, and at whether a shard has any."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.rows import values_of
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, binary
from schemaless_core.engine.purging import Key

AMONG = """\
WITH w (row_key, column_name, ref_key) AS (VALUES ROWS)
SELECT STRAIGHT_JOIN w.row_key, w.column_name, w.ref_key, MAX(k.ref_key)
 FROM w JOIN {purged_key} k ON k.shard = SHARD AND k.row_key = w.row_key
  AND k.column_name IN (_binary'', w.column_name) AND k.ref_key >= w.ref_key
 GROUP BY w.row_key, w.column_name, w.ref_key"""
IS_GUARDED = "SELECT guarded FROM {state} WHERE shard = %s"


def among(connection: DeadlineConnection, names: Names, shard: int, keys: Sequence[Key]) -> dict[Key, int]:
    """Those of the keys that are purged in a shard, each with the ref key up to which its column is."""
    if not names.guard.is_told:
        names.guard.look(connection)
    if not keys or not names.guard.is_told:
        return {}
    rows = [b"%s, %s, %d" % (binary(row), binary(name), ref) for row, name, ref in keys]
    statement = names.meta_sql(AMONG).replace("SHARD", str(int(shard))).encode()
    with connection.cursor() as cursor:
        cursor.execute(statement.replace(b"VALUES ROWS", values_of(connection, rows)))  # type: ignore[call-overload]  # PyMySQL takes bytes as they are; its stubs say str
        return {(row, name, int(ref)): int(up_to) for row, name, ref, up_to in cursor.fetchall()}


def is_guarded(connection: DeadlineConnection, names: Names, shard: int) -> bool:
    """Whether a shard is guarded; it is remembered."""
    if not names.guard.is_told:
        return False
    with connection.cursor() as cursor:
        cursor.execute(names.meta_sql(IS_GUARDED), (shard,))
        (guarded,) = cursor.fetchone() or (0,)
    if guarded:
        names.guard.shards.add(shard)
    return bool(guarded)
