"""One connection to a MySQL or MariaDB server: its session settings, and a deadline that no answer outlives."""

from __future__ import annotations

import io
import math
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pymysql import err
from pymysql.constants import CLIENT, COMMAND, CR, FIELD_TYPE
from pymysql.converters import conversions, convert_datetime
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

from schemaless_core.config import DeadlineConfig, TlsConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.logins import CarefulConnection
from schemaless_core.engine.mysql.wire.answers import ROW_OVERHEAD_BYTES, AnswerColumn, WireAnswer, read_answers
from schemaless_core.errors import InvalidConfig, PacketTooLarge
from schemaless_core.urls import NodeUrl

#: The server closes a connection of ours that was silent this long.
WAIT_TIMEOUT_SECONDS = 30
#: By how much a socket's time-out may differ from what is left: setting it is a system call.
GIVE_SECONDS = 0.01
#: We do not trust one that was silent nearly as long.
IDLE_SECONDS_MAX = 25.0

SQL_MODE = "STRICT_TRANS_TABLES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO"

SESSION = f"""\
SET SESSION sql_mode = '{SQL_MODE}', time_zone = '+00:00', innodb_lock_wait_timeout = 1,
 lock_wait_timeout = 1, wait_timeout = {WAIT_TIMEOUT_SECONDS}, autocommit = 1"""
ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
#: What tells a server from others; MariaDB has no server_uuid.
IDENTITY = ("server_uuid", "server_id", "hostname", "port", "datadir")
#: What a server may be set to that decides what it can be sent, and which one it is.
SETTINGS = f"""\
SHOW SESSION VARIABLES WHERE Variable_name IN
 ('max_allowed_packet', 'log_bin', 'binlog_format', {", ".join(f"'{name}'" for name in IDENTITY)})"""
ROWS_WANTED = "SET GLOBAL binlog_format = ROW, and write it into the server's configuration."
# MySQL has no such setting: there a client that stops right after a server error holds its locks for wait_timeout.
SESSION_MARIADB = "SET SESSION idle_write_transaction_timeout = 1, idle_transaction_timeout = 2"


_END_OF_ROWS = b"\xfe\0\0\0\0"

if TYPE_CHECKING:
    from typing_extensions import Buffer


