"""`AuthorityRow`: the row that decides, changed by compare-and-set, and the gate that follows it.

Every change is one packet without BEGIN: the server runs it to its end as one transaction, whatever becomes of the
client, and it is durable when it answers. It locks the row first and looks in a statement of its own, which sees what
was committed while it waited. A sequence takes no part in transactions: whatever a packet that fails has set the gate
to, `obey` sets it to what the row says.
"""

from __future__ import annotations

from typing import Any

from schemaless_core.errors import InvalidServer
from tripstore.backends.postgres.capture import timeline
from tripstore.backends.postgres.capture.functions.gate import (
    BARRIER,
    SAYS,
    SEQUENCE,
    GateReading,
    GateState,
    lock_class,
)
from tripstore.backends.postgres.capture.timeline import NO_TIMELINE, TIMELINE, is_accepted
from tripstore.backends.postgres.errors import PostgresNotAccepted
from tripstore.backends.postgres.wire.wire import LegacyConnection, Row
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import StatedAuthority

_FIELDS = "epoch, backend, target, switch_id, since, who, layout"
_LOCK = "SELECT 1 FROM tripstore.authority FOR UPDATE"
_ROW = f"SELECT {_FIELDS}, timeline, {TIMELINE} FROM tripstore.authority"
_HISTORY = f"SELECT {_FIELDS} FROM tripstore.authority_history ORDER BY epoch DESC LIMIT %s"
_IS_FOUND = (
    "epoch = %s::bigint AND backend = %s AND target IS NOT DISTINCT FROM %s::text AND switch_id = %s"
    " AND layout IS NOT DISTINCT FROM %s::text"
)
_SET_ROW = f"""\
WITH changed AS (
    UPDATE tripstore.authority SET epoch = %s, backend = %s, target = %s::text, switch_id = %s, layout = %s::text,
        who = %s, since = pg_catalog.clock_timestamp(){{also}}
    WHERE {_IS_FOUND} AND {{is_of_now}} RETURNING {_FIELDS}, timeline
)
INSERT INTO tripstore.authority_history ({_FIELDS}, timeline) SELECT {_FIELDS}, timeline FROM changed RETURNING epoch"""
# No statement that compares the row as it was found changes one that a Postgres gave which is no more.
_CHANGE = _SET_ROW.format(also="", is_of_now=is_accepted())
# The transaction that decides waits for the standbys that the operator wants: or it changes nothing.
_DURABLY = "SELECT pg_catalog.set_config('synchronous_commit', '{level}', true)"
_DECIDE = _SET_ROW.format(
    also="", is_of_now=f"{is_accepted()} AND pg_catalog.current_setting('synchronous_commit') = %s"
)
_IS_STANDING = f"NOT {is_accepted()} AND timeline = %s AND {TIMELINE} = %s"
_ACCEPT = _SET_ROW.format(also=f", timeline = {TIMELINE}", is_of_now=_IS_STANDING)
# One that is not compared with any server: it speaks for this one from now on.
_RENEW = _SET_ROW.format(also=f", timeline = {TIMELINE}", is_of_now="timeline IS NULL AND target IS NULL")
_RESERVE = f"UPDATE tripstore.authority SET timeline = %s WHERE {_IS_FOUND} AND {_IS_STANDING} RETURNING 1"
_WAS = f"SELECT 1 FROM tripstore.authority_history WHERE {_IS_FOUND}"
_SET_GATE = (
    f"SELECT pg_catalog.setval('{SEQUENCE}'::pg_catalog.regclass, %s) FROM tripstore.authority"
    f" WHERE {_IS_FOUND} AND {is_accepted()}"
)
_GUARD = f"UPDATE tripstore.authority SET timeline = {TIMELINE} WHERE timeline IS NULL"
_DISTRUST = f"UPDATE tripstore.authority SET timeline = {NO_TIMELINE} WHERE {_IS_FOUND} AND {is_accepted()} RETURNING 1"
# The sequence follows the row, whichever server it is of: it says no more than the row does.
_GIVEN = f"GREATEST(timeline, {NO_TIMELINE})"
_FOLLOW = f"""\
SELECT pg_catalog.setval('{timeline.SEQUENCE}'::pg_catalog.regclass, {_GIVEN})
FROM tripstore.authority WHERE timeline IS NOT NULL AND {timeline.SAYS} IS DISTINCT FROM {_GIVEN}"""
_WRITTEN = "SELECT pg_catalog.pg_current_wal_insert_lsn()::text"
# Of a role that may not see what the standbys do all of them are late: their state is hidden.
_LATE = """\
SELECT COALESCE(NULLIF(application_name, ''), 'no name') FROM pg_catalog.pg_stat_replication
WHERE (flush_lsn >= %s::pg_lsn) IS NOT TRUE AND (state IS NULL OR state IN ('streaming', 'catchup'))"""
_FOLLOWS = f"(timeline IS NULL OR {timeline.SAYS} IS NOT DISTINCT FROM {_GIVEN})"
# Before capture has begun no process has written by any layout, and none is to be refused.
_BEGIN_LAYOUT = """\
UPDATE tripstore.authority SET layout = %s WHERE layout IS NULL AND target IS NULL
AND NOT EXISTS (SELECT FROM tripstore.capture WHERE since IS NOT NULL OR broken IS NOT NULL) RETURNING 1"""
#: What the gate is to be.
_SAID = "4 * epoch + CASE backend WHEN 'postgres' THEN 1 ELSE 0 END"
#: The sessions that have the barrier now: a pid that was noted may be another session's by now.
_HOLDERS = f"""\
SELECT l.pid FROM pg_catalog.pg_locks AS l
WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 2 AND l.objid = {BARRIER}
AND l.classid = {{k}}::oid AND l.pid <> pg_catalog.pg_backend_pid()
AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"""
_LOOK = f"""\
SELECT {_FIELDS}, {SAYS} = {_SAID} AND {_FOLLOWS} AND NOT EXISTS ({{holders}}), timeline, {TIMELINE}
FROM tripstore.authority"""
_END_HOLDERS = """\
SELECT pg_catalog.pg_terminate_backend(holder.pid) FROM ({holders}) AS holder
WHERE EXISTS (SELECT FROM tripstore.authority WHERE target IS NULL)"""
_OBEY_GATE = f"""\
SELECT {_FIELDS}, CASE WHEN target IS NULL AND {is_accepted()} AND {SAYS} IS DISTINCT FROM {_SAID}
    THEN pg_catalog.setval('{SEQUENCE}'::pg_catalog.regclass, {_SAID}) END
FROM tripstore.authority"""


