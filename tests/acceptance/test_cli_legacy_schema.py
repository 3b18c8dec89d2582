"""`tripstore schema` and `doctor` over a legacy store: the plan, the steps in order, resumable, one run at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.chaos.actors import wait_until
from tests.layouts import FLAVOURS, company_database, document
from tripstore.cli.legacy_schema import LOCK
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

ROWS = """
INSERT INTO users (id, user_uuid) SELECT n, gen_random_uuid() FROM generate_series(1, 3) n;
INSERT INTO trips (driver_id) SELECT 1 + n % 3 FROM generate_series(1, 50) n;
INSERT INTO billing_attempts (trip_id, attempt_no, result) SELECT id, 1, 'captured' FROM trips;
INSERT INTO trip_notes (trip_id, n, text) SELECT id, 1, 'hello' FROM trips;
"""


class Company:
    """A database with tables and rows, and a folder whose configuration names it."""

    def __init__(self, servers: LocalServers, shell: Shell, flavour: Flavour) -> None:
        self.url = company_database(servers, flavour)
        self.login = self.url.partition("://")[2].partition("@")[0]
        self.shell = shell
        self.ask(ROWS)
        self.configure(document())

    def configure(self, layout: dict[str, Any]) -> None:
        (self.shell.folder / "layout.yaml").write_text(yaml.safe_dump(layout))
        config = {
            "datastore": "trips",
            "shards": 4,
            "clusters": {"a": {"primary": "sqlite:///data/a"}},
            "legacy": {"postgres": self.url, "layout": "layout.yaml"},
        }
        (self.shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(config))

    @contextmanager
    def connection(self) -> Iterator[Any]:
        connection = psycopg2.connect(self.url)
        connection.autocommit = True
        try:
            yield connection
        finally:
            connection.close()

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def columns(self) -> set[str]:
        found = self.ask("SELECT table_name || '.' || column_name FROM information_schema.columns")
        return {name for (name,) in found}


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


@pytest.fixture
def company(servers: LocalServers, shell: Shell, flavour: Flavour) -> Company:
    return Company(servers, shell, flavour)


@pytest.fixture
def machine(servers: LocalServers, shell: Shell) -> Company:
    return Company(servers, shell, "machine")


def test_plan_shows_every_step_and_changes_nothing(company: Company) -> None:
    before = company.columns()

    ran = company.shell.call("schema", "plan")

    assert ran.code == 0, ran.stdout + ran.stderr
    assert "to do  trips: " in ran.stdout
    assert "ADD COLUMN" in ran.stdout
    assert re.search(r"(\d+) of \1 steps are to do", ran.stdout)
    assert company.columns() == before
    assert company.shell.call("schema", "apply", "--dry-run").stdout == ran.stdout


def test_apply_does_all_steps_and_a_second_one_finds_nothing_to_do(company: Company) -> None:
    first = company.shell.run("schema", "apply", "--json")
    second = company.shell.call("schema", "apply")
    planned = company.shell.call("schema", "plan", "--json")

    assert first.code == 0, first.stderr
    steps = first.document["legacy"]["steps"]
    assert first.document["legacy"]["applied"] == [step["title"] for step in steps]
    assert steps[0]["title"] in first.stderr, "progress is told without a terminal too"
    assert {"trips.trip_uuid", "trips.base_version", "trips.base_extra", "trip_notes.note_version"} <= company.columns()
    assert company.ask("SELECT count(*) FROM trips WHERE trip_uuid IS NULL") == [(0,)]
    assert second.code == 0
    assert f"all {len(steps)} steps were done" in second.stdout
    assert planned.document["legacy"]["is_complete"] is True
    assert [each for each in planned.document["legacy"]["complaints"] if each["severity"] == "error"] == []


def test_doctor_is_content_after_apply_and_not_before(company: Company) -> None:
    before = company.shell.call("doctor", "--json")
    assert company.shell.call("schema", "apply").code == 0
    after = company.shell.call("doctor", "--json")

    assert before.code == 1
    assert "capture is not installed" in str(before.document["legacy"]["complaints"])
    assert after.code == 0, after.stdout
    assert after.document["legacy"]["is_fine"] is True


def test_the_example_company_is_brought_from_init_to_a_content_doctor(
    servers: LocalServers, shell: Shell, flavour: Flavour
) -> None:
    url = company_database(servers, flavour, "")
    CompanySchema(url).upgrade()
    tables = ("trips", "billing_attempts", "trip_notes", "fare_adjustments")

    ran = [
        shell.call("init", "--from", url, *(word for table in tables for word in ("--table", table))),
        shell.call("schema", "plan"),
        shell.call("schema", "apply"),
        shell.call("doctor"),
    ]

    assert [each.code for each in ran] == [0, 0, 0, 0], [each.stdout + each.stderr for each in ran]


def test_doctor_names_a_disabled_trigger_and_capture_counts_as_broken_until_mended(machine: Company) -> None:
    assert machine.shell.call("schema", "apply").code == 0
    machine.ask("ALTER TABLE trips DISABLE TRIGGER USER")

    found = machine.shell.call("doctor")

    assert found.code == 1
    assert re.search(r"error +trips +trigger .* is disabled", found.stdout)
    assert machine.ask("SELECT since IS NULL, broken IS NOT NULL FROM tripstore.capture") == [(True, True)]
    # A person who enables it again has not undone what was missed.
    machine.ask("ALTER TABLE trips ENABLE TRIGGER USER")
    assert machine.shell.call("doctor").code == 1
    assert machine.shell.call("schema", "apply").code == 0
    assert machine.shell.call("doctor").code == 0


def test_a_layout_that_does_not_fit_is_refused_before_anything_is_done(machine: Company) -> None:
    unfit = document()
    unfit["columns"]["NOTES"]["ref_key"]["column"] = "number"
    unfit["columns"]["BASE"]["fields"]["fare"]["type"] = "int"
    machine.configure(unfit)
    before = machine.columns()

    planned = machine.shell.call("schema", "plan")
    applied = machine.shell.call("schema", "apply")

    assert planned.code == 1
    assert "trip_notes.number" in planned.stdout
    assert "trips.fare_amount" in planned.stdout
    assert applied.code == 2
    assert "does not fit the tables: trips.fare_amount" in applied.complaint
    # n is a column without default then, which nobody fills.
    assert "; 2 more." in applied.complaint
    assert machine.columns() == before
    assert not (machine.shell.folder / "data").exists()


def test_a_killed_apply_goes_on_where_it_was(company: Company, failpoints: Path) -> None:
    (failpoints / "legacy.step_applied").write_text("kill after=2")

    killed = company.shell.run("schema", "apply", environment={"TRIPSTORE_FAILPOINTS": str(failpoints)})
    done = [
        step for step in company.shell.call("schema", "plan", "--json").document["legacy"]["steps"] if step["is_done"]
    ]
    again = company.shell.call("schema", "apply", "--json")

    assert killed.code < 0
    assert done
    assert again.code == 0, again.stderr
    assert not {step["title"] for step in done} & set(again.document["legacy"]["applied"])
    assert company.shell.call("doctor").code == 0


def test_a_second_apply_at_the_same_time_is_told_who_is_at_it(machine: Company) -> None:
    with machine.connection() as other, other.cursor() as cursor:
        cursor.execute("SET application_name = 'tripstore schema'")
        cursor.execute("SELECT pg_advisory_lock(%s), pg_backend_pid()", (LOCK,))
        pid = cursor.fetchone()[1]

        ran = machine.shell.call("schema", "apply", "--json")

    assert ran.code == 6
    assert f"tripstore schema, pid {pid}" in ran.complaint
    assert ran.document["error"]["kind"] == "Locked"
    wait_until("the lock is free", lambda: machine.shell.call("schema", "apply").code == 0)


def test_a_role_without_rights_is_told_what_it_lacks(machine: Company) -> None:
    machine.ask("CREATE ROLE onlooker LOGIN PASSWORD 'weak'")
    try:
        host = machine.url.partition("@")[2]
        machine.url = f"postgresql://onlooker:weak@{host}"
        machine.configure(document())

        ran = machine.shell.call("schema", "apply")
    finally:
        machine.url = machine.url.replace("onlooker:weak", machine.login)
        machine.ask("DROP ROLE onlooker")

    assert ran.code == 1
    assert "must be owner of table trips" in ran.complaint or "permission denied" in ran.complaint
    assert "what is done stays done" in ran.complaint


def test_a_server_that_cannot_be_reached_is_said_without_the_password(shell: Shell) -> None:
    config = {
        "datastore": "trips",
        "shards": 4,
        "clusters": {"a": {"primary": "sqlite:///data/a"}},
        "legacy": {"postgres": "postgresql://a:S3cr3t@127.0.0.1:1/d", "layout": document()},
    }
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(config))

    planned, examined = shell.call("schema", "plan"), shell.call("doctor")

    assert (planned.code, examined.code) == (1, 1)
    assert "Postgres cannot be reached" in planned.complaint
    assert "Postgres cannot be reached" in examined.stdout
    assert "S3cr3t" not in planned.stdout + planned.stderr + examined.stdout + examined.stderr
