"""A migration whose every process has a login of its own, with the rights that `schema grants` prints and no others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg2
import yaml

from tests.acceptance.conftest import Ran, Shell
from tests.acceptance.migrations import ROWS, Migration
from tests.layouts import COMPANY, company_database, document
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.migration.rights.roles import LoginRole
from tripstore.phase import Phase

PASSWORD = "s3cret-of-a-test"  # of servers on the loopback, which end with the test
_NUMBERS = count(1)
_LOGIN = """
DO $$ BEGIN CREATE ROLE "{login}" LOGIN PASSWORD '{password}'; EXCEPTION WHEN duplicate_object THEN NULL; END $$
"""


class LeastMigration(Migration):
    """Commands run as the role that was said last; only the tests' own preparations run as a superuser."""

    def __init__(
        self, servers: LocalServers, flavour: Flavour, stores: Mapping[str, BinlogServer], folder: Path
    ) -> None:
        folder.mkdir()
        name = f"least{next(_NUMBERS)}"
        super().__init__(Shell(folder), company_database(servers, flavour, COMPANY + ROWS))
        self._root = self.url
        self._stores = stores
        self.datastore_name = name
        self.logins = {role: f"{name}_{role}" for role in LoginRole}
        self._prepare(f"{name}_company")
        self.role: LoginRole | None = None
        self.is_legacy = True
        self._shown: list[str] = []
        self.be(None)

    @property
    def config(self) -> dict[str, Any]:
        found = super().config | {"datastore": self.datastore_name}
        found["clusters"] = {name: {"primary": self._store_url(server)} for name, server in self._stores.items()}
        found["legacy"]["postgres"] = self._postgres_url(self._login)
        if not self.is_legacy:
            del found["legacy"], found["shadow"], found["cutover"]
        return found

    def configure(self, **sections: Any) -> None:
        (self.shell.folder / "layout.yaml").write_text(yaml.safe_dump(document() | {"datastore": self.datastore_name}))
        (self.shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(self.config | sections))

    def run(self, *arguments: str, code: int = 0) -> Ran:
        ran = super().run(*arguments, code=code)
        self._shown.append(f"{arguments}: {ran.stdout}{ran.stderr}")
        return ran

    def showing_the_password(self) -> list[str]:
        """What commands and the last worker said, and files but the configuration, that have it."""
        files = [path for path in self.shell.folder.rglob("*") if path.is_file() and path.name != "tripstore.yaml"]
        left = [str(path) for path in files if PASSWORD.encode() in path.read_bytes()]
        return left + [said for said in (*self._shown, self.said) if PASSWORD in said]

    def be(self, role: LoginRole | None) -> None:
        """Whose login the configuration has from now on; None: the administrator of the servers."""
        self.role = role
        self.configure()

    def grant(self, phase: Phase, *roles: LoginRole, without: str | None = None) -> None:
        """What the administrator does before a phase; `without`: all but the statements that hold this text."""
        role, self.role = self.role, None
        self.configure()
        statements = defaultdict[str, list[str]](list)
        for each in roles or tuple(LoginRole):
            options = (
                "--login",
                self.logins[each],
                "--operator",
                self.logins[LoginRole.OPERATOR],
                "--host",
                "127.0.0.1",
            )
            ran = self.run("schema", "grants", "--role", each.value, "--phase", phase.value, *options, "--json")
            for grant in ran.document["grants"]:
                statements[grant["server"]] += grant["statements"]
        for server, found in statements.items():
            self._execute(server, [each for each in found if without is None or without not in each])
        self.be(role)

    @contextmanager
    def acting(self, role: LoginRole) -> Iterator[None]:
        before = self.role
        self.be(role)
        try:
            yield
        finally:
            self.be(before)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """As the administrator of Postgres."""
        with closing(psycopg2.connect(self._root)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    @property
    def _login(self) -> str | None:
        return None if self.role is None else self.logins[self.role]

    def _prepare(self, company: str) -> None:
        for login in (company, *self.logins.values()):
            self.query(_LOGIN.format(login=login, password=PASSWORD))
        for login in self.logins.values():
            for server in self._stores.values():
                server.query(f"CREATE USER '{login}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        for table in ("users", "trips", "billing_attempts", "trip_notes"):
            self.query(f'ALTER TABLE {table} OWNER TO "{company}"')
        for kind in ("TYPE trip_status", "DOMAIN money_amount"):
            self.query(f'ALTER {kind} OWNER TO "{company}"')
        self.query(f"REVOKE CONNECT ON DATABASE {self._root.rpartition('/')[2]} FROM PUBLIC")
        self.query(f'GRANT CONNECT ON DATABASE {self._root.rpartition("/")[2]} TO "{company}"')
        self.url = self._postgres_url(company)

    def _execute(self, server: str, statements: Sequence[str]) -> None:
        """Over one connection: there are hundreds."""
        if server == "postgres":
            self.query(";".join(statements))
            return
        for each in self._stores.values():
            with closing(each.connect()) as connection, connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)

    def _postgres_url(self, login: str | None) -> str:
        place = urlsplit(self._root)
        if login is None:
            return self._root
        return place._replace(netloc=f"{login}:{PASSWORD}@{place.hostname}:{place.port}").geturl()

    def _store_url(self, server: BinlogServer) -> str:
        place = urlsplit(server.url)
        if self._login is None:
            return server.url
        return place._replace(netloc=f"{self._login}:{PASSWORD}@{place.hostname}:{place.port}").geturl()
