"""`ControlDatabase`: the connection to the control database, and its migrations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakSet

import sqlalchemy as sa
from pymysql import err
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool

from schemaless_core.config import TlsConfig
from schemaless_core.control.tables import VERSION_TABLE
from schemaless_core.engine.logins import CERTIFICATE, CarefulConnection, unverified
from schemaless_core.errors import ControlUnavailable, InvalidServer, SchemaMissing, StoreClosed
from schemaless_core.process.forks import unforked, when_at_rest
from schemaless_core.process.private import FOLDER_OWNER_ONLY, make_private
from schemaless_core.urls import NodeUrl

CREATE_DATABASE = "CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

MIGRATIONS = Path(__file__).parent / "migrations"

ANSWER_SECONDS = 5
#: A connection that was kept is asked first; a server that takes longer is connected to anew.
PING_SECONDS = 0.25
#: DDL takes as long as the disk wants, and so does waiting for another process's migration.
MIGRATION_SECONDS = 60

#: alembic keeps its state in module variables: one migration at a time in a process.
_MIGRATING = threading.Lock()


class ControlDatabase:
    """One database that knows what is true of the whole datastore. One connection is kept, by every process."""

    def __init__(self, url: NodeUrl, datastore: str, tls: TlsConfig, connect_seconds: float) -> None:
        self.name = f"control database on {url}"
        self._url = url
        self._tls = tls
        self._connect_seconds = connect_seconds
        self._database = url.database or f"{datastore}_control"
        self._is_closed = False
        self._engine = self._new_engine(with_database=True)

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """A transaction. Driver errors leave as `ControlUnavailable`, a missing table as `SchemaMissing`."""
        if self._is_closed:
            raise StoreClosed("control database", "It closed with its datastore; Datastore.open() opens another one.")
        if self._url.engine == "sqlite" and not self._path.exists():
            raise self._no_tables()  # SQLite would create the file even for a read
        try:
            with unforked(), self._engine.begin() as connection:
                yield connection
        except sa.exc.IntegrityError:
            raise  # a lost compare-and-set; its caller knows what that means
        except sa.exc.DBAPIError as error:
            raise self._translated(error) from error

    def migrate(self) -> None:
        """Create the database and bring its tables to this version. Safe to repeat and to race."""
        from alembic import command  # a third of the time that a command takes to start; few commands migrate
        from alembic.config import Config

        if self.version() == newest_version():
            return  # a login that may create nothing may repeat this
        self._create_database()
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        try:
            with _MIGRATING, self.begin() as connection:
                config.attributes["connection"] = connection
                self._take_migration_lock(connection)
                command.upgrade(config, "head")
        finally:
            self._engine.dispose()  # the lock is the connection's

    def version(self) -> str | None:
        """The revision of its tables, None before the first migration."""
        try:
            with self.begin() as connection:
                return connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
        except SchemaMissing:
            return None

    @contextmanager
    def marked(self) -> Iterator[str]:
        """Hold a lock of a new name on its server, by which other connections tell that server; empty: it is a file.

        An address does not tell it: a server has several, and a proxy has one for several servers.
        """
        if self._url.engine == "sqlite":
            yield ""
            return
        mark = {"mark": f"tripstore control {uuid4().hex}"}
        with self.begin() as connection:
            # It waits for other servers meanwhile, longer than the session of a change may idle.
            connection.execute(sa.text("SET SESSION wait_timeout = DEFAULT"))
            connection.execute(sa.text("SELECT GET_LOCK(:mark, 0)"), mark)
            try:
                yield mark["mark"]
            finally:  # the connection is kept for the next transaction
                connection.execute(sa.text("SELECT RELEASE_LOCK(:mark)"), mark)

    def close(self) -> None:
        """Close its connection, and refuse transactions from now on. What is on its way may end."""
        self._is_closed = True
        self._engine.dispose()

    def _create_database(self) -> None:
        if self._url.engine == "sqlite":
            self._create_file()
            return
        server = self._new_engine(with_database=False)
        try:
            with server.begin() as connection:
                connection.execute(sa.text(CREATE_DATABASE.format(name=self._database)))
        except sa.exc.DBAPIError as error:
            raise self._translated(error) from error
        finally:
            server.dispose()

    def _create_file(self) -> None:
        try:
            self._path.parent.mkdir(mode=FOLDER_OWNER_ONLY, parents=True, exist_ok=True)
            make_private(self._path)
        except OSError as error:
            raise InvalidServer(
                self.name, f"its folder cannot be made ({error.strerror})", hint="Mend the path or its rights."
            ) from error

    @property
    def file(self) -> Path | None:
        """Where SQLite keeps it; None: a server does."""
        return self._path if self._url.engine == "sqlite" else None

    @property
    def _path(self) -> Path:
        return Path(self._url.folder) / "control.db"

    def _take_migration_lock(self, connection: sa.Connection) -> None:
        """Two processes that migrate at once: the second waits, then finds nothing to do."""
        if self._url.engine == "sqlite":
            connection.execute(sa.text("BEGIN IMMEDIATE"))
        else:
            _set_patience(connection.connection.dbapi_connection, MIGRATION_SECONDS + ANSWER_SECONDS)
            lock = {"name": f"{self._database}.migrate", "seconds": MIGRATION_SECONDS}
            if connection.execute(sa.text("SELECT GET_LOCK(:name, :seconds)"), lock).scalar() != 1:
                raise ControlUnavailable(
                    f"The {self.name} is being migrated by another process.", hint="Repeat the change when it is done."
                )

    def _new_engine(self, *, with_database: bool) -> sa.Engine:
        url = self._url
        if url.engine == "sqlite":
            return sa.create_engine(
                sa.URL.create("sqlite", database=str(self._path)),
                poolclass=NullPool,
                connect_args={"timeout": ANSWER_SECONDS},
            )
        address = sa.URL.create(
            "mysql+pymysql",
            username=url.user,
            password=url.password,
            host=url.host,
            port=url.port,
            database=self._database if with_database else None,
            query={"charset": "utf8mb4"},
        )
        tls = self._tls
        arguments = {
            "connect_timeout": self._connect_seconds,
            "read_timeout": self._connect_seconds,
            "write_timeout": self._connect_seconds,
            "ssl_ca": tls.ca,
            "ssl_cert": tls.cert,
            "ssl_key": tls.key,
            "ssl_verify_cert": True if tls.ca else None,
            "ssl_verify_identity": tls.verify_hostname if tls.ca else None,
            "ssl_disabled": not (tls.ca or tls.cert),
        }
        engine = sa.create_engine(
            address, poolclass=QueuePool, pool_size=1, max_overflow=-1, pool_use_lifo=True, connect_args=arguments
        )
        sa.event.listen(engine, "do_connect", _connected)
        sa.event.listen(engine, "connect", _be_patient)
        sa.event.listen(engine, "checkout", _ask_first)
        _engines.add(engine)
        return engine

    def _no_tables(self) -> SchemaMissing:
        return SchemaMissing(f"The {self.name} has no tables yet.", hint="Run `tripstore schema apply`.")

    def _translated(self, error: sa.exc.DBAPIError) -> ControlUnavailable | SchemaMissing | InvalidServer:
        code, text = _told(error)
        if code in (1049, 1146) or "no such table" in text:
            return self._no_tables()
        if (reason := unverified(error.orig)) is not None:
            return InvalidServer(self.name, f"its certificate is refused ({reason})", hint=CERTIFICATE)
        if code in (1044, 1045, 1142, 1698, 2059):
            return InvalidServer(
                self.name,
                f"the login is refused ({text})",
                hint="Mend user and password in control:.",
                lacks_right=code in (1044, 1142),
            )
        if "not a database" in text:
            return InvalidServer(self.name, f"its file holds something else ({text})", hint="Mend control:.")
        return ControlUnavailable(
            f"The {self.name} cannot be reached ({text}).", hint="Cells keep flowing; repeat the change later."
        )


_engines: WeakSet[sa.Engine] = WeakSet()


@when_at_rest
def _let_go() -> None:
    """A child would speak on its parent's connections."""
    for engine in list(_engines):
        engine.dispose()


