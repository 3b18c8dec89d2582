"""Every refusal's advice is run as it stands, and leads out: no gate names a command that leaves it shut."""

from __future__ import annotations

import re
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from schemaless_core import Cell
from tests.acceptance.migrations import Migration, copied, migration_template
from tests.chaos.actors import wait_until
from tests.damage import spoil
from tripstore.copying.backfill import EVERYTHING, Backfill
from tripstore.local.servers import LocalServers

COMMAND = re.compile(r"`tripstore ([^`]+)`")
#: Of what is wrong these answer with an exit code of their own; 2 would be a command that does not exist.
WELL = frozenset({0, 1, 3})
ASKS = (["repair"], ["index", "repair"], ["diff", "cancel"], ["backfill", "cancel"])
WRITE = "UPDATE trips SET status = (CASE status WHEN 'completed' THEN 'requested' ELSE 'completed' END)::trip_status"

Deed = Callable[["Company"], None]


class Company:
    """A migration in the phase shadow, and a person who does what the gates say."""

    def __init__(self, migration: Migration, left: ExitStack) -> None:
        self.migration = migration
        self._left = left
        self._is_served = False
        self.ran: list[str] = []

    def gate(self, name: str) -> Any:
        document = self.migration.shell.call("cutover", "plan", "--json").document
        return next(gate for gate in document["gates"] if gate["name"] == name)

    def obey(self, gate: str, meanwhile: Deed) -> None:
        """Run what is advised, one command after the other, until the gate passes."""
        for command in COMMAND.findall(self.gate(gate)["hint"]):
            self._run(shlex.split(command))
            self.ran.append(command)
            meanwhile(self)
            if self.gate(gate)["is_passed"]:
                return

    def serve(self) -> None:
        if not self._is_served:
            self._left.enter_context(self.migration.worker())
            self._is_served = True

    def _run(self, words: list[str]) -> None:
        if words == ["worker", "run"]:
            self.serve()
            return
        answered = ["--yes"] if any(words[: len(asks)] == asks for asks in ASKS) and "--yes" not in words else []
        ran = self.migration.shell.call(*words, *answered)
        assert ran.code in WELL, (words, ran.stdout, ran.stderr)

    def change(self) -> None:
        self.migration.ask(WRITE)

    def base(self) -> Cell:
        """The first trip, as both stores have it."""
        (row_key, *_) = self.migration.row_keys()
        with self.migration.datastore() as datastore:
            found = datastore.get_cell_latest(row_key, "BASE")
        assert found is not None
        return found

    def past(self) -> None:
        """Everything was copied, and found equal."""
        self.migration.run("backfill", "start")
        self.migration.run("diff", "start")


def in_shadow(servers: LocalServers, templates: pytest.TempPathFactory, folder: Path) -> Migration:
    migration = copied(migration_template(servers, templates), folder)
    migration.run("phase", "set", "dualwrite")
    migration.run("phase", "set", "shadow")
    return migration


@pytest.fixture
def company(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Company]:
    """Nothing was copied, and no worker runs yet."""
    with ExitStack() as left:
        yield Company(in_shadow(servers, tmp_path_factory, tmp_path / "own"), left)


