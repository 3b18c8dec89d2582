"""The gate: whether the mapped tables may be written now. Sequences are outside MVCC, so that every snapshot knows.

The sequence holds 4·epoch + state. A trigger on every partition looks at it before each statement, takes the shared
lock, and looks again; its function runs only when the store is not plainly open. A writer that has the lock is inside
and goes on to the end of its transaction, while the gate is closing as well: it is shut behind the barrier alone, which
waits for the writer. Others wait at the door while a hand-over waits for the barrier or holds it. Row capture asks too,
without waiting: logical apply fires no triggers for statements, and a partition made later has none.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import md5
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.capture.functions.function import SEARCH_PATH, Function, refuse
from tripstore.backends.postgres.capture.names import (
    ENTER_FUNCTION,
    GATE_FUNCTION,
    GATE_TRIGGER,
    WARNS_FUNCTION,
    in_schema,
    literal,
)
from tripstore.backends.postgres.capture.timeline import IS_FOREIGN, IS_FOREIGN_TO_WRITERS
from tripstore.backends.postgres.layout.layout import TableName, quoted
from tripstore.backends.postgres.names import ORIGIN, SCHEMA
from tripstore.backends.postgres.sqlstates import GATE_SHUT
from tripstore.backends.postgres.wire.connections import rows

SEQUENCE = f"{SCHEMA}.gate"
#: The second key of the advisory locks; the first is the class of the datastore.
BARRIER, DOOR, DDL = 1, 2, 3

#: What the sequence says.
SAYS = f"pg_catalog.pg_sequence_last_value('{SEQUENCE}'::pg_catalog.regclass)"
#: What counts of that: of a Postgres that was promoted, nothing before it is accepted. No state of any epoch is this.
FOREIGN = -2
GATE = f"(CASE WHEN {IS_FOREIGN} THEN {FOREIGN} ELSE {SAYS} END)"
#: The same for writers: row capture asks for each row, a put once.
WRITERS_GATE = f"(CASE WHEN {IS_FOREIGN_TO_WRITERS} THEN {FOREIGN} ELSE {SAYS} END)"
#: The same for readers. What a standby answers may be old, and its gate is as old.
STANDBY = -1
READ_GATE = f"CASE WHEN pg_catalog.pg_is_in_recovery() THEN {STANDBY} ELSE {GATE} END"
#: Of a statement. Whether this Postgres is accepted its rows look at: the trigger of an earlier version is as good.
_NOT_OPEN = f"{SAYS} % 4 IS DISTINCT FROM 1"
#: What it says at an epoch e, as 4·e + offset: open; closing at e + 1; shut at e + 1.
OPEN, CLOSING, SHUT = 1, 6, 4
#: In a function of ours, which runs as its owner: whether the session is ours, whatever it says of itself.
IS_OURS = "pg_has_role(session_user, current_user, 'MEMBER')"
#: The same with what was said, in row capture: whether this is the reverse mirror.
IS_MIRROR = f"said = 'reverse' AND {IS_OURS}"
_WARNING = "Writes to % are not seen by anybody: this database is not the authority now."
_MESSAGE = "Writes to % are shut off: this database is not the authority now."
_HINT = "Write through tripstore. A transaction that is refused during a switch may be repeated."


class GateState(IntEnum):
    CLOSED = 0  #: No writes: the other store is the authority.
    OPEN = 1  #: All may write.
    CLOSING = 2  #: As open, until a hand-over has the barrier and shuts it.


class GateReading(NamedTuple):
    """What the sequence says."""

    epoch: int
    state: GateState


def lock_class(datastore: str) -> int:
    """The first key of our advisory locks. They are of one database; within it, this keeps off those of others."""
    digest = md5(f"tripstore {datastore}".encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big", signed=True)


def one_at_a_time(datastore: str) -> str:
    """Two runs at once would replace one function at the same time, which Postgres refuses."""
    return f"SELECT pg_catalog.pg_advisory_xact_lock({lock_class(datastore)}, {DDL})"


def read_gate(connection: Connection) -> GateReading:
    epoch, state = divmod(rows(connection, f"SELECT {SAYS}")[0][0], 4)
    return GateReading(epoch, GateState(state))


def set_gate(connection: Connection, gate: GateReading) -> None:
    """Knows no compare-and-set: to be called only under the lock of the authority row, with what that row says."""
    value = 4 * gate.epoch + gate.state
    rows(connection, "SELECT pg_catalog.setval(%s::pg_catalog.regclass, %s)", (SEQUENCE, value))


def gate_function(datastore: str) -> Function:
    """Runs when the WHEN of the trigger holds.

    First the lock, then the look: the barrier waits for every writer that has the lock, so it may go on while the gate
    is closing. A writer that has it already passes by the door: there it would wait for the barrier, and the barrier
    for it. The reverse mirror writes behind a shut gate, but not behind the barrier.
    """
    k = lock_class(datastore)
    body = f"""
BEGIN
  IF current_setting('{ORIGIN}', true) = 'reverse' AND {IS_OURS} THEN
    PERFORM pg_advisory_xact_lock_shared({k}, {BARRIER});
    RETURN NULL;
  END IF;
  IF NOT {_is_inside(k)} THEN
    PERFORM pg_advisory_xact_lock_shared({k}, {DOOR});
    PERFORM pg_advisory_xact_lock_shared({k}, {BARRIER});
  END IF;
  IF {GATE} % 4 IN (1, 2) THEN
    RETURN NULL;
  END IF;
  IF {_is_warned(f"current_setting('{ORIGIN}', true)")}
    AND (TG_TABLE_SCHEMA <> '{SCHEMA}' OR pg_trigger_depth() > 1) THEN
    RAISE WARNING {literal(_WARNING)}, TG_TABLE_NAME USING ERRCODE = '{GATE_SHUT}', HINT = {literal(_HINT)};
    RETURN NULL;
  END IF;
  {refuse(GATE_SHUT, _MESSAGE, _HINT, "TG_TABLE_NAME")}
