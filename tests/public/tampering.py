"""Other bodies in the shards, written past everything, for the control; and what was there before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pymysql

_LATEST = """
SELECT added_id, body FROM `{0}`.cell AS one WHERE column_name = %s AND body <> 'null' AND NOT EXISTS (
    SELECT 1 FROM `{0}`.cell AS two WHERE two.row_key = one.row_key AND two.column_name = one.column_name
    AND two.ref_key >> 20 = one.ref_key >> 20 AND two.ref_key > one.ref_key)
ORDER BY added_id LIMIT %s
"""
_WRITE = "UPDATE `{0}`.cell SET body = %s WHERE added_id = %s"


@contextmanager
def other_bodies(servers: Sequence[str], datastore: str, column: str, count: int) -> Iterator[None]:
    """So many latest cells of children hold something else within the block."""
    kept: list[tuple[str, str, int, bytes]] = []
    for url in servers:
        with _connected(url) as cursor:
            for name in _shards(cursor, datastore):
                cursor.execute(_LATEST.format(name), (column, count - len(kept)))
                kept += [(url, name, added_id, body) for added_id, body in cursor.fetchall()]
    assert len(kept) == count
    try:
        for url, name, added_id, _ in kept:
            _write(url, name, added_id, b'{"tampered":1}')
        yield
    finally:
        for url, name, added_id, body in kept:
            _write(url, name, added_id, body)


def _write(url: str, name: str, added_id: int, body: bytes) -> None:
    with _connected(url) as cursor:
        cursor.execute(_WRITE.format(name), (body, added_id))


def _shards(cursor: Any, datastore: str) -> list[str]:
    cursor.execute(
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name RLIKE %s ORDER BY 1",
        (f"^{datastore}_[0-9]+$",),
    )
    return [name for (name,) in cursor.fetchall()]


@contextmanager
def _connected(url: str) -> Iterator[Any]:
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        autocommit=True,
    )
    try:
        with connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()