def moment_of(text: str) -> Any:
    """A DATETIME as PyMySQL reads it, in a third of the time: every cell has one."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # zero dates and the like
        return convert_datetime(text)


class DeadlineReader(io.RawIOBase):
    """The socket of a connection as its buffer reads it: each wait ends with the deadline, however answers trickle."""

    def __init__(self, connection: DeadlineConnection) -> None:
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        connection = self._connection
        if connection.arm() <= 0:  # else a server that keeps sending would keep us reading
            raise TimeoutError("the deadline has passed")
        return connection._sock.recv_into(buffer)


class DeadlineConnection(CarefulConnection):
    """A PyMySQL connection whose every answer must come before the call's deadline."""

    #: The node's name, for errors.
    node: str = ""
    last_used: float = 0.0
    #: Whether the call that has it commits something.
    is_writing: bool = False
    #: Which server it goes to, whatever the address says.
    server: str = ""
    #: A packet that is sent must be smaller.
    packet_bytes_max: float = math.inf
    #: Whether its binary log takes statements only, as which it can log no write of ours.
    logs_statements: bool = False
    #: What bodies the rows of this call may still bring. What would come behind them is left unread.
    row_bytes_left: float = math.inf
    #: Whether something was left: no call can use the connection any more.
    is_cut: bool = False
    server_version: str
    server_thread_id: tuple[int, ...]
    #: Of the call that has it; the socket is told when bytes go out, or are waited for.
    deadline: Deadline | None = None
    #: What each transaction of it begins with that takes no shard's row; empty where the server sees to it by itself.
    may_write: bytes = b""
    #: When it looked at its server's lease last; its session remembers what it saw.
    looked_at: float = -math.inf
    #: Whether its server had none then, as a replica never has.
    is_unleased: bool = False
    _armed_seconds: float = -1.0
    #: The answer that was read last.
    _result: Any
    _sock: socket.socket
    _rfile: io.BufferedReader
    #: The socket that `_rfile` reads; TLS puts another in its place.
    _read_socket: socket.socket | None = None

    def arm(self) -> float:
        """Give the socket what is left of the deadline, or a little more; return the seconds left.

        Never less: a socket that gives up before its deadline looks like a connection that broke.
        """
        if self.deadline is None:
            return math.inf
        remaining = self.deadline.remaining_seconds()
        if not 0.0 <= self._armed_seconds - remaining < 2 * GIVE_SECONDS:
            self._armed_seconds = max(remaining, 0.0) + GIVE_SECONDS
            # PyMySQL compares these before it reads or writes, and then leaves the socket alone.
            self._read_timeout = self._write_timeout = self._current_timeout = self._armed_seconds
            if self._sock is not None:
                self._sock.settimeout(self._armed_seconds)
        return remaining

    def _write_bytes(self, data: bytes) -> None:
        if self._read_socket is not self._sock:
            self._read_within_deadline()
        self.arm()
        super()._write_bytes(data)  # type: ignore[misc]  # the stubs leave it out

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        """The server would close the connection on a packet that is too large, and say no word to it."""
        if len(sql) + 1 >= self.packet_bytes_max:
            raise PacketTooLarge(self.node, len(sql) + 1, int(self.packet_bytes_max))
        super()._execute_command(command, sql)  # type: ignore[misc]  # the stubs leave it out

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> MysqlPacket:
        if self.row_bytes_left <= 0:
            self.is_cut = True
            return MysqlPacket(_END_OF_ROWS, "utf8mb4")
        wanted = AnswerColumn if packet_type is FieldDescriptorPacket else packet_type
        found: MysqlPacket = super()._read_packet(wanted)  # type: ignore[no-untyped-call]  # the stubs give it no types
        self.row_bytes_left -= max(0, len(found._data) - ROW_OVERHEAD_BYTES)  # type: ignore[attr-defined]  # the stubs leave it out
        return found

    def _read_query_result(self, unbuffered: bool = False) -> int | None:
        self._result = None
        answer = WireAnswer(self)
        if unbuffered:
            answer.init_unbuffered_query()
        else:
            answer.read()
        self._result = answer
        if answer.server_status is not None:
            self.server_status = answer.server_status
        changed: int | None = answer.affected_rows
        return changed

    def _get_server_information(self) -> None:
        self._read_within_deadline()
        super()._get_server_information()  # type: ignore[misc]  # the stubs leave it out

    def _read_within_deadline(self) -> None:
        """PyMySQL's own reader gives each wait the whole time-out anew."""
        self._rfile.close()
        self._rfile = io.BufferedReader(DeadlineReader(self))
        self._read_socket = self._sock

    @property
    def session_number(self) -> int:
        """What the server calls its session."""
        return int(self.server_thread_id[0])

    @property
    def is_new(self) -> bool:
        """Whether no call has used it yet."""
        return self.last_used == 0.0

    @property
    def is_mariadb(self) -> bool:
        return "MariaDB" in self.server_version

    @property
    def is_stale(self) -> bool:
        """Whether the server may have closed it meanwhile."""
        return not self.is_new and time.monotonic() - self.last_used > IDLE_SECONDS_MAX

    def forget(self) -> None:
        """Close the socket without a word to a server that may not be listening."""
        self._force_close()  # type: ignore[attr-defined]  # the stubs leave it out


def binary(data: bytes) -> bytes:
    """A binary string literal, for lists too long to bind value by value.

    Under our sql_mode (no NO_BACKSLASH_ESCAPES) quote and backslash are all that a literal must escape.
    """
    return b"_binary'" + quoted(data) + b"'"


def quoted(data: bytes) -> bytes:
    """What stands between the quotes of such a literal."""
    return data.replace(b"\\", b"\\\\").replace(b"'", b"''")


def literal(connection: DeadlineConnection, value: Any) -> bytes:
    """A value of a field. The driver escapes what is neither bytes nor a number, and takes ten times as long."""
    kind = type(value)
    if kind is bytes:
        return binary(value)
    if kind is int:
        return b"%d" % value
    if value is None:
        return b"NULL"
    return connection.escape(value, connection.encoders).encode("utf-8", "surrogateescape")


def bound(connection: DeadlineConnection, statement: str, values: Iterable[Any]) -> bytes:
    """A statement with its values in it."""
    return statement.encode() % tuple([literal(connection, value) for value in values])


def answers(connection: DeadlineConnection, packet: bytes) -> list[WireAnswer]:
    """Send the statements of a packet, and read the answer to each: all of them, so that the next call finds none."""
    connection._execute_command(COMMAND.COM_QUERY, packet)
    found = read_answers(connection)
    connection.server_status = found[-1].server_status or connection.server_status
    return found


