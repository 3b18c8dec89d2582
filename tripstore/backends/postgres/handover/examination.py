"""What `doctor` asks of the hand-over's half of Postgres: gate, authority row, parked changes, and rights."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.capture.functions.gate import GateReading, GateState
from tripstore.backends.postgres.capture.names import ENTER_FUNCTION
from tripstore.backends.postgres.capture.timeline import TIMELINE
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.backends.postgres.handover.intruders import intruders
from tripstore.backends.postgres.handover.sessions import grant_to_see, stale_sessions
from tripstore.backends.postgres.layout.complaints import Complaint, error, note
from tripstore.backends.postgres.layout.layout import quoted
from tripstore.backends.postgres.wire.connections import rows

_GATE_AND_ROW = f"""
SELECT pg_catalog.pg_sequence_last_value('tripstore.gate'::regclass), epoch, backend, target, timeline, {TIMELINE}
FROM tripstore.authority
"""
_PARKED = "SELECT count(*) FROM tripstore.queue WHERE parked IS NOT NULL"
_OWNER = """
SELECT session_user, r.rolname FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_roles AS r ON r.oid = p.proowner
WHERE p.pronamespace = 'tripstore'::regnamespace AND p.proname = %s
AND NOT pg_catalog.pg_has_role(session_user, p.proowner, 'MEMBER')
"""
# Sessions of its own login a role may end by itself.
_POWERLESS = """
SELECT session_user WHERE NOT pg_catalog.pg_has_role(session_user, 'pg_signal_backend', 'USAGE')
AND EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolcanlogin AND r.rolname <> session_user
    AND pg_catalog.has_table_privilege(r.oid, 'tripstore.cell', 'INSERT'))
"""
_BLIND = "SELECT session_user WHERE NOT pg_catalog.pg_has_role(session_user, 'pg_read_all_stats', 'USAGE')"


def examine_handover(connection: Connection, datastore: str) -> Iterator[Complaint]:
    """To be asked where capture is installed."""
    value, epoch, backend, target, given, now = rows(connection, _GATE_AND_ROW)[0]
    gate = GateReading(value // 4, GateState(value % 4))
    wanted = GateReading(epoch, GateState.OPEN if backend == "postgres" else GateState.CLOSED)
    if given not in (None, now):
        unknown = PostgresNotAccepted(backend, epoch, given, now)
        yield error("authority", unknown.message, unknown.hint or "")
    elif target is not None:
        hint = "Every process of tripstore undoes it when it takes too long; see `tripstore cutover status`."
        yield error("authority", f"is being handed over to {target} since epoch {epoch}", hint)
    elif gate != wanted:
        said = f"is {gate.state.name.lower()} at epoch {gate.epoch}, the authority row says {backend} at {epoch}"
        yield error("gate", said, "`tripstore worker run` mends it.")
    if parked := rows(connection, _PARKED)[0][0]:
        hint = "`tripstore mirror parked` says why, and the runbook what to do; no switch is possible until then."
        yield error("mirror", f"{parked:,} changes are parked: Schemaless does not take them as they are", hint)
    for intruder in intruders(lambda statement, values: rows(connection, statement, values), datastore):
        yield error("lock", str(intruder), intruder.hint)
    for stale in stale_sessions(lambda statement, values: rows(connection, statement, values)):
        hint = "It loads the layout in force with its next call; restart it if it does not."
        yield note("layout", f"{stale}, which is not in force", hint)
    for login, owner in rows(connection, _OWNER, (ENTER_FUNCTION,)):
        said = f"{login} is no member of {owner}, which owns our functions: a shut gate will refuse the reverse mirror"
        yield error("role", said, f"GRANT {owner} TO {login}, or let legacy.postgres log in as {owner}.")
    for (login,) in rows(connection, _POWERLESS):
        said = f"{login} may not end sessions of others: a hand-over whose process stopped lets writers wait for longer"
        yield note("role", said, f"GRANT pg_signal_backend TO {quoted(login)}.")
    for (login,) in rows(connection, _BLIND):
        said = (
            f"{login} may not see what sessions of other roles do: limits on the load and the gate writers are refused"
        )
        yield note("role", said, f"{grant_to_see(login)}.")
