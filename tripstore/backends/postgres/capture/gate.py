"""The gate: whether anybody may write the mapped tables now. Sequences are outside MVCC, so that every snapshot knows.

The sequence holds 4·epoch + state. A trigger on every partition looks at it before each statement, takes the lock as
one of many, and looks again; its function runs only when the store is not plainly open. Who wrote before the gate
began to close holds the lock, and goes on to the end of his transaction: the barrier waits for him. Others wait at the
door until it is decided. Row capture asks too, without waiting: logical apply fires no triggers for statements, and a
partition made later has none.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import md5
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812

from tripstore.backends.postgres.capture.functions import SEARCH_PATH, Function, refuse
from tripstore.backends.postgres.capture.names import GATE_FUNCTION, GATE_TRIGGER, in_schema
from tripstore.backends.postgres.capture.sqlstates import GATE_SHUT
from tripstore.backends.postgres.layout.layout import TableName, quoted
from tripstore.backends.postgres.tables import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

SEQUENCE = f"{SCHEMA}.gate"
#: The second key of the advisory locks; the first is the class of the datastore.
BARRIER, DOOR, DDL = 1, 2, 3

_STATE = f"pg_catalog.pg_sequence_last_value('{SEQUENCE}'::pg_catalog.regclass)"
_NOT_OPEN = f"{_STATE} % 4 IS DISTINCT FROM 1"
_MESSAGE = "Writes to % are shut off: this database is not the authority now."
_HINT = "Write through tripstore. A transaction that is refused during a switch may be repeated."


class GateState(IntEnum):
    CLOSED = 0  #: Nobody writes: the other store is the authority.
    OPEN = 1  #: Everybody writes.
    CLOSING = 2  #: Who has written goes on to the end of his transaction; others wait.


class Gate(NamedTuple):
    """What the sequence says."""

    epoch: int
    state: GateState


def lock_class(datastore: str) -> int:
    """The first key of our advisory locks. They are of one database; within it, this keeps off those of others."""
    digest = md5(f"tripstore {datastore}".encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big", signed=True)


def read_gate(connection: Connection) -> Gate:
    epoch, state = divmod(rows(connection, f"SELECT {_STATE}")[0][0], 4)
    return Gate(epoch, GateState(state))


def set_gate(connection: Connection, gate: Gate) -> None:
    """Knows no compare-and-set: to be called only under the lock of the authority row, with what that row says."""
    value = 4 * gate.epoch + gate.state
    rows(connection, "SELECT pg_catalog.setval(%s::pg_catalog.regclass, %s)", (SEQUENCE, value))


def gate_function(datastore: str) -> Function:
    """Runs when the WHEN of the trigger holds.

    Whoever has the lock is waited for by the barrier, when he took it a moment ago as well: he may go on.
    """
    k = lock_class(datastore)
    body = f"""
DECLARE
  is_inside boolean := EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND classid = {k & 0xFFFFFFFF}::oid AND objid = {BARRIER} AND objsubid = 2
      AND pid = pg_backend_pid() AND granted);
BEGIN
  IF is_inside AND {_STATE} % 4 IN (1, 2) THEN
    RETURN NULL;
  END IF;
  PERFORM pg_advisory_xact_lock_shared({k}, {DOOR});
  PERFORM pg_advisory_xact_lock_shared({k}, {BARRIER});
  IF {_NOT_OPEN} THEN
    {refuse(GATE_SHUT, _MESSAGE, _HINT, "TG_TABLE_NAME")}
  END IF;
  RETURN NULL;
END
"""
    return Function(GATE_FUNCTION, body, SEARCH_PATH)


def gate_trigger(table: TableName, datastore: str) -> str:
    """Runs as the writer: an OID stands for the sequence, so that no right on our schema is needed."""
    k = lock_class(datastore)
    taken = f"pg_catalog.pg_try_advisory_xact_lock_shared({k}, {BARRIER})"
    return (
        f"CREATE OR REPLACE TRIGGER {quoted(GATE_TRIGGER)} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE "
        f"ON {table.sql} FOR EACH STATEMENT WHEN ({_NOT_OPEN} OR NOT {taken} OR {_NOT_OPEN}) "
        f"EXECUTE FUNCTION {in_schema(GATE_FUNCTION)}()"
    )


def row_gate(datastore: str) -> str:
    """What row capture does first."""
    return f"""\
  IF NOT pg_try_advisory_xact_lock_shared({lock_class(datastore)}, {BARRIER})
    OR ({_STATE} % 4 IN (1, 2)) IS NOT TRUE THEN
    {refuse(GATE_SHUT, _MESSAGE, _HINT, "TG_TABLE_NAME")}
  END IF;
"""
