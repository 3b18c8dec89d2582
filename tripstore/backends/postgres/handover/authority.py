"""`AuthorityRow`: the row that decides, changed by compare-and-set, and the gate that follows it.

Every change is one packet without BEGIN: the server runs it to its end as one transaction, whatever becomes of the
client, and it is durable when it answers. It locks the row first and looks in a statement of its own, which sees what
was committed while it waited. A sequence takes no part in transactions: whatever a packet that fails has set the gate
to, `obey` sets it to what the row says.
"""

from __future__ import annotations

from typing import Any

from schemaless_core.errors import InvalidServer
from tripstore.backends.postgres.capture.gate import BARRIER, SEQUENCE, Gate, GateState, lock_class
from tripstore.backends.postgres.wire.wire import LegacyConnection, Row
from tripstore.handover.authority import Authority, Backend

_FIELDS = "epoch, backend, target, switch_id, since, who, layout"
_LOCK = "SELECT 1 FROM tripstore.authority FOR UPDATE"
_ROW = f"SELECT {_FIELDS} FROM tripstore.authority"
_HISTORY = f"SELECT {_FIELDS} FROM tripstore.authority_history ORDER BY epoch DESC LIMIT %s"
_IS_FOUND = (
    "epoch = %s::bigint AND backend = %s AND target IS NOT DISTINCT FROM %s::text AND switch_id = %s"
    " AND layout IS NOT DISTINCT FROM %s::text"
)
_CHANGE = f"""\
WITH changed AS (
    UPDATE tripstore.authority SET epoch = %s, backend = %s, target = %s::text, switch_id = %s, layout = %s::text,
        who = %s, since = pg_catalog.clock_timestamp()
    WHERE {_IS_FOUND} RETURNING {_FIELDS}
)
INSERT INTO tripstore.authority_history ({_FIELDS}) SELECT {_FIELDS} FROM changed RETURNING epoch"""
_WAS = f"SELECT 1 FROM tripstore.authority_history WHERE {_IS_FOUND}"
_SET_GATE = (
    f"SELECT pg_catalog.setval('{SEQUENCE}'::pg_catalog.regclass, %s) FROM tripstore.authority WHERE {_IS_FOUND}"
)
# Before capture has begun no process has written by any layout, and none is to be refused.
_BEGIN_LAYOUT = """\
UPDATE tripstore.authority SET layout = %s WHERE layout IS NULL AND target IS NULL
AND NOT EXISTS (SELECT FROM tripstore.capture WHERE since IS NOT NULL OR broken IS NOT NULL) RETURNING 1"""
_GATE = f"pg_catalog.pg_sequence_last_value('{SEQUENCE}'::pg_catalog.regclass)"
#: What the gate is to be.
_SAID = "4 * epoch + CASE backend WHEN 'postgres' THEN 1 ELSE 0 END"
#: Who has the barrier, as it is now: a pid that was noted may be another session's by now.
_HOLDERS = f"""\
SELECT l.pid FROM pg_catalog.pg_locks AS l
WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 2 AND l.objid = {BARRIER}
AND l.classid = {{k}}::oid AND l.pid <> pg_catalog.pg_backend_pid()
AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"""
_LOOK = f"SELECT {_FIELDS}, {_GATE} = {_SAID} AND NOT EXISTS ({{holders}}) FROM tripstore.authority"
_END_HOLDERS = """\
SELECT pg_catalog.pg_terminate_backend(holder.pid) FROM ({holders}) AS holder
WHERE EXISTS (SELECT FROM tripstore.authority WHERE target IS NULL)"""
_OBEY_GATE = f"""\
SELECT {_FIELDS}, CASE WHEN target IS NULL AND {_GATE} IS DISTINCT FROM {_SAID}
    THEN pg_catalog.setval('{SEQUENCE}'::pg_catalog.regclass, {_SAID}) END
FROM tripstore.authority"""


class AuthorityRow:
    """The row of a datastore, as SQL on whatever connection is handed in."""

    def __init__(self, datastore: str) -> None:
        holders = _HOLDERS.format(k=lock_class(datastore) & 0xFFFFFFFF)
        self._look = _LOOK.format(holders=holders)
        # The gate first: whoever waits at the door comes out to what it says.
        ended = _END_HOLDERS.format(holders=holders)
        self._obey = "; ".join([_LOCK, _OBEY_GATE, ended, f"SELECT {_FIELDS}, NULL FROM tripstore.authority"])

    def find(self, connection: LegacyConnection) -> Authority:
        return _authority(connection.rows(_ROW)[0])

    def history(self, connection: LegacyConnection, limit: int) -> list[Authority]:
        """What it was, the latest first."""
        return [_authority(row) for row in connection.rows(_HISTORY, (limit,))]

    def close(self, connection: LegacyConnection, found: Authority, closing: Authority) -> bool:
        """The gate moves at once, before the row is committed: who comes in between is waited for by the barrier."""
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

    def decide(self, connection: LegacyConnection, closing: Authority, decided: Authority) -> bool:
        """The same in the open transaction of whoever holds the barrier, and its commit.

        Nobody else can decide for this hand-over: that it was decided says that this transaction did.
        """
        packet, values = _change(closing, decided)
        return bool(connection.rows(f"{_LOCK}; {packet}; COMMIT; {_WAS}", (*values, *_identity(decided))))

    def begin_layout(self, connection: LegacyConnection, layout: str) -> bool:
        """Name the first layout in force, at the row's own epoch; False: something was captured before."""
        return bool(connection.rows(_BEGIN_LAYOUT, (layout,)))

    def was(self, connection: LegacyConnection, row: Authority) -> bool:
        """Whether it is or was this one: what an answer that was lost would have said.

        Who sent that packet may be gone while the server is still at it: it has the row's lock until it has committed.
        """
        return bool(connection.rows(f"{_LOCK}; {_WAS}", _identity(row)))

    def obey(self, connection: LegacyConnection) -> Authority:
        """Make Postgres what an open row says. When it is already, that was a look and nothing more."""
        *row, is_obeyed = connection.rows(self._look)[0]
        found = _authority(row)
        if is_obeyed or not found.is_open:
            return found
        try:
            *row, _value = connection.rows(self._obey)[0]
        except InvalidServer as denied:
            hint = "GRANT pg_signal_backend TO this user, or have all switch as one user that is no superuser."
            raise InvalidServer(
                denied.node, f"the barrier's holder cannot be ended ({denied.reason})", hint=hint
            ) from denied
        return _authority(row)


def gate_of(row: Authority) -> Gate:
    """What the gate is to be while the row is open."""
    return Gate(row.epoch, GateState.OPEN if row.is_open_for(Backend.LEGACY) else GateState.CLOSED)


def _change(found: Authority, wanted: Authority) -> tuple[str, tuple[Any, ...]]:
    return _CHANGE, (*_identity(wanted), wanted.who, *_identity(found))


def _identity(row: Authority) -> tuple[Any, ...]:
    """What makes it this row and no other."""
    return row.epoch, row.backend.value, None if row.target is None else row.target.value, row.switch_id, row.layout


def _authority(row: Row | list[Any]) -> Authority:
    epoch, backend, target, switch_id, since, who, layout = row
    return Authority(
        epoch, Backend(backend), None if target is None else Backend(target), switch_id, since, who, layout
    )
