"""PgBouncer before a Postgres server: the pooler that most companies have, in either of its modes."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import psycopg2
from psycopg2.extras import RealDictCursor

from tripstore.local.errors import LocalServerError
from tripstore.local.postgres import CONNECT_SECONDS, PostgresServer, give, unprivileged
from tripstore.local.server import NO_SETTINGS, Server, ServerPlace

PoolMode = Literal["session", "transaction"]

#: What operators add when a driver sends settings that a stock pgbouncer refuses: from then on it drops them.
DROPPED = "options,extra_float_digits"

SETTINGS: Mapping[str, str] = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "scram-sha-256",
    "admin_users": "postgres",
    "ignore_startup_parameters": DROPPED,
    "max_client_conn": "300",
}


class PgBouncer(Server):
    """A pooler before a running server, with the same user, password and databases. It refuses to be root, too."""

    engine: ClassVar[str] = "pgbouncer"
    scheme: ClassVar[str] = "postgresql"

    def __init__(
        self, place: ServerPlace, upstream: PostgresServer, mode: PoolMode, settings: Mapping[str, str] = NO_SETTINGS
    ) -> None:
        self.run_as = unprivileged()
        self._upstream = upstream
        self._settings = {**SETTINGS, "pool_mode": mode, **settings}
        super().__init__(place)

    def url_at(self, port: int) -> str:
        """Return `postgresql://postgres:…@127.0.0.1:port`."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{port}"

    def query(self, statement: str) -> list[dict[str, object]]:
        """Ask the pooler itself: SHOW POOLS, RELOAD, RECONNECT …"""
        connection = psycopg2.connect(self.url, dbname="pgbouncer", connect_timeout=CONNECT_SECONDS)
        try:
            connection.autocommit = True
            with connection.cursor(cursor_factory=RealDictCursor) as cursor:
                cursor.execute(statement)
                return [dict(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            connection.close()

    def _prepare(self) -> str:
        self.place.data.mkdir(mode=0o700)
        password = self._upstream.password
        (self.place.data / "users.txt").write_text(f'"postgres" "{password}"\n', encoding="utf-8")
        self._write_settings()
        if self.run_as is not None:
            give(self.place.data, self.run_as)
        return password

    def _write_settings(self) -> None:
        own = {**self._settings, "listen_port": str(self.port), "auth_file": str(self.place.data / "users.txt")}
        lines = ["[databases]", f"* = host=127.0.0.1 port={self._upstream.port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in own.items()]
        (self.place.data / "pgbouncer.ini").write_text("\n".join([*lines, ""]), encoding="utf-8")

    def _command(self) -> list[str]:
        found = find_pgbouncer()
        if found is None:
            raise LocalServerError("PgBouncer is not on this machine.", "Run `python -m tripstore.local.install`.")
        return [str(found), str(self.place.data / "pgbouncer.ini")]

    def _answers(self) -> bool:
        try:
            self.query("SHOW VERSION")
        except psycopg2.Error:
            return False
        return True


def find_pgbouncer() -> Path | None:
    """Return the machine's pgbouncer, or None. Debian puts it where only root's PATH looks."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/local/bin")
    return Path(found) if found else None