class AuthorityRow:
    """The row of a datastore, as SQL on whatever connection is handed in."""

    def __init__(self, datastore: str, synchronous_commit: str = "on") -> None:
        #: Of a decision.
        self._synchronous_commit = synchronous_commit
        self._durably = _DURABLY.format(level=synchronous_commit)
        holders = _HOLDERS.format(k=lock_class(datastore) & 0xFFFFFFFF)
        self._look = _LOOK.format(holders=holders)
        # The gate first: a writer that waits at the door comes out to what it says. None before that is accepted.
        ended = _END_HOLDERS.format(holders=holders)
        self._obey = "; ".join([_LOCK, _OBEY_GATE, _FOLLOW, ended, _ROW])

    def find(self, connection: LegacyConnection) -> Authority:
        """`PostgresNotAccepted`: it is of another server than the one that answers."""
        return _accepted(connection.rows(_ROW)[0])

    def stated_authority(self, connection: LegacyConnection) -> StatedAuthority:
        """The row and the server, whether it is accepted or not."""
        return _stated(connection.rows(_ROW)[0])

    def reserve(self, connection: LegacyConnection, found: StatedAuthority, reserving: StatedAuthority) -> bool:
        """Say for which generation of epochs this server is accepted. That is no timeline: it stays shut."""
        is_changed = bool(connection.rows(f"{_LOCK}; {_RESERVE}", (reserving.given, *_stated_identity(found))))
        connection.rows(f"{_LOCK}; {_FOLLOW}")
        return is_changed

    def accept(self, connection: LegacyConnection, found: StatedAuthority, accepted: Authority) -> bool:
        """The compare-and-set by which a row of another server is one of this."""
        values = (*_identity(accepted), accepted.who, *_stated_identity(found))
        return bool(connection.rows(f"{_LOCK}; {_ACCEPT}", values))

    def renew(self, connection: LegacyConnection, found: Authority, renewed: Authority) -> bool:
        """The compare-and-set by which a row that no timeline guards begins a generation, guarded."""
        return bool(connection.rows(f"{_LOCK}; {_RENEW}", (*_identity(renewed), renewed.who, *_identity(found))))

    def guard(self, connection: LegacyConnection) -> None:
        """From now on a promoted server is not believed. Two packets: the sequence never says more than the row."""
        connection.rows(f"{_LOCK}; {_GUARD}")
        connection.rows(f"{_LOCK}; {_FOLLOW}")

    def written(self, connection: LegacyConnection) -> str:
        """Up to where this server has written."""
        return str(connection.rows(_WRITTEN)[0][0])

    def late(self, connection: LegacyConnection, written: str) -> list[str]:
        """The standbys that are connected and do not have that yet, or of which we may not see it."""
        return [name for (name,) in connection.rows(_LATE, (written,))]

    def distrust(self, connection: LegacyConnection, found: Authority) -> bool:
        """This server has lost a decision, whatever its timeline is: it is accepted no more."""
        is_changed = bool(connection.rows(f"{_LOCK}; {_DISTRUST}", _identity(found)))
        connection.rows(f"{_LOCK}; {_FOLLOW}")
        return is_changed

    def history(self, connection: LegacyConnection, limit: int) -> list[Authority]:
        """What it was, the latest first."""
        return [_authority(row) for row in connection.rows(_HISTORY, (limit,))]

    def close(self, connection: LegacyConnection, found: Authority, closing: Authority) -> bool:
        """The gate moves at once, before the row is committed: the barrier waits for a writer that comes in between."""
        if found.backend is not Backend.LEGACY:
            return self.change(connection, found, closing)
        packet, values = _change(found, closing)
        gate = 4 * closing.epoch + GateState.CLOSING
        return bool(connection.rows(f"{_LOCK}; {_SET_GATE}; {packet}", (gate, *_identity(found), *values)))

    def shut_gate(self, connection: LegacyConnection, closing: Authority) -> bool:
        gate = 4 * closing.epoch + GateState.CLOSED
        return bool(connection.rows(f"{_LOCK}; {_SET_GATE}", (gate, *_identity(closing))))

    def change(self, connection: LegacyConnection, found: Authority, wanted: Authority) -> bool:
        """The compare-and-set."""
        packet, values = _change(found, wanted)
        return bool(connection.rows(f"{_LOCK}; {packet}", values))

    def decide_alone(self, connection: LegacyConnection, found: Authority, wanted: Authority) -> bool:
        """The compare-and-set that decides, where no barrier is held."""
        packet, values = self._decision(found, wanted)
        return bool(connection.rows(packet, values))

    def decide(self, connection: LegacyConnection, closing: Authority, decided: Authority) -> bool:
        """The same in the open transaction that holds the barrier, and its commit.

        No other transaction can decide for this hand-over: that it was decided says that this transaction did.
        """
        packet, values = self._decision(closing, decided)
        return bool(connection.rows(f"{packet}; COMMIT; {_WAS}", (*values, *_identity(decided))))

    def _decision(self, found: Authority, wanted: Authority) -> tuple[str, tuple[Any, ...]]:
        _packet, values = _change(found, wanted)
        return f"{self._durably}; {_LOCK}; {_DECIDE}", (*values, self._synchronous_commit)

    def begin_layout(self, connection: LegacyConnection, layout: str) -> bool:
        """Name the first layout in force, at the row's own epoch; False: something was captured before."""
        return bool(connection.rows(_BEGIN_LAYOUT, (layout,)))

    def was(self, connection: LegacyConnection, row: Authority) -> bool:
        """Whether it is or was this one: what an answer that was lost would have said.

        The sender of that packet may be gone while the server still runs it: it has the row's lock until its commit.
        """
        return bool(connection.rows(f"{_LOCK}; {_WAS}", _identity(row)))

    def obey(self, connection: LegacyConnection) -> Authority:
        """Make Postgres what an open row says. When it is already, that was a look and nothing more."""
        *row, is_obeyed, given, now = connection.rows(self._look)[0]
        found = _accepted([*row, given, now])
        if is_obeyed or not found.is_open:
            return found
        try:
            now_is = connection.rows(self._obey)[0]
        except InvalidServer as denied:
            hint = "GRANT pg_signal_backend TO this user, or have all switch as one user that is no superuser."
            raise InvalidServer(
                denied.node, f"the barrier's holder cannot be ended ({denied.reason})", hint=hint
            ) from denied
        return _accepted(now_is)


