"""Which cells are all that their column holds, many per round trip: what is known of them already need not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from schemaless_core.cell.stored import NewCell
from schemaless_core.engine.base import KeysSeen
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import heads_from, heads_statement
from schemaless_core.engine.mysql.rows import values_of
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, binary
from schemaless_core.engine.mysql.wire.transactions import send
from schemaless_core.errors import missing_shard

# Bodies stay on the server, which compares their hashes: MySQL 9 has no MD5. LIMIT without an order: is there any?
# A body that another writer compressed is not known again, and read: only what is surely the same may be left out.
NOT_ALONE = """\
WITH w (row_key, column_name, ref_key, hash, kept) AS (VALUES ROWS)
SELECT w.row_key, w.column_name, w.ref_key FROM w
 WHERE COALESCE((SELECT SHA2(c.body, 256) FROM {cell} c
   WHERE c.row_key = w.row_key AND c.column_name = w.column_name AND c.ref_key = w.ref_key), '') NOT IN (w.hash, w.kept)
  OR (SELECT o.ref_key FROM {cell} o
   WHERE o.row_key = w.row_key AND o.column_name = w.column_name AND o.ref_key <> w.ref_key LIMIT 1) IS NOT NULL"""


def find_not_alone(
    connection: DeadlineConnection, names: Names, cells: Mapping[int, Sequence[NewCell]]
) -> dict[int, KeysSeen]:
    """One statement per shard and the look at their states behind them, as one packet."""
    if not cells:
        return {}
    statements = [_statement(connection, names, shard, wanted) for shard, wanted in cells.items()]
    packet = b"; ".join([*statements, heads_statement(names, cells.keys()).encode()])
    keys: dict[int, list[tuple[bytes, bytes, int]]] = {}
    with send(connection, packet) as cursor:
        for shard in cells:
            keys[shard] = list(cursor.fetchall())
            cursor.nextset()
        seen = heads_from(cursor.fetchall())
    for shard in cells:
        if shard not in seen:
            raise missing_shard(shard)
    return {shard: KeysSeen(seen[shard].state, found) for shard, found in keys.items()}


def _statement(connection: DeadlineConnection, names: Names, shard: int, cells: Sequence[NewCell]) -> bytes:
    rows = (
        b"%s, %s, %d, _binary'%s', _binary'%s'" % (binary(key), binary(name), ref_key, _hash(body), _hash(kept))
        for (key, name, ref_key, body), (*_key, kept) in zip(cells, names.bodies.kept(cells), strict=True)
    )
    return names.sql(NOT_ALONE, shard).encode().replace(b"VALUES ROWS", values_of(connection, rows))


def _hash(body: bytes) -> bytes:
    return sha256(body).hexdigest().encode()
