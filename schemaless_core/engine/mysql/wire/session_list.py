"""Which sessions a server has, as far as our user may see them: at least our own, whatever the privileges."""

from __future__ import annotations

from typing import NamedTuple

from schemaless_core.engine.mysql.wire.connection import DeadlineConnection

LIST = "SHOW PROCESSLIST"


class ServerSession(NamedTuple):
    """A session, by the number that its server gave it: whose it is, and what it is at."""

    number: int
    user: str
    state: str


def sessions_on(connection: DeadlineConnection) -> list[ServerSession]:
    """Read as bytes: beside each session stands its statement, cut anywhere, with bytes that are no text."""
    was_text, connection.use_unicode = connection.use_unicode, False
    try:
        with connection.cursor() as cursor:
            cursor.execute(LIST)
            rows = cursor.fetchall()
    finally:
        connection.use_unicode = was_text
    return [ServerSession(int(row[0]), _text(row[1]), _text(row[6])) for row in rows]


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")