def gate_of(row: Authority) -> GateReading:
    """What the gate is to be while the row is open."""
    return GateReading(row.epoch, GateState.OPEN if row.is_open_for(Backend.LEGACY) else GateState.CLOSED)


def _change(found: Authority, wanted: Authority) -> tuple[str, tuple[Any, ...]]:
    return _CHANGE, (*_identity(wanted), wanted.who, *_identity(found))


def _identity(row: Authority) -> tuple[Any, ...]:
    """What makes it this row and no other."""
    return row.epoch, row.backend.value, None if row.target is None else row.target.value, row.switch_id, row.layout


def _stated_identity(found: StatedAuthority) -> tuple[Any, ...]:
    """The row, what stands beside it, and the server."""
    return *_identity(found.row), found.given, found.timeline


def _stated(row: Row | list[Any]) -> StatedAuthority:
    *fields, given, now = row
    return StatedAuthority(_authority(fields), now, given)


def _accepted(row: Row | list[Any]) -> Authority:
    found = _stated(row)
    if not found.is_accepted:
        raise PostgresNotAccepted(found.row.backend.value, found.row.epoch, found.given or 0, found.timeline)
    return found.row


def _authority(row: Row | list[Any]) -> Authority:
    epoch, backend, target, switch_id, since, who, layout = row
    return Authority(
        epoch, Backend(backend), None if target is None else Backend(target), switch_id, since, who, layout
    )
