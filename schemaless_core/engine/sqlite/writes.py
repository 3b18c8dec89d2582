"""Puts on SQLite: the same steps as on MySQL, inside one write transaction of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from typing import Any

from schemaless_core.answers import ANY
from schemaless_core.engine.base import Stored
from schemaless_core.engine.cells import NewCell
from schemaless_core.engine.sqlite.file import to_microseconds
from schemaless_core.engine.sqlite.reads import find, find_latest, head_of
from schemaless_core.standing import Gate

INSERT = """\
INSERT INTO cell (shard, added_id, row_key, column_name, ref_key, body, created_at)
SELECT shard, next_added_id, ?, ?, ?, ?, MAX(?, last_created_at) FROM shard_state WHERE shard = ?"""

ADVANCE = """\
UPDATE shard_state SET next_added_id = next_added_id + 1, last_created_at = MAX(?, last_created_at) WHERE shard = ?"""


def put(
    connection: sqlite3.Connection, gate: Gate, cell: NewCell, expect_latest: Any, clock: Callable[[], datetime]
) -> Stored:
    """Store one cell, or find what stands in its way. The caller holds the file's write lock."""
    head = head_of(connection, gate.shard)
    gate.check_write(head.state)
    if found := find(connection, gate.shard, cell.row_key, cell.column_name, cell.ref_key):
        return Stored(False, None, found)
    if expect_latest is not ANY:
        latest = find_latest(connection, gate.shard, cell.row_key, cell.column_name)
        if (latest.ref_key if latest else None) != expect_latest:
            return Stored(False, None, latest)
    now = to_microseconds(clock())
    connection.execute(INSERT, (*cell, now, gate.shard))
    connection.execute(ADVANCE, (now, gate.shard))
    return Stored(True, head.head + 1, None)
