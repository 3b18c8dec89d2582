"""The repair that a developer would write who knows both databases by heart: no look before or after, no other writers.

`python repair_script.py KIND KEYS POSTGRES HOST PORT USER PASSWORD`: reads row keys from a key list, and the rows of
these keys from Postgres; writes cells, or changes or deletes them, shard by shard. It imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from hashlib import md5
from typing import Any
from uuid import UUID

import psycopg2
import pymysql

SHARDS = 64
KEYS_PER_READ = 2_000
ROWS = """
SELECT trip_uuid::text, base_version, status, city, fare::text,
    to_char(request_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
FROM trips WHERE trip_uuid = ANY(%s::uuid[])"""
INSERT = """
INSERT INTO {shard}.cell (added_id, row_key, column_name, ref_key, body, created_at)
VALUES (%s, %s, 'BASE', %s, %s, UTC_TIMESTAMP(6))"""
CHANGE = "UPDATE {shard}.cell SET body = %s WHERE row_key = %s AND column_name = 'BASE' AND ref_key = %s"
NEXT = "SELECT next_added_id FROM flat_meta.shard_state WHERE shard = %s FOR UPDATE"
ADVANCE = "UPDATE flat_meta.shard_state SET next_added_id = %s WHERE shard = %s"
PASS = "INSERT IGNORE INTO flat_meta.purged (shard, added_id, at) VALUES (%s, %s, UTC_TIMESTAMP(6))"
IDS = "SELECT added_id FROM {shard}.cell UNION SELECT added_id FROM flat_meta.purged WHERE shard = {number}"
FIND = "SELECT added_id FROM {shard}.cell WHERE column_name = 'BASE' AND row_key IN %s"
DELETE = "DELETE FROM {shard}.cell WHERE column_name = 'BASE' AND row_key IN %s"

Cells = list[tuple[bytes, int, str]]


def main(kind: str, keys: str, postgres: str, host: str, port: str, user: str, password: str) -> None:
    with open(keys) as lines:
        row_keys = [UUID(json.loads(line)["row_key"]) for line in lines]
    with pymysql.connect(host=host, port=int(port), user=user, password=password) as store, store.cursor() as cursor:
        if kind == "extra":
            for shard, found in by_shard(row_keys).items():
                delete(cursor, shard, [key.bytes for key in found])
                store.commit()
            return
        for shard, cells in read(postgres, row_keys).items():
            if kind == "lost":
                pass_holes(cursor, shard)
            change(cursor, shard, cells) if kind in ("changed", "torn") else put(cursor, shard, cells)
            store.commit()


def by_shard(row_keys: list[UUID]) -> dict[int, list[UUID]]:
    found = defaultdict(list)
    for key in row_keys:
        found[shard_of(key)].append(key)
    return found


def read(postgres: str, row_keys: list[UUID]) -> dict[int, Cells]:
    """The cells of these rows, by shard."""
    cells = defaultdict[int, Cells](list)
    with psycopg2.connect(postgres) as connection, connection.cursor() as cursor:
        for first in range(0, len(row_keys), KEYS_PER_READ):
            cursor.execute(ROWS, ([str(key) for key in row_keys[first : first + KEYS_PER_READ]],))
            for text, version, status, city, fare, request_at in cursor:
                key = UUID(text)
                body = {"city": city, "fare": fare, "request_at": request_at, "status": status}
                cells[shard_of(key)].append((key.bytes, version, json.dumps(body, separators=(",", ":"))))
    return cells


def put(cursor: Any, shard: int, cells: Cells) -> None:
    cursor.execute(NEXT, (shard,))
    (first,) = cursor.fetchone()
    cursor.executemany(INSERT.format(shard=name(shard)), [(n, *cell) for n, cell in enumerate(cells, first)])
    cursor.execute(ADVANCE, (first + len(cells), shard))


def change(cursor: Any, shard: int, cells: Cells) -> None:
    values = [(body, row_key, ref_key) for row_key, ref_key, body in cells]
    cursor.executemany(CHANGE.format(shard=name(shard)), values)


def delete(cursor: Any, shard: int, row_keys: list[bytes]) -> None:
    cursor.execute(FIND.format(shard=name(shard)), (row_keys,))
    cursor.executemany(PASS, [(shard, added_id) for (added_id,) in cursor.fetchall()])
    cursor.execute(DELETE.format(shard=name(shard)), (row_keys,))


def pass_holes(cursor: Any, shard: int) -> None:
    cursor.execute(NEXT, (shard,))
    (end,) = cursor.fetchone()
    cursor.execute(IDS.format(shard=name(shard), number=shard))
    holes = set(range(1, end)) - {added_id for (added_id,) in cursor.fetchall()}
    cursor.executemany(PASS, [(shard, hole) for hole in sorted(holes)])


def shard_of(key: UUID) -> int:
    return int.from_bytes(md5(key.bytes, usedforsecurity=False).digest()[:4], "big") % SHARDS


def name(shard: int) -> str:
    return f"flat_{shard:04d}"


if __name__ == "__main__":
    main(*sys.argv[1:])
