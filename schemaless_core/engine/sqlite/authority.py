"""Opening and closing the shards of a file to owners: the same as on MySQL, inside one write transaction."""

from __future__ import annotations

import sqlite3

from schemaless_core.engine.base import AuthorityChange
from schemaless_core.engine.sqlite.file import from_microseconds

NOT_CLOSED = """\
SELECT COUNT(*) FROM shard_state WHERE state <> 'MOVED' AND (authority_epoch <> ? OR state <> 'COPY')"""
OPEN = """\
UPDATE shard_state SET authority_epoch = ?, state = CASE state WHEN 'COPY' THEN 'RW' ELSE state END
 WHERE authority_epoch < ?"""
CLOSE = """\
UPDATE shard_state SET authority_epoch = ?, state = CASE state WHEN 'RW' THEN 'COPY' ELSE state END
 WHERE authority_epoch < ?"""
MAKE_COPIES = "UPDATE shard_state SET state = 'COPY' WHERE authority_epoch = 0 AND state = 'RW'"
# Of a shard that moves it is written by who opens it.
NOTE = """\
INSERT INTO shard_authority (shard, authority_epoch, state, first_added_id, at)
 SELECT shard, authority_epoch, state, next_added_id, ? FROM shard_state
 WHERE authority_epoch = ? AND state IN ('RW', 'COPY')
 ON CONFLICT DO NOTHING"""
BEGIN_HISTORY = """\
INSERT INTO shard_authority (shard, authority_epoch, state, first_added_id, at)
 SELECT shard, authority_epoch, state, 1, ? FROM shard_state
 WHERE shard NOT IN (SELECT shard FROM shard_authority)"""
OPENED_AT = "SELECT COALESCE(MAX(authority_epoch), 0) FROM shard_authority WHERE state = 'RW'"
OPEN_NOW = "SELECT COALESCE(MAX(authority_epoch), 0) FROM shard_state WHERE state = 'RW'"
HISTORY = """\
SELECT authority_epoch, state, first_added_id, at FROM shard_authority WHERE shard = ?
 ORDER BY authority_epoch, first_added_id, at"""


def open_to_owners(connection: sqlite3.Connection, authority_epoch: int, now: int) -> None:
    _raise(connection, OPEN, authority_epoch, now)


def close_to_owners(connection: sqlite3.Connection, authority_epoch: int, now: int) -> bool:
    _raise(connection, CLOSE, authority_epoch, now)
    (not_closed,) = connection.execute(NOT_CLOSED, (authority_epoch,)).fetchone()
    return not not_closed


def make_copies(connection: sqlite3.Connection, now: int) -> int:
    made = connection.execute(MAKE_COPIES).rowcount
    connection.execute(NOTE, (now, 0))
    return made


def history(connection: sqlite3.Connection, shard: int) -> list[AuthorityChange]:
    return [
        AuthorityChange(epoch, state, first_added_id, from_microseconds(at))
        for epoch, state, first_added_id, at in connection.execute(HISTORY, (shard,))
    ]


def opened_at(connection: sqlite3.Connection, *, ever: bool) -> int:
    (found,) = connection.execute(OPENED_AT if ever else OPEN_NOW).fetchone()
    return int(found)


def begin_history(connection: sqlite3.Connection, now: int) -> None:
    """Of shards made before there was a history: nothing had ever changed them."""
    connection.execute(BEGIN_HISTORY, (now,))


def _raise(connection: sqlite3.Connection, statement: str, authority_epoch: int, now: int) -> None:
    if connection.execute(statement, (authority_epoch, authority_epoch)).rowcount:
        connection.execute(NOTE, (now, authority_epoch))
