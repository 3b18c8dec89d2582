"""`FLUSH`: whatever this session has seen so far is durable when it answers, asynchronous commits of others included.

A commit that writes to the WAL waits until that is flushed up to its own record, and for synchronous standbys. What we
saw stands before it. A transaction that writes nothing, or only takes a number, waits for nothing; so it leaves a
message, which no table holds.
"""

from __future__ import annotations

from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.errors import LegacyUnavailable

#: One packet, outside of a transaction. The session's settings may be any.
FLUSH = (
    "BEGIN READ WRITE; SET LOCAL synchronous_commit TO on; "
    "SELECT pg_catalog.pg_logical_emit_message(true, 'tripstore', ''); COMMIT"
)


def flush(cursor: Cursor) -> None:
    """Do it, or raise: a wait for a standby that is cancelled ends with a commit and a warning."""
    notices = cursor.connection.notices
    del notices[:]
    cursor.execute(FLUSH)
    if notices:
        reason = str(notices[-1]).strip().splitlines()[0]
        raise LegacyUnavailable(
            f"Postgres did not make sure of what was read ({reason}).", hint="Look at its standbys."
        )
