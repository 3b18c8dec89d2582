"""An accident: cells of the mirror are changed and deleted in the server itself, past tripstore."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pymysql
import pymysql.cursors

from schemaless_core.cell.sharding import shard_of
from schemaless_core.datastore import Datastore
from schemaless_core.urls import NodeUrl

FOREIGN = b'{"status":"foreign"}'

_SQLITE_CHANGE = "UPDATE cell SET body = ? WHERE shard = ? AND row_key = ? AND column_name = ?"
_SQLITE_LOSE = "DELETE FROM cell WHERE shard = ? AND row_key = ? AND column_name = ?"
_MYSQL_CHANGE = "UPDATE `{database}`.cell SET body = %s WHERE row_key = %s AND column_name = %s"
_MYSQL_LOSE = "DELETE FROM `{database}`.cell WHERE row_key = %s AND column_name = %s"


def corrupt(store: Datastore, changed: Sequence[UUID], lost: Sequence[UUID]) -> None:
    """Change the BASE of some rows, and lose that of others, every version of it."""
    for row_key in changed:
        _run(store, row_key, is_lost=False)
    for row_key in lost:
        _run(store, row_key, is_lost=True)


def connect_to(server: NodeUrl) -> pymysql.Connection[pymysql.cursors.Cursor]:
    """A connection to a MySQL or MariaDB server as an operator has it."""
    return pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    )


def _run(store: Datastore, row_key: UUID, *, is_lost: bool) -> None:
    config = store.config
    shard = shard_of(row_key, config.shards)
    url = _primary_of(store, shard)
    key = (row_key.bytes, b"BASE")
    if url.engine == "sqlite":
        with closing(sqlite3.connect(Path(url.folder) / f"{config.datastore}.db", timeout=10)) as file, file:
            if is_lost:
                file.execute(_SQLITE_LOSE, (shard, *key))
            else:
                file.execute(_SQLITE_CHANGE, (FOREIGN, shard, *key))
        return
    database = f"{config.datastore}_{shard:04d}"
    with closing(connect_to(url)) as connection, connection.cursor() as cursor:
        if is_lost:
            cursor.execute(_MYSQL_LOSE.format(database=database), key)
        else:
            cursor.execute(_MYSQL_CHANGE.format(database=database), (FOREIGN, *key))


def _primary_of(store: Datastore, shard: int) -> NodeUrl:
    topology = store.schema.plan().topology
    return next(cluster.primary for cluster in store.config.clusters if shard in topology.shards_of(cluster.name))