def _connected(_dialect: object, _record: object, arguments: list[Any], named: dict[str, Any]) -> CarefulConnection:
    named["password"] = named.get("password", "").encode()  # a text goes through Latin-1
    return CarefulConnection(*arguments, **named)


def _be_patient(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
    """A server that accepts and never greets is given up soon; one that let us in may take its time."""
    _set_patience(connection, ANSWER_SECONDS)
    record.info["is_new"] = True


def _ask_first(connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:
    """The server closes what is idle, or was another one then."""
    if record.info.pop("is_new", False):
        return
    _set_patience(connection, PING_SECONDS)
    try:
        connection.ping(reconnect=False)
    except (err.Error, OSError) as error:
        raise sa.exc.DisconnectionError from error
    _set_patience(connection, ANSWER_SECONDS)


def _set_patience(connection: DBAPIConnection | None, seconds: float) -> None:
    if connection is not None:  # PyMySQL has no other way to say it
        connection._read_timeout = connection._write_timeout = seconds


def _told(error: sa.exc.DBAPIError) -> tuple[object, str]:
    """The driver's code, if it has one, and its words."""
    arguments = error.orig.args if error.orig is not None else ()
    return (arguments[0], str(arguments[-1])) if arguments else (None, type(error.orig).__name__)


def newest_version() -> str | None:
    """The revision that this version of the code wants the tables to have."""
    from alembic.script import ScriptDirectory  # as in `migrate`

    return ScriptDirectory(str(MIGRATIONS)).get_current_head()
