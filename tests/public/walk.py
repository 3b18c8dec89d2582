"""`Walk`: a company's whole migration, by what a user has: commands, a layout to edit, SQL, and `tripstore.connect`."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID, uuid4

import psycopg2
import yaml

import tripstore
from schemaless_core import Json
from tests.acceptance.conftest import Ran, Shell
from tests.public.comparison import Compared, compare
from tests.public.schema import PublicSchema, Sent

#: Shorter than in production, so that a test need not wait; the gates want what a test can give.
SETTINGS = """
triggers: {lease_seconds: 0.9, checkpoint_seconds: 0.05}
shadow: {share: 1.0}
cutover: {comparisons_min: 40, mismatch_rate_max: 0.1, rehearsed_cells_min: 1}
deadlines: {put_seconds: 20.0, read_seconds: 20.0, scan_seconds: 60.0, connect_seconds: 10.0, pool_seconds: 20.0}
"""
#: What `init` wants to be run before it takes a table.
_STATEMENT = re.compile(r"(?m): to take it, run (.*);$")
WAIT_SECONDS = 60.0


@dataclass
class Walk:
    """One schema on its way. What was compared is kept, with a name, and printed at the end."""

    schema: PublicSchema
    shell: Shell
    postgres: str
    servers: Sequence[str]  #: URLs of the clusters' primaries.
    datastore: str
    shards: int
    compared: dict[str, Compared] = field(default_factory=dict)

    # ---------------------------------------------------------------------------------------------- commands

    def run(self, *arguments: str, code: int = 0) -> Ran:
        ran = self.shell.call(*arguments)
        assert ran.code == code, f"tripstore {' '.join(arguments)}: {ran.code}\n{ran.stdout}{ran.stderr}"
        return ran

    def until(self, *arguments: str, again: Any = None) -> None:
        """Repeat a command until it is content: what it waits for is on its way."""
        end = time.monotonic() + WAIT_SECONDS
        while (ran := self.shell.call(*arguments)).code != 0:
            assert time.monotonic() < end, f"tripstore {' '.join(arguments)}: {ran.code}\n{ran.stdout}{ran.stderr}"
            if again is not None:
                again()

    @contextmanager
    def worker(self) -> Iterator[None]:
        process = self.shell.start("worker", "run")
        try:
            yield
        finally:
            process.terminate()
            process.communicate(timeout=30)

    # ------------------------------------------------------------------------------------------------- steps

    def describe(self) -> None:
        """`init`, and what a person does with what it says: runs its SQL, and lets rows change."""
        tables = [word for table in self.schema.tables for word in ("--table", table)]
        clusters = [word for url in self.servers for word in ("--mysql", url)]
        options = ("--datastore", self.datastore, "--shards", str(self.shards), "--json")
        command = ("init", "--from", self.postgres, *tables, *clusters, *options)
        statements = _STATEMENT.findall("\n".join(self.run(*command).document["undecided"]))
        if statements:
            for statement in statements:
                self.send(Sent(statement))
            self.run(*command, "--force")
        self.layout.write_text(yaml.safe_dump(decided(yaml.safe_load(self.layout.read_text())), sort_keys=False))
        config = self.shell.folder / "tripstore.yaml"
        config.write_text(config.read_text() + SETTINGS)

    @property
    def layout(self) -> Path:
        return self.shell.folder / "layout.yaml"

    @property
    def columns(self) -> Mapping[str, Any]:
        """What is mapped, by the name of the column of cells."""
        found: Mapping[str, Any] = yaml.safe_load(self.layout.read_text())["columns"]
        return found

    def look_before(self) -> dict[str, dict[str, str]]:
        """`audit statements` of what services send: the verdict on each, by phase. Nothing is installed yet."""
        (self.shell.folder / "traffic.sql").write_text(
            "".join(
                f"{sent.statement};\n{sent.copied + chr(92) + '.' + chr(10) if sent.copied else ''}"
                for sent in self.schema.traffic
            )
        )
        ran = self.shell.call("audit", "statements", "traffic.sql", "--json")
        assert ran.code in (0, 1, 3), ran.stderr
        return {each["statement"]: each["verdicts"] for each in ran.document["findings"]}

    def install(self) -> None:
        self.run("schema", "plan")
        self.run("schema", "apply")
        self.run("doctor")

    def copy_the_past(self) -> None:
        """Backfill while services write."""
        traffic = Thread(target=self.traffic)
        traffic.start()
        try:
            self.run("backfill", "start")
        finally:
            traffic.join()
        self.rest()

    def traffic(self) -> None:
        for sent in self.schema.traffic:
            self.send(sent)

    def refused(self) -> dict[str, str | None]:
        """What becomes of the services' statements now: the SQLSTATE of each; None, it was taken."""
        found: dict[str, str | None] = {}
        for sent in self.schema.traffic:
            try:
                self.send(sent)
                found[sent.statement] = None
            except psycopg2.Error as error:
                found[sent.statement] = error.pgcode
        return found

    def send(self, sent: Sent) -> None:
        """A service's own SQL."""
        connection = psycopg2.connect(self.postgres, application_name="service")
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                if sent.copied is not None:
                    cursor.copy_expert(sent.statement, io.StringIO(sent.copied))
                else:
                    cursor.execute(sent.statement)
        finally:
            connection.close()

    def rest(self) -> None:
        """Nothing is on its way any more, in the direction of the phase."""
        self.run("mirror", "drain")

    def gather(self) -> None:
        """What the gates ask for: a diff, verified indexes, reads that were compared, a rehearsal."""
        self.traffic()
        self.rest()
        self.run("diff", "start")
        self.run("index", "verify", "legacy_ids")
        self.until("cutover", "plan", again=self.read)

    def read(self) -> None:
        """A service that reads rows of the facade; each read is replayed at the other store."""
        with tripstore.connect(self.shell.folder / "tripstore.yaml") as store:
            for row_key in self.row_keys(20):
                store.get_cell_latest(row_key, self.parent)
            assert store.facade.duo is not None
            assert store.facade.duo.shadow.drain(10)

    def row_keys(self, limit: int) -> list[UUID]:
        key = yaml.safe_load(self.layout.read_text())["row_key"]
        with psycopg2.connect(self.postgres) as connection, connection.cursor() as cursor:
            cursor.execute(
                f'SELECT "{key["uuid"]}"::text FROM "{key["table"]}" ORDER BY "{key["id"]}" LIMIT %s', (limit,)
            )
            found = [UUID(row) for (row,) in cursor.fetchall()]
        connection.close()
        return found

    def column_of(self, table: str) -> str:
        return next(name for name, mapped in self.columns.items() if mapped["table"] == table)

    @property
    def parent(self) -> str:
        return next(name for name, column in self.columns.items() if "parent" not in column)

    def compare(self, when: str) -> Compared:
        """Every row of every mapped table, by a decoder of its own; counts are printed."""
        found = compare(self.postgres, self.layout, self.servers, self.datastore)
        self.compared[when] = found
        print(f"{self.schema.name}: {when}: {found}")
        return found

    # ---------------------------------------------------------------------------------------------- on live

    def write_on_live(self) -> int:
        """Changes, new rows, new children, deletions through the facade; returns how many cells were put."""
        first, second, third = self.row_keys(3)
        made, gone = uuid4(), uuid4()
        puts = 0
        with tripstore.connect(self.shell.folder / "tripstore.yaml") as store:

            def put(row_key: UUID, column: str, ref_key: int, body: Json) -> None:
                nonlocal puts
                store.put_cell(row_key, column, ref_key, body)
                puts += 1

            latest = store.get_cell_latest(first, self.parent)
            assert latest is not None
            assert isinstance(latest.body, dict)
            body = {**latest.body, **self.schema.amended}
            put(first, self.parent, latest.ref_key + 1, body)
            put(first, self.parent, latest.ref_key + 2, latest.body)
            for row_key in (made, gone):
                put(row_key, self.parent, 1, body)
            put(gone, self.parent, 2, None)
            for table, child in self.schema.children.items():
                column = self.column_of(table)
                first_number = self.schema.numbers.get(table, 900_000)
                for number, row_key in enumerate((made, second, third), first_number):
                    put(row_key, column, number << 20, child)
                put(second, column, (first_number + 1 << 20) + 1, child | self.schema.changed.get(table, {}))
            # The last of them goes again; what it may point to was put before it.
            put(third, column, (first_number + 2 << 20) + 1, None)
            for table in self.schema.appended:
                column = self.column_of(table)
                for row_key in (first, second, made):
                    store.append_cell(row_key, column, self.schema.children[table])
                    puts += 1
        return puts


def decided(layout: dict[str, Any]) -> dict[str, Any]:
    """What a person changes in a proposal: rows change, and what a trigger fills is no field."""
    for name, column in layout["columns"].items():
        column["ref_key"].setdefault("version", f"{name.lower()}_version")
        column.get("fields", {}).pop("fulltext", None)
    return layout
