"""A migration to be driven by commands: a company's database, a datastore in folders, and a configuration of both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg2
import pytest
import yaml

import tripstore
from schemaless_core import Datastore
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.deadline import Deadline
from tests.acceptance.conftest import Ran, Shell
from tests.chaos.actors import wait_until
from tests.databases import create_database, kept
from tests.layouts import company_database, document
from tests.stores import PATIENT
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.unit import UNIT
from tripstore.store import TripStore

ROWS = """
INSERT INTO users (id, user_uuid) SELECT n, gen_random_uuid() FROM generate_series(1, 3) n;
INSERT INTO trips (driver_id) SELECT 1 + n % 3 FROM generate_series(1, 5) n;
"""
#: Numbers that a test reaches.
CUTOVER = {
    "comparisons_min": 2,
    "mismatch_rate_max": 0.9,
    "not_compared_share_max": 0.9,
    "rehearsed_cells_min": 1,
}
SHARDS = 2
_NUMBERS = count(1)
_TEMPLATE: list[Migration] = []


class Migration:
    """Capture stands, all shards are there, the phase is off."""

    def __init__(self, shell: Shell, url: str) -> None:
        self.shell = shell
        self.url = url
        #: What the last worker said on stderr.
        self.said = ""

    @property
    def config(self) -> dict[str, Any]:
        return {
            "datastore": "trips",
            "shards": SHARDS,
            "clusters": {"a": {"primary": "sqlite:///data/a"}},
            "deadlines": PATIENT,
            "legacy": {"postgres": self.url, "layout": "layout.yaml"},
            "triggers": {"lease_seconds": 0.9, "checkpoint_seconds": 0.05},
            "shadow": {"share": 1.0},
            "cutover": CUTOVER,
        }

    def configure(self, **sections: Any) -> None:
        """Write the configuration; a section takes the place of another."""
        (self.shell.folder / "layout.yaml").write_text(yaml.safe_dump(document()))
        (self.shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(self.config | sections))

    def run(self, *arguments: str, code: int = 0) -> Ran:
        """A command in this process, with the exit code that it must have."""
        ran = self.shell.call(*arguments)
        assert ran.code == code, ran.stdout + ran.stderr
        return ran

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """A service's own SQL."""
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def connection(self, *, autocommit: bool = True) -> Iterator[Any]:
        connection = psycopg2.connect(self.url, application_name="billing")
        connection.autocommit = autocommit
        try:
            yield connection
        finally:
            connection.close()

    def row_keys(self) -> list[UUID]:
        return [UUID(found) for (found,) in self.ask("SELECT trip_uuid::text FROM trips ORDER BY id")]

    @contextmanager
    def store(self) -> Iterator[TripStore]:
        with tripstore.connect(self.shell.folder / "tripstore.yaml") as opened:
            yield opened

    @contextmanager
    def datastore(self) -> Iterator[Datastore]:
        """Schemaless itself."""
        with self.store() as opened:
            yield opened.facade.store

    @property
    def authority(self) -> str:
        return str(self.ask("SELECT backend FROM tripstore.authority")[0][0])

    @contextmanager
    def worker(self) -> Iterator[None]:
        """`tripstore worker run`, which serves from the moment that the block begins."""
        process = self.shell.start("worker", "run")
        try:
            wait_until("the reverse mirror is served", self._is_served, seconds=30)
            yield
        finally:
            process.terminate()
            self.said = process.communicate(timeout=30)[1]

    def _is_served(self) -> bool:
        with self.datastore() as datastore:
            return all(status.unserved == 0 for status in datastore.triggers.status("mirror:reverse"))

    def note_jobs(self, **more: object) -> None:
        """What a backfill and a diff leave behind."""
        at = datetime.now(UTC).isoformat()
        counts = {"rows": 5, "open": 0, "not_compared": 0}
        body: dict[str, Any] = {"begun_at": at, "is_complete": True, "unit": UNIT, **counts, **more}
        with self.datastore() as datastore:
            for ledger in ("backfill", "diff"):
                Ledgers(datastore.control).note(ledger, body)

    def compare_reads(self, times: int = 3) -> None:
        """A service that reads in phase shadow: what it compared is written when it ends."""
        (row_key, *_) = self.row_keys()
        with self.store() as store:
            for _ in range(times):
                store.get_cell_latest(row_key, "BASE")
            assert store.facade.duo is not None
            assert store.facade.duo.shadow.drain(10)

    def wait_until_mirrored(self) -> None:
        with self.store() as store:
            assert store.facade.duo is not None
            database = store.facade.duo.legacy.database

            def is_empty() -> bool:
                query = "SELECT count(*) FROM tripstore.queue"
                return bool(database.run(lambda found: found.rows(query)[0][0] == 0, Deadline(5.0)))

            wait_until("the queue is empty", is_empty, seconds=30)

    def verify_indexes(self, names: Sequence[str]) -> None:
        for name in names:
            self.run("index", "verify", name)


def migration_template(servers: LocalServers, folders: pytest.TempPathFactory) -> Migration:
    """One that all others of a run are copies of."""
    if not _TEMPLATE:
        _TEMPLATE.append(_first(servers, folders.mktemp("migration")))
    return _TEMPLATE[0]


def _first(servers: LocalServers, folder: Path) -> Migration:
    with kept():
        made = Migration(Shell(folder), company_database(servers, "machine"))
    made.ask(ROWS)
    made.configure()
    made.run("schema", "apply")
    return made


def copied(template: Migration, folder: Path) -> Migration:
    """A migration of a test's own."""
    shutil.copytree(template.shell.folder, folder)
    server, _, database = template.url.rpartition("/")
    name = f"{database}_copy{next(_NUMBERS)}"
    create_database(server, name, database)
    made = Migration(Shell(folder), f"{server}/{name}")
    made.configure()
    return made
