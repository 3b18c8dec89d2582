"""`schema plan` of a layout with facts names each statement that capture would refuse, or says why nobody looked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import psycopg2
import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.layouts import COMPANY, FLAVOURS, company_database, document
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

ROWS = """
CREATE TABLE cashiers (id bigint PRIMARY KEY);
ALTER TABLE billing_attempts ADD cashier_id bigint REFERENCES cashiers (id) ON UPDATE CASCADE;
INSERT INTO cashiers VALUES (1);
INSERT INTO trips (status) SELECT 'requested' FROM generate_series(1, 3);
INSERT INTO billing_attempts (trip_id, attempt_no, result, cashier_id) SELECT id, 1, 'failed', 1 FROM trips;
INSERT INTO trip_notes (trip_id, n, text) SELECT id, 1, 'hello' FROM trips;
"""
#: What a company sends; by the SQLSTATE that capture refuses it with, or None.
SENT = {
    "UPDATE billing_attempts SET result = 'captured' WHERE trip_id = 1": "TS003",
    "DELETE FROM billing_attempts WHERE trip_id = 2": "TS004",
    "UPDATE cashiers SET id = 7 WHERE id = 1": "TS003",
    "UPDATE trip_notes SET text = 'bye' WHERE trip_id = 1": None,
    "DELETE FROM trips WHERE id = 3": None,
}


class Office:
    """A database that counts its statements, and a folder whose configuration names it."""

    def __init__(self, servers: LocalServers, shell: Shell, flavour: Flavour) -> None:
        self.url, self.shell = company_database(servers, flavour, COMPANY + ROWS), shell
        layout = document()
        layout["columns"]["STATUS"]["fields"]["cashier"] = {"column": "cashier_id", "type": "int"}
        self.configure(layout)

    def configure(self, layout: dict[str, Any]) -> None:
        (self.shell.folder / "layout.yaml").write_text(yaml.safe_dump(layout))
        config = {
            "datastore": "trips",
            "shards": 4,
            "clusters": {"a": {"primary": "sqlite:///data/a"}},
            "legacy": {"postgres": self.url, "layout": "layout.yaml"},
        }
        (self.shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(config))

    def ask(self, *statements: str) -> None:
        connection = psycopg2.connect(self.url)
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.close()

    def count(self, statements: Sequence[str]) -> None:
        """Send these in transactions that end with a rollback: they are counted, and the rows stay."""
        self.ask("CREATE EXTENSION IF NOT EXISTS pg_stat_statements", "SELECT pg_stat_statements_reset()")
        for statement in statements:
            self.ask("BEGIN", statement, "ROLLBACK")

    def plan(self) -> dict[str, Any]:
        ran = self.shell.call("schema", "plan", "--json")
        assert ran.code == 0, ran.stdout + ran.stderr
        legacy: dict[str, Any] = ran.document["legacy"]
        return legacy


@pytest.fixture
def office(servers: LocalServers, shell: Shell) -> Office:
    return Office(servers, shell, "machine")


def sqlstate(office: Office, statement: str) -> str | None:
    try:
        office.ask("BEGIN", statement, "ROLLBACK")
    except psycopg2.Error as error:
        return error.pgcode
    return None


def about_statements(plan: dict[str, Any]) -> list[str]:
    return [each["reason"] for each in plan["complaints"] if each["where"] == "pg_stat_statements"]


def test_the_plan_names_what_capture_then_refuses(office: Office) -> None:
    office.count(list(SENT))
    plan = office.plan()
    shown = office.shell.call("schema", "plan").stdout

    named = {each["statement"].split(" WHERE ")[0].split(" = ")[0]: each for each in plan["statements"]["refused"]}
    refused = {sent.split(" WHERE ")[0].split(" = ")[0]: state for sent, state in SENT.items() if state}
    assert named.keys() == refused.keys()
    for sent, state in refused.items():
        assert state in [reason["sqlstate"] for reason in named[sent]["reasons"]], named[sent]
        assert sent in shown
    assert "Statements that capture will refuse:" in shown
    assert re.search(r"^3 of \d+ kinds of statements in pg_stat_statements would be refused", shown, re.M)
    assert "→ by a cascade from cashiers: rows of billing_attempts are facts: cashier_id never changes (TS003)" in shown
    assert about_statements(plan) == []

    assert office.shell.call("schema", "apply").code == 0
    assert {sent: sqlstate(office, sent) for sent in SENT} == SENT


def test_control_nothing_is_named_where_rows_may_change(office: Office) -> None:
    layout = document()
    layout["columns"]["STATUS"]["ref_key"]["version"] = "attempt_version"
    office.configure(layout)
    office.count(list(SENT))

    plan = office.plan()

    assert plan["statements"] is None
    assert about_statements(plan) == []
    assert "Statements that capture will refuse" not in office.shell.call("schema", "plan").stdout


def test_an_apply_that_was_interrupted_is_no_statement_of_the_companys(office: Office) -> None:
    """UUIDs are filled by updates of facts, which pg_stat_statements counts as well."""
    office.count([])
    assert office.shell.call("schema", "apply").code == 0
    stands = about_statements(office.plan())
    assert stands == ["was not asked, because capture stands"]

    office.configure(document())  # Capture by this one does not stand.
    plan = office.plan()

    assert plan["statements"]["statements"] > 0
    assert plan["statements"]["refused"] == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_without_the_extension_the_plan_says_that_nobody_looked(
    servers: LocalServers, shell: Shell, flavour: Flavour
) -> None:
    """I12: what was not looked at is said."""
    office = Office(servers, shell, flavour)
    office.ask("DROP EXTENSION IF EXISTS pg_stat_statements")

    plan = office.plan()

    assert about_statements(plan) == ["is not installed here: no statement was held against the facts"]
    assert plan["statements"] is None
    assert "CREATE EXTENSION pg_stat_statements" in shell.call("schema", "plan").stdout
    assert [each["severity"] for each in plan["complaints"] if "(ON UPDATE CASCADE)" in each["reason"]] == ["note"]