@pytest.fixture(scope="module")
def served(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """A worker runs, and what one case breaks its advice mends: it is there for the next one."""
    with ExitStack() as left:
        made = Company(in_shadow(servers, tmp_path_factory, tmp_path_factory.mktemp("served") / "own"), left)
        made.serve()
        yield made


def nothing(_company: Company) -> None:
    """The advice alone is enough."""


def is_in_dualwrite(company: Company) -> None:
    company.migration.run("phase", "set", "dualwrite")


def has_a_backfill_of_a_part(company: Company) -> None:
    company.migration.run("backfill", "start", "--where", "t.id > 2")


def has_a_backfill_that_waits(company: Company) -> None:
    with company.migration.store() as store:
        backfill = Backfill(store.facade)
        backfill.begin(backfill.plan(EVERYTHING))


def has_a_backfill_that_was_given_up(company: Company) -> None:
    has_a_backfill_that_waits(company)
    company.migration.run("backfill", "cancel", "--yes")


def has_a_conflict_in_quarantine(company: Company) -> None:
    company.serve()
    with company.migration.datastore() as datastore:
        datastore.as_copier().put_cell(company.migration.row_keys()[0], "BASE", 1, {"status": "foreign"})
    company.migration.run("backfill", "start", code=1)


def has_a_backfill_from_before_capture(company: Company) -> None:
    company.migration.run("backfill", "start")
    breaks_capture(company)
    company.migration.run("doctor", code=1)
    company.migration.run("schema", "apply")


def breaks_capture(company: Company) -> None:
    company.migration.ask("ALTER TABLE trips DISABLE TRIGGER ALL")


def has_a_diff_from_before_the_backfill(company: Company) -> None:
    company.past()
    company.migration.run("backfill", "start")


def differs(company: Company) -> None:
    company.past()
    with company.migration.datastore() as datastore:
        spoil(datastore, company.base(), b'{"status":"foreign"}')
    company.migration.run("diff", "start", code=1)


def differs_in_the_past(company: Company) -> None:
    """A closer diff found it; one that looks less closely says nothing of it."""
    company.past()
    company.change()
    company.migration.run("mirror", "drain")
    older = company.base()  # Postgres has it in its log
    company.change()
    company.migration.run("mirror", "drain")
    with company.migration.datastore() as datastore:
        spoil(datastore, older, b'{"status":"foreign"}')
    company.migration.run("diff", "start", "--older", "all", "--keys", "found.jsonl", code=1)
    company.migration.run("diff", "start")


def differed_in_the_past_and_was_repaired_by_its_key_file(company: Company) -> None:
    differs_in_the_past(company)
    company.migration.run("repair", "--diff", "found.jsonl", "--yes")
    company.migration.run("diff", "start")
    assert company.migration.run("diff", "show").stdout.endswith("has no open finding.\n")


def is_behind(company: Company) -> None:
    company.change()
    company.migration.ask("UPDATE tripstore.queue SET at = at - interval '7 s'")


def has_parked_a_change(company: Company) -> None:
    """Somebody put another body under the next version."""
    company.past()
    cell = company.base()
    with company.migration.datastore() as datastore:
        datastore.as_copier().put_cell(cell.row_key, "BASE", cell.ref_key + 1, {"status": "foreign"})
    company.change()
    company.migration.shell.call("mirror", "drain")


def has_a_wrong_entry(company: Company) -> None:
    company.past()
    company.migration.run("index", "verify", "legacy_ids")
    for file in (company.migration.shell.folder / "data").rglob("*.db"):
        with closing(sqlite3.connect(file, timeout=20)) as connection, connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'index_legacy_ids_v1'").fetchone():
                connection.execute("DELETE FROM index_legacy_ids_v1")
    company.migration.run("index", "verify", "legacy_ids", code=1)


def changes(company: Company) -> None:
    """What services do all the time."""
    company.change()
    company.migration.wait_until_mirrored()


FRESH: list[tuple[str, Deed, Deed]] = [
    ("phase", is_in_dualwrite, nothing),
    ("capture", breaks_capture, nothing),
    ("backfill", nothing, nothing),
    ("backfill", has_a_backfill_of_a_part, nothing),
    ("backfill", has_a_backfill_that_waits, nothing),
    ("backfill", has_a_backfill_that_was_given_up, nothing),
    ("backfill", has_a_conflict_in_quarantine, nothing),
    ("backfill", has_a_backfill_from_before_capture, nothing),
    ("mirror lag", is_behind, nothing),
    ("rehearsal", nothing, changes),
    ("index legacy_ids", nothing, nothing),
]
SERVED: list[tuple[str, Deed, Deed]] = [
    ("diff", has_a_diff_from_before_the_backfill, nothing),
    ("diff", differs, nothing),
    ("diff", differed_in_the_past_and_was_repaired_by_its_key_file, nothing),
    ("parked changes", has_parked_a_change, nothing),
    ("index legacy_ids", has_a_wrong_entry, nothing),
]


def named(case: tuple[str, Deed, Deed]) -> str:
    return f"{case[0]}: {case[1].__name__}"


@pytest.mark.parametrize("case", FRESH, ids=named)
def test_what_a_gate_advises_leads_out(company: Company, case: tuple[str, Deed, Deed]) -> None:
    obeyed(company, *case)


@pytest.mark.parametrize("case", SERVED, ids=named)
def test_what_a_gate_advises_leads_out_of_what_has_gone_wrong(served: Company, case: tuple[str, Deed, Deed]) -> None:
    obeyed(served, *case)


def obeyed(company: Company, gate: str, breaks: Deed, meanwhile: Deed) -> None:
    breaks(company)
    refused = company.gate(gate)
    assert not refused["is_passed"], refused

    company.obey(gate, meanwhile)

    wait_until(f"the gate {gate} passes", lambda: company.gate(gate)["is_passed"], seconds=30)
