"""`ControlDatabase`: the connection to the control database, and its migrations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.pool import NullPool

from schemaless_core.control.tables import VERSION_TABLE
from schemaless_core.errors import ControlUnavailable, InvalidServer, SchemaMissing
from schemaless_core.urls import NodeUrl

CREATE_DATABASE = "CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

MIGRATIONS = Path(__file__).parent / "migrations"

CONNECT_SECONDS = 1
ANSWER_SECONDS = 5

#: alembic keeps its state in module variables: one migration at a time in a process.
_MIGRATING = threading.Lock()


class ControlDatabase:
    """One database that knows what is true of the whole datastore. Rarely asked, so it keeps no connections."""

    def __init__(self, url: NodeUrl, datastore: str) -> None:
        self.name = f"control database on {url}"
        self._url = url
        self._database = url.database or f"{datastore}_control"
        self._engine = self._new_engine(with_database=True)

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """A transaction. Driver errors leave as `ControlUnavailable`, a missing table as `SchemaMissing`."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except sa.exc.IntegrityError:
            raise  # a lost compare-and-set; its caller knows what that means
        except sa.exc.DBAPIError as error:
            raise self._translated(error) from error

    def migrate(self) -> None:
        """Create the database and bring its tables to this version. Safe to repeat and to race."""
        self._create_database()
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        with _MIGRATING, self.begin() as connection:
            config.attributes["connection"] = connection
            self._take_migration_lock(connection)
            command.upgrade(config, "head")

    def version(self) -> str | None:
        """The revision of its tables, None before the first migration."""
        try:
            with self.begin() as connection:
                return connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
        except SchemaMissing:
            return None

    def close(self) -> None:
        self._engine.dispose()

    def _create_database(self) -> None:
        if self._url.engine == "sqlite":
            Path(self._url.folder).mkdir(parents=True, exist_ok=True)
            return
        server = self._new_engine(with_database=False)
        try:
            with server.begin() as connection:
                connection.execute(sa.text(CREATE_DATABASE.format(name=self._database.replace("`", ""))))
        except sa.exc.DBAPIError as error:
            raise self._translated(error) from error
        finally:
            server.dispose()

    def _take_migration_lock(self, connection: sa.Connection) -> None:
        """Two processes that migrate at once: the second waits, then finds nothing to do."""
        if self._url.engine == "sqlite":
            connection.execute(sa.text("BEGIN IMMEDIATE"))
        else:
            connection.execute(sa.text("SELECT GET_LOCK(:name, 60)"), {"name": f"{self._database}.migrate"})

    def _new_engine(self, *, with_database: bool) -> sa.Engine:
        url = self._url
        if url.engine == "sqlite":
            path = Path(url.folder) / "control.db"
            return sa.create_engine(
                sa.URL.create("sqlite", database=str(path)),
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
        timeouts = {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": ANSWER_SECONDS,
            "write_timeout": ANSWER_SECONDS,
        }
        return sa.create_engine(address, poolclass=NullPool, connect_args=timeouts)

    def _translated(self, error: sa.exc.DBAPIError) -> ControlUnavailable | SchemaMissing | InvalidServer:
        code = error.orig.args[0] if error.orig is not None and error.orig.args else None
        if code in (1049, 1146) or "no such table" in str(code) or "unable to open" in str(code):
            return SchemaMissing(f"The {self.name} has no tables yet.", hint="Run `tripstore schema apply`.")
        if code in (1044, 1045, 1698):
            return InvalidServer(
                self.name, f"the login is refused ({error.orig})", hint="Mend user and password in control:."
            )
        return ControlUnavailable(
            f"The {self.name} cannot be reached ({error.orig}).", hint="Cells keep flowing; repeat the change later."
        )


def newest_version() -> str | None:
    """The revision that this version of the code wants the tables to have."""
    return ScriptDirectory(str(MIGRATIONS)).get_current_head()
