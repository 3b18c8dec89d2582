"""Replication by GTID in the words of each vendor: what a server follows, how far it is, and following another."""

from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple

from pymysql import err
from pymysql.cursors import DictCursor

from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.session_list import sessions_on
from schemaless_core.engine.primacy import ReplicationLogin
from schemaless_core.errors import InvalidServer, NodeUnavailable

logger = logging.getLogger(__name__)

STATUS = "SHOW REPLICA STATUS"
CUT_OFF = "STOP REPLICA IO_THREAD"
STOP = "STOP REPLICA"
START = "START REPLICA"
FORGET = "RESET REPLICA ALL"
#: Whose sessions threads of replication are, and what one says that applies nothing.
APPLIER, IDLE = "system user", "Waiting for an event"
#: After so long a server has noted what it has executed.
NOTED_SECONDS, LOOK_SECONDS = 0.5, 0.05
#: What the thread that applies says when nothing is left of what was fetched.
ALL_APPLIED = "has read all relay log"
#: What it is given to wake up: on a machine whose cores are taken a thread may be late.
WAKING_SECONDS = 2.0


class Following(NamedTuple):
    """What a replica says of itself, one vocabulary for both vendors."""

    host: str
    port: int
    fetches: bool
    applies: bool
    state: str
    error: str
    #: The changes that it has fetched, as GTIDs.
    fetched: str
    #: Whether its source was gone before it had sent the whole of a change.
    has_part_of_a_change: bool
    seconds_behind: int | None

    @property
    def has_applied_all_that_it_read(self) -> bool:
        return ALL_APPLIED in self.state


def following(connection: DeadlineConnection) -> Following | None:
    """What a server follows; None: no other."""
    with connection.cursor(DictCursor) as cursor:
        cursor.execute(STATUS)
        raw: dict[str, Any] | None = cursor.fetchone()
    if raw is None:
        return None

    def said(*names: str) -> Any:
        return next((raw[name] for name in names if raw.get(name) not in (None, "")), None)

    behind = said("Seconds_Behind_Source", "Seconds_Behind_Master")
    read = [said("Source_Log_File", "Master_Log_File"), said("Read_Source_Log_Pos", "Read_Master_Log_Pos")]
    done = [said("Relay_Source_Log_File", "Relay_Master_Log_File"), said("Exec_Source_Log_Pos", "Exec_Master_Log_Pos")]
    state = str(said("Replica_SQL_Running_State", "Slave_SQL_Running_State") or "")
    return Following(
        host=str(said("Source_Host", "Master_Host") or ""),
        port=int(said("Source_Port", "Master_Port") or 0),
        fetches=said("Replica_IO_Running", "Slave_IO_Running") == "Yes",
        applies=said("Replica_SQL_Running", "Slave_SQL_Running") == "Yes",
        state=state,
        error=str(said("Last_SQL_Error", "Last_Error", "Last_IO_Error") or ""),
        fetched=str(said("Retrieved_Gtid_Set", "Gtid_IO_Pos") or ""),
        has_part_of_a_change=ALL_APPLIED in state and read != done,
        seconds_behind=None if behind is None else int(behind),
    )


def position(connection: DeadlineConnection) -> str:
    """How far a server's changes go. Without GTIDs there is nothing that could be compared."""
    variable = "gtid_current_pos" if connection.is_mariadb else "gtid_executed"
    found = _one(connection, f"SELECT @@GLOBAL.{variable}").replace("\n", "")
    if not found:
        hint = "Turn on the binary log, and on MySQL gtid_mode = ON and enforce_gtid_consistency = ON."
        raise InvalidServer(connection.node, "it says nothing of how far its changes go (GTIDs)", hint=hint)
    return found


def has(connection: DeadlineConnection, wanted: str) -> bool:
    """Whether a server has all changes up to a position."""
    if connection.is_mariadb:
        return _is_within(wanted, position(connection))
    return _one(connection, "SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", wanted) == "1"


def has_applied(connection: DeadlineConnection, its: Following) -> bool:
    """Whether all is applied that was fetched."""
    if not its.applies:
        reason = f"it does not apply what it has fetched ({its.error or 'its SQL thread is stopped'})"
        raise NodeUnavailable(connection.node, reason, hint="Mend its replication, or give it up: --dead.")
    if not its.fetched:
        return its.has_applied_all_that_it_read  # of a server that it has followed since a moment, perhaps nothing
    if has(connection, its.fetched):
        return True
    if not (connection.is_mariadb and its.has_applied_all_that_it_read):
        return False
    # MariaDB names a change as soon as its first part is there; one whose end never came is applied by no server. A
    # thread that is about to wake up for the change says the same of itself, for a moment.
    _one(connection, "SELECT MASTER_GTID_WAIT(%s, %s)", its.fetched, WAKING_SECONDS)
    now = following(connection)
    is_idle = now is not None and now.applies and now.has_applied_all_that_it_read
    return has(connection, its.fetched) or is_idle