def replies(connection: DeadlineConnection, packet: str, values: Iterable[Any]) -> list[tuple[int, int]]:
    """Run the statements of a packet; return the row count of each, and the id that its reply has."""
    found = answers(connection, bound(connection, packet, values))
    return [(answer.affected_rows, answer.insert_id) for answer in found]


@dataclass(frozen=True, slots=True)
class Login:
    """How connections to one server are made."""

    url: NodeUrl
    tls: TlsConfig
    deadlines: DeadlineConfig
    #: As whose a database administrator sees its sessions.
    program: str = "tripstore"
    #: What a transaction begins with on MariaDB; a promotion's own begin with nothing.
    may_write: bytes = b""


def connect(login: Login, deadline: Deadline) -> DeadlineConnection:
    """Open a connection with our session settings, within the call's deadline."""
    limit = Deadline(min(login.deadlines.connect_seconds, deadline.remaining_seconds()))
    connection = unconnected(login)
    connection.deadline = limit
    try:
        _log_in(connection, _reached(login.url, limit))
        _prepare(connection)
        connection.may_write = login.may_write if connection.is_mariadb else b""
    except BaseException:
        connection.forget()
        raise
    connection.deadline = None
    return connection


def unconnected(login: Login) -> DeadlineConnection:
    """A connection with our options, before it goes anywhere."""
    tls = login.tls
    try:
        connection = DeadlineConnection(
            host=login.url.host,
            port=login.url.port,
            user=login.url.user,
            password=login.url.password.encode(),  # a text goes through Latin-1
            charset="utf8mb4",
            # No FOUND_ROWS: the row count of an insert must be 0 for a cell that is there already.
            client_flag=CLIENT.MULTI_STATEMENTS,
            ssl_ca=tls.ca,
            ssl_cert=tls.cert,
            ssl_key=tls.key,
            ssl_verify_cert=True if tls.ca else None,
            ssl_verify_identity=tls.verify_hostname if tls.ca else None,
            # PyMySQL would try TLS by itself, unverified and at a third of the speed.
            ssl_disabled=not (tls.ca or tls.cert),
            program_name=login.program,
            conv=conversions | {FIELD_TYPE.DATETIME: moment_of},
            autocommit=None,  # ours is in SESSION
            defer_connect=True,
        )
    except OSError as error:  # a file that was there when the configuration was read, or that is no PEM
        raise InvalidConfig("tls", f"cannot be used ({error.strerror or error})", hint="Mend its PEM files.") from error
    connection.node = str(login.url)
    return connection


def _reached(url: NodeUrl, limit: Deadline) -> socket.socket:
    """Connect to the first of the host's addresses that answers; each gets its share of what is left."""
    failure: OSError = TimeoutError("timed out")
    addresses = _addresses(url)
    for tried, address in enumerate(addresses):
        seconds = limit.remaining_seconds() / (len(addresses) - tried)
        try:
            found = socket.create_connection(address[:2], max(seconds, 0.001))
        except OSError as error:
            failure = error
        else:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return found
    raise _cannot_connect(url, failure)


def _addresses(url: NodeUrl) -> list[tuple[str, int]]:
    try:
        found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _cannot_connect(url, error) from error
    return [(str(address[4][0]), int(address[4][1])) for address in found]


def _cannot_connect(url: NodeUrl, error: Exception) -> err.OperationalError:
    return err.OperationalError(CR.CR_CONN_HOST_ERROR, f"Can't connect to {url.host!r} ({error})")


def _log_in(connection: DeadlineConnection, reached: socket.socket) -> None:
    try:
        connection.connect(reached)
    except (struct.error, LookupError, ValueError) as error:
        # PyMySQL takes any bytes for a greeting, and falls over those that are none.
        raise err.InternalError(f"it greets with something else: {error}") from error


def _prepare(connection: DeadlineConnection) -> None:
    statements = [SESSION, ISOLATION]
    if connection.is_mariadb:
        statements.append(SESSION_MARIADB)
    with connection.cursor() as cursor:
        cursor.execute("; ".join([*statements, SETTINGS]))
        for _statement in statements:
            cursor.nextset()
        settings = {str(row[0]): str(row[1]) for row in cursor.fetchall()}
    connection.server = " ".join(settings.get(name, "") for name in IDENTITY)
    connection.packet_bytes_max = float(settings.get("max_allowed_packet", math.inf))
    connection.logs_statements = settings.get("log_bin") == "ON" and settings.get("binlog_format") == "STATEMENT"
