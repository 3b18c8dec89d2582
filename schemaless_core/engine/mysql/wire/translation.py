"""Driver errors become ours, here and nowhere else."""

from __future__ import annotations

from pymysql import err

from schemaless_core.deadline import Deadline
from schemaless_core.engine.logins import CERTIFICATE, unverified
from schemaless_core.engine.mysql.wire.connection import ROWS_WANTED
from schemaless_core.errors import (
    ConnectionBroken,
    InvalidServer,
    NodeUnavailable,
    SchemalessError,
    SchemaMissing,
)

#: The connection is gone, and it was gone before anything could take long.
_BROKEN = frozenset({0, 1053, 1927, 2006, 2013, 2014, 2055, 4031})
#: The server is there but does not serve now: too many connections, lock waits, deadlock, killed, full.
_BUSY = {
    1021: "its disk is full",
    1026: "it cannot write to its disk",
    1030: "its storage engine reports an error (is the disk full?)",
    1040: "it has too many connections",
    1114: "a table is full (is the disk full?)",
    1205: "a lock was not free in time",
    1213: "a deadlock was resolved against this call",
    1226: "the user's connection limit is reached",
    1317: "the statement was interrupted",
    1836: "it is read-only",
    1290: "it runs with an option that forbids this (is it read-only?)",
    3024: "the statement took too long",
    3100: "it could not replicate the change",
}
#: What a person can do about some of them; the others pass.
_WAYS_OUT = {
    **dict.fromkeys((1021, 1026, 1030, 1114), "Free space on the server's disk."),
    **dict.fromkeys((1040, 1226), "Raise the server's max_connections, or lower pool.size and pool.overflow."),
    **dict.fromkeys((1290, 1836), "A primary must take writes: SET GLOBAL read_only = 0, or name the new primary."),
}
_ADDRESS = "Check its address, and that a MySQL or MariaDB runs there."
_REPEAT = "Repeat the call; when it stays so, look at the server's load and log."
#: The server answers, and takes no writes: reads go on.
_NO_WRITES = frozenset({1021, 1026, 1030, 1114, 1290, 1836, 3100})
_READ_ONLY = frozenset({1290, 1836})
#: These say something of one lock or statement, not of the server.
_ONE_LOCK = frozenset({1205, 1213, 1317, 3024})
_REFUSED = {
    1044: "the user lacks a privilege",
    1045: "the password or user is wrong",
    1142: "the user lacks a privilege",
    1227: "the user lacks a privilege",
    1251: "it wants another way of logging in",
    1698: "the user may not log in with a password",
    2059: "it wants another way of logging in",
}
_WITHOUT_RIGHT = frozenset({1044, 1142, 1227})
_MISSING = frozenset({1049, 1146})
#: The log takes statements only, and what was to be logged goes by rows.
_STATEMENTS_ONLY = 1665
_DEADLOCK = 1213
_LOCK_WAIT = 1205


def translate(error: Exception, node: str, deadline: Deadline | None) -> SchemalessError:
    """Return our error for a driver's; the caller raises it with the driver's as its cause."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    text = str(error.args[-1]) if error.args else type(error).__name__
    if isinstance(error, err.InterfaceError | OSError) or code in _BROKEN:
        if deadline is not None and deadline.is_over:
            return NodeUnavailable(node, "it did not answer within the deadline", hint=_REPEAT, is_timeout=True)
        return ConnectionBroken(node, f"the connection broke ({text})", hint=_REPEAT)
    if (reason := unverified(error)) is not None:
        return InvalidServer(node, f"its certificate is refused ({reason})", hint=CERTIFICATE)
    if code == 2003:
        return NodeUnavailable(node, f"no connection ({text})", hint=_ADDRESS)
    if code in _BUSY:
        hint = _WAYS_OUT.get(code, _REPEAT)
        trips, is_of_writes = code not in _ONE_LOCK, code in _NO_WRITES
        reason = f"{_BUSY[code]} ({text})"
        is_read_only = code in _READ_ONLY
        return NodeUnavailable(
            node, reason, hint=hint, trips_breaker=trips, is_of_writes=is_of_writes, is_read_only=is_read_only
        )
    if code in _REFUSED:
        return InvalidServer(
            node,
            f"{_REFUSED[code]} ({text})",
            hint="Mend user and password in the URL, or the user's grants.",
            lacks_right=code in _WITHOUT_RIGHT,
        )
    if code == _STATEMENTS_ONLY:
        return InvalidServer(node, "its binlog_format is STATEMENT: it can log no write", hint=ROWS_WANTED)
    if code in _MISSING:
        return SchemaMissing(f"{node} lacks a table ({text}).", hint="Run `tripstore schema apply`.")
    if isinstance(error, err.OperationalError | err.InternalError):
        # What a server says of one statement is an answer, whatever it says: it is there.
        return NodeUnavailable(node, f"{code}: {text}", hint=_REPEAT, trips_breaker=False)
    return SchemalessError(f"{node} refused a statement ({code}: {text}).", hint="This is a bug of ours; report it.")


def is_missing(error: err.Error) -> bool:
    """Whether a table, or its whole database, is not there."""
    return bool(error.args) and error.args[0] in _MISSING


def is_deadlock(error: err.Error) -> bool:
    """Whether the transaction was rolled back so that another could go on."""
    return bool(error.args) and error.args[0] == _DEADLOCK


def is_lock_wait(error: err.Error) -> bool:
    """Whether a lock was not free in time; the transaction is still open."""
    return bool(error.args) and error.args[0] == _LOCK_WAIT


def translate_connect(error: Exception, node: str, deadline: Deadline) -> SchemalessError:
    """The same for opening a connection, where a broken one means that no server, or none of MySQL, answers."""
    ours = translate(error, node, deadline)
    if isinstance(ours, NodeUnavailable) and ours.is_timeout:
        return ours
    if isinstance(ours, ConnectionBroken | NodeUnavailable) and not isinstance(error, err.OperationalError):
        reason = f"what answers there does not speak the MySQL protocol ({error})"
        return InvalidServer(node, reason, hint="Name the port of a MySQL or MariaDB server.")
    if isinstance(error, err.OperationalError) and error.args[0] in _BROKEN:
        return NodeUnavailable(node, f"no server let us in there ({error.args[-1]})", hint=_ADDRESS)
    return ours
