"""Postgres, the machine's own or the wheel's: where its programs are, and how it is initialised and run."""

import base64
import hashlib
import hmac
import os
import pwd
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import psycopg2
from psycopg2.extras import RealDictCursor

from tripstore.local.postgres_programs import Flavour, PostgresPrograms, find_programs
from tripstore.local.server import NO_SETTINGS, Server, ServerPlace
from tripstore.local.template import DATA, PASSWORD, copy_folder, run, template

CONNECT_SECONDS = 5

SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
fsync = on
wal_level = logical
max_connections = 300
shared_buffers = 64MB
dynamic_shared_memory_type = mmap
logging_collector = off
timezone = 'UTC'
log_timezone = 'UTC'
shared_preload_libraries = '{libraries}'
"""


class PostgresServer(Server):
    """A Postgres server. As root it runs as `postgres`, or as `nobody`: Postgres refuses to be root."""

    engine: ClassVar[str] = "postgres"
    scheme: ClassVar[str] = "postgresql"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": does not wait for clients to leave

    def __init__(self, place: ServerPlace, flavour: Flavour = "any", settings: Mapping[str, str] = NO_SETTINGS) -> None:
        self.run_as = unprivileged()
        self.flavour: Flavour = flavour
        self._settings = settings
        self._programs = find_programs(flavour, place.folder.parent)
        super().__init__(place)

    def url_at(self, port: int) -> str:
        """Return `postgresql://postgres:…@127.0.0.1:port`."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{port}"

    def program(self, name: str) -> Path | None:
        """Return another program of this Postgres, such as pgbench; None where it is not installed."""
        path = self._programs.folder / name
        return path if path.exists() else None

    def query(self, statement: str, *values: object, database: str = "postgres") -> list[dict[str, object]]:
        """Run one statement, autocommitted, on a connection of its own and return its rows."""
        connection = psycopg2.connect(self.url, dbname=database, connect_timeout=CONNECT_SECONDS)
        try:
            connection.autocommit = True
            with connection.cursor(cursor_factory=RealDictCursor) as cursor:
                cursor.execute(statement, values or None)
                return [dict(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            connection.close()

    @property
    def version(self) -> str:
        """Return what the running server calls itself."""
        return str(self.query("SHOW server_version")[0]["server_version"])

    def _prepare(self) -> str:
        programs = self._programs
        folder = template(f"postgres-{programs.version}-2", lambda made: _build(made, programs), self.folder.parent)
        copy_folder(folder / DATA, self.place.data)
        libraries = "pg_stat_statements" if programs.has_library("pg_stat_statements") else ""
        with open(self.place.data / "postgresql.conf", "a", encoding="utf-8") as file:
            file.write(SETTINGS.format(port=self.port, libraries=libraries))
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())  # the last one counts
        if self.run_as is not None:
            give(self.place.data, self.run_as)
        return (folder / PASSWORD).read_text(encoding="utf-8")

    def _command(self) -> list[str]:
        return [str(self._programs.folder / "postgres"), "-D", str(self.place.data)]

    def _answers(self) -> bool:
        try:
            self.query("SELECT 1")
        except psycopg2.Error:
            return False
        return True


def unprivileged() -> pwd.struct_passwd | None:
    """Return the account for Postgres when we are root, else None: as ourselves."""
    if os.geteuid() != 0:
        return None
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    return accounts.get("postgres") or accounts["nobody"]


def _build(folder: Path, programs: PostgresPrograms) -> None:
    data, verifier_file, password = folder / DATA, folder / "verifier", secrets.token_hex(12)
    (folder / PASSWORD).write_text(password, encoding="utf-8")
    verifier_file.write_text(_verifier(password), encoding="utf-8")
    data.mkdir(mode=0o700)
    account = unprivileged()
    if account is not None:
        give(folder, account)
    run(
        [
            str(programs.folder / "initdb"),
            f"--pgdata={data}",
            f"--pwfile={verifier_file}",
            "--username=postgres",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ],
        account=account,
    )


def _verifier(password: str) -> str:
    """What Postgres keeps of a password (RFC 5803), of one round: more make a guess dear, and 96 random bits are none.

    Each connection of a client costs as many rounds: 4,096 are about as long as all else that it does to connect.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    client, server = (hmac.digest(salted, name, "sha256") for name in (b"Client Key", b"Server Key"))
    parts = (salt, hashlib.sha256(client).digest(), server)
    shown = [base64.b64encode(part).decode() for part in parts]
    return f"SCRAM-SHA-256$1:{shown[0]}${shown[1]}:{shown[2]}"


def give(folder: Path, account: pwd.struct_passwd) -> None:
    """Make a folder and all in it the account's."""
    run(["chown", "--recursive", f"{account.pw_uid}:{account.pw_gid}", str(folder)])
