"""Which Postgres it is: its timeline, and the one on which the authority row was given or accepted, as SQL.

Postgres raises its timeline with every promotion, and with every recovery to a point in time. The row has the timeline
of the Postgres that gave it, and a sequence follows that: triggers may not ask a table, and a snapshot may be old.
"""

from __future__ import annotations

from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

#: Of the Postgres that answers. No standby may be asked. Without a SELECT: plpgsql is quick with an expression.
TIMELINE = """\
('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8)
)::bit(32)::bigint"""
#: The same for what only writers ask (functions of triggers, the admission of a put): of a constant Postgres makes
#: the plan alone, once in a session. It can make none while it recovers, and a session that may write stays on its
#: timeline.
_PLANNED = "('x' || pg_catalog.pg_walfile_name('0/1'))::bit(32)::bigint"
#: Follows the row's timeline; it has no value before a hand-over was ever prepared: then nothing is compared.
SEQUENCE = f"{SCHEMA}.accepted"
SAYS = f"pg_catalog.pg_sequence_last_value('{SEQUENCE}'::pg_catalog.regclass)"
IS_FOREIGN = f"({SAYS} = {TIMELINE}) IS FALSE"
#: For writers only.
IS_FOREIGN_TO_WRITERS = f"({SAYS} = {_PLANNED}) IS FALSE"
#: No server ever has it: of a row that was found to be old. Nor one below: of a row that is being accepted.
NO_TIMELINE = 0

#: The columns of a `ServerIdentity`.
SERVER = f"SELECT system_identifier::text, {TIMELINE} FROM pg_catalog.pg_control_system()"


class ServerIdentity(NamedTuple):
    """What makes it this Postgres and no other."""

    system: str
    timeline: int


def find_server(connection: Connection) -> ServerIdentity:
    """The Postgres that answers."""
    return ServerIdentity(*rows(connection, SERVER)[0])


def is_accepted(column: str = "timeline") -> str:
    """Whether the row, whose column this is, speaks for the Postgres that answers."""
    return f"({column} = {TIMELINE}) IS NOT FALSE"
