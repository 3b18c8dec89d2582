"""The look that a developer would write who trusts the tables: each log read once, by one connection.

`python fsck_script.py DATASTORE SHARDS HOST PORT USER PASSWORD`: dense, in order of time, bodies as canonical JSON. It
looks once, knows no purged ids, and is right only while no process writes. It imports nothing of ours.
"""

from __future__ import annotations

import json
import sys

import pymysql

PAGE = 5_000
CELLS = "SELECT added_id, body, created_at FROM {table} WHERE added_id > %s ORDER BY added_id LIMIT %s"


def main(datastore: str, shards: str, host: str, port: str, user: str, password: str) -> None:
    wrong = 0
    with pymysql.connect(host=host, port=int(port), user=user, password=password) as server, server.cursor() as cursor:
        for shard in range(int(shards)):
            cursor.execute(f"SELECT next_added_id - 1 FROM {datastore}_meta.shard_state WHERE shard = %s", (shard,))
            (head,) = cursor.fetchone() or (0,)
            after, newest = 0, None
            statement = CELLS.format(table=f"{datastore}_{shard:04d}.cell")
            while cursor.execute(statement, (after, PAGE)):
                for added_id, body, created_at in cursor.fetchall():
                    wrong += added_id != after + 1
                    wrong += newest is not None and created_at < newest
                    wrong += dumped(json.loads(body)) != body
                    after, newest = added_id, created_at
            wrong += after != head
    sys.exit(1 if wrong else 0)


def dumped(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


if __name__ == "__main__":
    main(*sys.argv[1:])