END
"""
    return Function(GATE_FUNCTION, body, SEARCH_PATH)


def gate_functions(datastore: str, *, warns: bool = False) -> list[Function]:
    """All that the gate is made of, beside its triggers.

    `warns`: after a switch, a direct write of the company's tables is warned and not refused; it goes nowhere else.
    """
    answer = Function(WARNS_FUNCTION, f"\nBEGIN\n  RETURN {str(warns).lower()};\nEND\n", SEARCH_PATH, returns="boolean")
    return [answer, gate_function(datastore), enter_function(datastore)]


def enter_function(datastore: str) -> Function:
    """Runs when a put does not plainly enter at its epoch: a writer with the lock goes on while the gate is closing.

    A writer without it waits at the door as long as its epoch is not over. One that has waited there for too long is
    refused like one that comes too late: it reads which backend is the authority now.
    """
    k = lock_class(datastore)
    body = f"""
DECLARE
  gate bigint := {GATE};
BEGIN
  IF {_is_inside(k)} AND gate IN ({_values("epoch", OPEN, CLOSING)}) THEN
    RETURN true;
  END IF;
  IF gate IN ({_values("epoch", OPEN, CLOSING, SHUT)}) THEN
    BEGIN
      PERFORM pg_advisory_xact_lock_shared({k}, {DOOR});
      PERFORM pg_advisory_xact_lock_shared({k}, {BARRIER});
      IF {GATE} IN ({_values("epoch", OPEN, CLOSING)}) THEN
        RETURN true;
      END IF;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END IF;
  {refuse(GATE_SHUT, "This database is not the authority at epoch %.", _HINT, "epoch")}
END
"""
    return Function(ENTER_FUNCTION, body, SEARCH_PATH, returns="boolean", arguments="epoch bigint")


def admission(datastore: str) -> str:
    """What a put at epoch $1 begins with. First the lock, then the look: the gate cannot be shut in between."""
    enter = f"{in_schema(ENTER_FUNCTION)}($1)"
    return (
        f"SELECT CASE WHEN NOT {_taken(lock_class(datastore))} THEN {enter} "
        f"WHEN {WRITERS_GATE} IS DISTINCT FROM {_values('$1', OPEN)} THEN {enter} END"
    )


def mirror_admission(datastore: str) -> str:
    """What a put of the reverse mirror begins with: it sets its origin, and waits for the barrier."""
    return (
        f"SELECT pg_catalog.set_config('{ORIGIN}', 'reverse', true), "
        f"pg_catalog.pg_advisory_xact_lock_shared({lock_class(datastore)}, {BARRIER})"
    )


def mirror_look() -> str:
    """What comes after that: refused unless the gate is shut at epoch $1. Under the lock it stays as it is."""
    return f"SELECT CASE WHEN {GATE} IS DISTINCT FROM 4 * $1 THEN {in_schema(ENTER_FUNCTION)}($1) END"


def counts(value: int | None, epoch: int) -> bool:
    """Whether what an owner read before the gate had this value is the authority's answer."""
    return value in (4 * epoch + OPEN, 4 * epoch + CLOSING)


def gate_trigger(table: TableName, datastore: str) -> str:
    """Runs as the writer: an OID stands for the sequence, so that no right on our schema is needed."""
    return (
        f"CREATE OR REPLACE TRIGGER {quoted(GATE_TRIGGER)} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE "
        f"ON {table.sql} FOR EACH STATEMENT WHEN ({_NOT_OPEN} OR NOT {_taken(lock_class(datastore))} OR {_NOT_OPEN}) "
        f"EXECUTE FUNCTION {in_schema(GATE_FUNCTION)}()"
    )


def row_gate(datastore: str) -> str:
    """What row capture does first. `is_warned` afterwards: this change is not to be mirrored."""
    taken = f"pg_try_advisory_xact_lock_shared({lock_class(datastore)}, {BARRIER})"
    return f"""\
  IF NOT {taken} OR ({WRITERS_GATE} % 4 IN (1, 2)) IS NOT TRUE AND ({IS_MIRROR}) IS NOT TRUE THEN
    is_warned := {_is_warned("said", WRITERS_GATE)} AND {taken};
    IF is_warned IS NOT TRUE THEN
      {refuse(GATE_SHUT, _MESSAGE, _HINT, "TG_TABLE_NAME")}
    END IF;
  END IF;
"""


def _is_warned(said: str, gate: str = GATE) -> str:
    """Whether the gate is shut for good, for a session that claims no origin, and it is only warned.

    In the middle of a hand-over, whose epochs are odd, nothing is decided yet: the write may have to be mirrored.
    """
    return f"{gate} % 8 = 0 AND coalesce({said}, '') = '' AND {in_schema(WARNS_FUNCTION)}()"


def _is_inside(k: int) -> str:
    """Whether this transaction holds the lock."""
    return f"""EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND classid = {k & 0xFFFFFFFF}::oid AND objid = {BARRIER} AND objsubid = 2
      AND pid = pg_backend_pid() AND granted)"""


def _taken(k: int) -> str:
    return f"pg_catalog.pg_try_advisory_xact_lock_shared({k}, {BARRIER})"


def _values(epoch: str, *offsets: int) -> str:
    return ", ".join(f"4 * {epoch} + {offset}" for offset in offsets)
