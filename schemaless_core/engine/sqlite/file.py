"""The file of a cluster: connections, deadlines and transactions. A write takes the file's one write lock at once."""

from __future__ import annotations

import re
import sqlite3
import threading
import weakref
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from schemaless_core.cell.sharding import bucket_of, cell_hash
from schemaless_core.deadline import Deadline
from schemaless_core.engine.bodies import BodyForms
from schemaless_core.engine.dictionaries import PREFIX
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.engine.sqlite import documents
from schemaless_core.errors import InvalidServer, NodeUnavailable, SchemalessError, SchemaMissing
from schemaless_core.process.forks import unforked, when_at_rest
from schemaless_core.process.private import FOLDER_OWNER_ONLY, make_private

P = ParamSpec("P")
T = TypeVar("T")

_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


class SQLiteFile:
    """One database file. Keeps idle connections; none is open while the process forks."""

    def __init__(self, node: str, path: Path, columns: Collection[str] = (), level: int = 1) -> None:
        self._node = node
        #: How the file keeps bodies: statements read `plain(body)`, and store `kept(column_name, body)`.
        self.bodies = BodyForms(node, columns, level, self._dictionaries)
        self._failed = threading.local()
        self.path = self._path = path
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        _ALL.add(self)

    def read(self, deadline: Deadline) -> AbstractContextManager[sqlite3.Connection]:
        """A snapshot: everything read inside belongs together."""
        return _Transaction(self, "BEGIN", deadline)

    def write(self, deadline: Deadline) -> AbstractContextManager[sqlite3.Connection]:
        """The only writer of the file until the end of the block."""
        return _Transaction(self, "BEGIN IMMEDIATE", deadline)

    def create(self) -> None:
        """Create folder, file and tables. Safe to repeat."""
        try:
            self._path.parent.mkdir(mode=FOLDER_OWNER_ONLY, parents=True, exist_ok=True)
            make_private(self._path)
        except OSError as error:
            reason = f"its folder cannot be made ({error.strerror})"
            raise InvalidServer(self._node, reason, hint="Mend the path or its rights.") from error
        with unforked():
            connection = self._connect()
            try:
                connection.executescript(script())
            except sqlite3.Error as error:
                raise self.translated(error) from error
            finally:
                connection.close()

    def tables_missing(self, deadline: Deadline) -> list[str]:
        """The tables that a file of an earlier version lacks; none when it has none at all."""
        with self.read(deadline) as connection:
            there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        wanted = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", script())
        return [name for name in wanted if name not in there] if there else []

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def close(self) -> None:
        with unforked():
            with self._lock:
                idle, self._idle = self._idle, []
            for connection in idle:
                connection.close()

    def taken(self) -> sqlite3.Connection:
        """A connection that is in no transaction."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        if not self._path.exists():
            raise SchemaMissing(f"{self._node} has no file yet.", hint="Run `tripstore schema apply`.")
        return self._connect()

    def give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            self._idle.append(connection)

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # I1: a commit is on the disk
        except sqlite3.Error as error:
            raise self.translated(error) from error
        connection.create_function("cell_hash", 4, _hash_text, deterministic=True)
        connection.create_function("bucket_of", 1, bucket_of, deterministic=True)
        connection.create_function("plain", 1, self._told(self.bodies.plain))
        connection.create_function("kept", 2, self._told(self.bodies.kept_body))
        connection.create_aggregate("sum_text", 1, _SumText)  # type: ignore[arg-type]  # it takes text
        return connection

    def _told(self, function: Callable[P, T]) -> Callable[P, T]:
        """A function of statements whose own error the caller gets: the driver says only that there was one."""

        def call(*values: P.args, **named: P.kwargs) -> T:
            try:
                return function(*values, **named)
            except SchemalessError as error:
                self._failed.error = error
                raise

        return call

    def _dictionaries(self, deadline: Deadline) -> list[StoredDocument]:
        """On a connection of its own: it is asked in the midst of a statement."""
        with self.read(deadline) as connection:
            return documents.find(connection, PREFIX)

    def translated(self, error: sqlite3.Error) -> SchemalessError:
        """What the driver raised, as an error of ours."""
        text = str(error)
        if "user-defined function" in text and (failed := self._failed.__dict__.pop("error", None)) is not None:
            found: SchemalessError = failed
            return found
        if "no such table" in text:
            return SchemaMissing(f"{self._node} has no tables yet.", hint="Run `tripstore schema apply`.")
        if "locked" in text or "busy" in text:
            reason = "another writer held the file past the deadline"
            return NodeUnavailable(self._node, reason, hint="Repeat the call.", trips_breaker=False)
        if "not a database" in text:
            return InvalidServer(self._node, f"its file holds something else ({text})", hint="Name another folder.")
        is_of_writes = "full" in text or "readonly" in text
        hint = "Check the folder, its rights and its disk."
        return NodeUnavailable(self._node, text, hint=hint, is_of_writes=is_of_writes)


class _Transaction:
    """One transaction of one thread.

    No generator: what a signal handler raises between the generator's `yield` and the caller's block would leave the
    transaction open, and with it the file's write lock. What is cut short before its own end is closed with its last
    reference: a connection and its cache of statements refer to each other, so that only the collector would find it.
    """

    _connection: sqlite3.Connection | None = None

    def __init__(self, file: SQLiteFile, begin: str, deadline: Deadline) -> None:
        self._file = file
        self._begin = begin
        self._deadline = deadline
        self._block = unforked()

    def __enter__(self) -> sqlite3.Connection:
        self._block.__enter__()
        try:
            self._connection = connection = self._file.taken()
            milliseconds = max(int(self._deadline.remaining_seconds() * 1000), 1)
            connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
            connection.execute(self._begin)
            return connection
        except BaseException as failure:
            self._give_up(failure)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if failure is not None:
            self._give_up(failure)
            return
        connection = self._connection
        assert connection is not None
        try:
            connection.execute("COMMIT")
        except BaseException as refused:
            self._give_up(refused)
            raise
        self._connection = None
        self._file.give_back(connection)
        self._block.__exit__()

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _give_up(self, failure: BaseException) -> None:
        """Roll back by closing the connection. What the driver raised leaves as an error of ours."""
        self.__del__()
        self._block.__exit__()
        if isinstance(failure, sqlite3.Error):
            raise self._file.translated(failure) from failure


def script() -> str:
    return files("schemaless_core.engine.sqlite").joinpath("sql", "store.sql").read_text()


class _SumText:
    """Adds numbers that SQLite's integers cannot hold; they travel as text."""

    def __init__(self) -> None:
        self._total = 0

    def step(self, value: str, /) -> None:
        self._total += int(value)

    def finalize(self) -> str:
        return str(self._total)


def _hash_text(row_key: bytes, column_name: bytes, ref_key: int, body: bytes) -> str:
    return str(cell_hash(row_key, column_name, ref_key, body))


def to_microseconds(moment: datetime) -> int:
    return (moment - _EPOCH_START) // timedelta(microseconds=1)


def from_microseconds(value: int) -> datetime:
    return _EPOCH_START + timedelta(microseconds=value)


_ALL: weakref.WeakSet[SQLiteFile] = weakref.WeakSet()


@when_at_rest
def _close_all() -> None:
    for file in list(_ALL):
        file.close()