def stop(connection: DeadlineConnection) -> None:
    """Stop following. What was fetched of a change whose end never came is no change: another source sends it whole.

    MySQL would wait up to a minute for that end.
    """
    with connection.cursor() as cursor:
        cursor.execute(CUT_OFF)
        its = following(connection)
        if its is not None and its.has_part_of_a_change and not connection.is_mariadb:
            _end_waiting(connection)
        cursor.execute(STOP)


def _end_waiting(connection: DeadlineConnection) -> None:
    """Kill the thread that waits for the end of a change, as far as the login may.

    What a server has executed it notes now and then: only what lasts is a part of a change.
    """
    first_seen = time.monotonic()
    try:
        while (its := following(connection)) is not None and its.has_part_of_a_change:
            waiting, others = _appliers(connection)
            waited = time.monotonic() - first_seen
            if not others and waited > NOTED_SECONDS:
                with connection.cursor() as cursor:
                    for number in waiting:
                        cursor.execute(f"KILL {number}")
                return
            if waited > WAKING_SECONDS:
                return
            time.sleep(LOOK_SECONDS)  # the server says nothing by itself
    except err.MySQLError as error:
        extra = {"event": "promotion.waits", "server": connection.node, "reason": str(error)}
        logger.warning("a replica waits up to a minute for the end of a change", extra=extra)


def _appliers(connection: DeadlineConnection) -> tuple[list[int], list[int]]:
    """The session that reads what was fetched and has read all, and those that apply something."""
    states = {session.number: session.state for session in sessions_on(connection) if session.user == APPLIER}
    waiting = [number for number, state in states.items() if ALL_APPLIED in state]
    return waiting, [number for number, state in states.items() if ALL_APPLIED not in state and IDLE not in state]


def follow(connection: DeadlineConnection, host: str, port: int, login: ReplicationLogin) -> None:
    its = following(connection)
    if its is not None and (its.host, its.port) == (host, port) and its.fetches and its.applies:
        return
    stop(connection)
    with connection.cursor() as cursor:
        if connection.is_mariadb:
            cursor.execute("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_current_pos")
            cursor.execute(
                "CHANGE MASTER TO MASTER_HOST = %s, MASTER_PORT = %s, MASTER_USER = %s, MASTER_PASSWORD = %s,"
                " MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1",
                (host, port, *login),
            )
        else:
            cursor.execute(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = %s, SOURCE_PORT = %s, SOURCE_USER = %s,"
                " SOURCE_PASSWORD = %s, SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1",
                (host, port, *login),
            )
        cursor.execute(START)


def follow_none(connection: DeadlineConnection) -> None:
    """What was fetched and not applied is forgotten."""
    if following(connection) is None:
        return
    stop(connection)
    with connection.cursor() as cursor:
        cursor.execute(FORGET)


def keep(connection: DeadlineConnection, *, are_refused: bool) -> None:
    """Have MySQL begin read-only when it starts anew, whatever its file says; or as its file says.

    That it takes writes is kept nowhere: it would stand above what an operator writes into the file of a dead primary.
    """
    if connection.is_mariadb:
        return
    try:
        with connection.cursor() as cursor:
            if are_refused:
                cursor.execute("SET PERSIST read_only = 1, super_read_only = 1")
            else:
                for variable in ("super_read_only", "read_only"):
                    cursor.execute(f"RESET PERSIST IF EXISTS {variable}")
    except err.MySQLError as error:  # no right to, or no file to write to: it leads, or follows, all the same
        extra = {"event": "promotion.not_kept", "server": connection.node, "reason": str(error)}
        logger.warning("a server begins anew as its file says, or as it was kept before", extra=extra)


def refuse_writes(connection: DeadlineConnection, *, are_refused: bool) -> None:
    """Also those of superusers, where a server can."""
    variable = "read_only" if connection.is_mariadb or not are_refused else "super_read_only"
    with connection.cursor() as cursor:
        cursor.execute(f"SET GLOBAL {variable} = {int(are_refused)}")


def let_superusers_write(connection: DeadlineConnection) -> None:
    """On a server that may be read-only: MySQL would refuse its promotion, too."""
    if not connection.is_mariadb:
        with connection.cursor() as cursor:
            cursor.execute("SET GLOBAL super_read_only = 0")


def _is_within(wanted: str, there: str) -> bool:
    """MariaDB's positions: for each domain the number of its last change."""
    has = _domains(there)
    return all(number <= has.get(domain, 0) for domain, number in _domains(wanted).items())


def _domains(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for gtid in filter(None, text.replace(" ", "").split(",")):
        domain, _server, number = gtid.split("-")
        found[domain] = max(int(number), found.get(domain, 0))
    return found


def _one(connection: DeadlineConnection, statement: str, *values: object) -> str:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        (found,) = cursor.fetchone() or ("",)
        return str("" if found is None else found)
