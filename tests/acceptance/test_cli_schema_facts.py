"""`schema plan` of a layout with facts names each statement that capture would refuse, or says why it did not look."""

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

    def write(self, **files: str) -> None:
        """Code of the company's, below `services`."""
        folder = self.shell.folder / "services"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)

    def plan(self, *options: str) -> dict[str, Any]:
        ran = self.shell.call("schema", "plan", "--json", *options)
        assert ran.code == 0, ran.stdout + ran.stderr
        legacy: dict[str, Any] = ran.document["legacy"]
        return legacy


CODE = """\
from sqlalchemy import text, update
class Trip(Base):
    __tablename__ = "trips"
class BillingAttempt(Base):
    __tablename__ = "billing_attempts"
def work(session, trip: Trip, attempt: BillingAttempt, made):
    attempt.result = "captured"
    session.execute(update(Trip).where(Trip.id == 1).values(id=9))
    session.execute(text("UPDATE trip_notes SET n = :n WHERE trip_id = :trip"))
    session.query(BillingAttempt).filter(BillingAttempt.trip_id == 2).delete()
    trip.status = "completed"
    session.execute(text("UPDATE trip_notes SET text = :said WHERE trip_id = :trip"))
    session.query(Trip).filter(Trip.id == 1).update(made())
    session.execute(text("SELECT id FROM trips"))
"""
#: By the line that has it: the statement as it runs, and the SQLSTATE that capture refuses it with.
LINES = {
    7: ("UPDATE billing_attempts SET result = DEFAULT WHERE trip_id = 1", "TS003"),
    8: ("UPDATE trips SET id = 9 WHERE id = 3", "TS002"),
    9: ("UPDATE trip_notes SET n = 2 WHERE trip_id = 1", None),
    10: ("DELETE FROM billing_attempts WHERE trip_id = 2", "TS004"),
    11: ("UPDATE trips SET status = 'completed' WHERE id = 3", None),
    12: ("UPDATE trip_notes SET text = 'bye' WHERE trip_id = 1", None),
}


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


def test_the_plan_names_what_changes_an_id_and_not_what_changes_a_childs_number_or_parent(office: Office) -> None:
    layout = document()
    layout["columns"]["STATUS"]["ref_key"]["version"] = "attempt_version"
    office.configure(layout)
    sent = (
        "UPDATE trip_notes SET n = 2 WHERE trip_id = 1",
        "UPDATE trip_notes SET trip_id = 3, n = 7 WHERE trip_id = 2",
        "UPDATE trips SET id = 9 WHERE id = 3",
    )
    states = [None, None, "TS002"]
    office.ask("DELETE FROM trip_notes WHERE trip_id = 3", "DELETE FROM billing_attempts WHERE trip_id = 3")
    office.count(sent)

    plan = office.plan()

    named = {each["statement"].split(" = ")[0]: each for each in plan["statements"]["refused"]}
    refused = {each.split(" = ")[0]: state for each, state in zip(sent, states, strict=True) if state}
    assert named.keys() == refused.keys()
    for kind, state in refused.items():
        assert state in [reason["sqlstate"] for reason in named[kind]["reasons"]]
    assert office.shell.call("schema", "apply").code == 0
    assert [sqlstate(office, each) for each in sent] == states


def test_the_plan_names_what_capture_then_refuses_of_code(office: Office) -> None:
    """SQL in texts and files, and writes of SQLAlchemy; keys that cascade into a mapped table beside them."""
    office.ask(
        "DELETE FROM billing_attempts WHERE trip_id = 3",
        "DELETE FROM trip_notes WHERE trip_id = 3",
        "ALTER TABLE trip_notes ADD CONSTRAINT moved FOREIGN KEY (trip_id) REFERENCES trips ON UPDATE CASCADE",
    )
    office.write(work_py=CODE, week_sql="UPDATE cashiers SET id = 7 WHERE id = 1;\nUPDATE trips SET id = 8;\n")

    plan = office.plan("--code", "services")
    shown = office.shell.call("schema", "plan", "--code", "services").stdout

    code = plan["code"]
    named = {each["where"]: {reason["sqlstate"] for reason in each["reasons"]} for each in code["refused"]}
    refused = {f"work.py:{line}": state for line, (_sent, state) in LINES.items() if state}
    assert named.keys() == refused.keys() | {"week.sql:1", "week.sql:2"}
    assert all(state in named[place] for place, state in refused.items())
    assert (code["files"], code["unread"], code["unclear"]) == (2, 0, 1)  # line 13: columns known at run time only
    assert "work.py:8" in shown
    assert "5 of 8 kinds of writes in 2 files below services would be refused. Of 1 places" in shown
    cascading = [each["where"] for each in plan["complaints"] if "ON UPDATE CASCADE" in each["reason"]]
    assert any("moved" in where for where in cascading), plan["complaints"]

    assert office.shell.call("schema", "apply").code == 0
    sent = {line: sqlstate(office, statement) for line, (statement, _state) in LINES.items()}
    assert sent == {line: state for line, (_statement, state) in LINES.items()}
    assert office.plan("--code", "services")["code"] == code


def test_control_of_code_that_changes_no_key_and_no_fact_nothing_is_named(office: Office) -> None:
    layout = document()
    layout["columns"]["STATUS"]["ref_key"]["version"] = "attempt_version"
    office.configure(layout)
    office.write(work_py=CODE.replace("id=9", "status=9").replace("SET n =", "SET text ="))

    code = office.plan("--code", "services")["code"]

    assert (code["refused"], code["unclear"]) == ([], 1)


def test_code_alone_says_nothing_without_a_layout(office: Office) -> None:
    config = yaml.safe_load((office.shell.folder / "tripstore.yaml").read_text())
    del config["legacy"]
    (office.shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(config))
    office.write(work_py=CODE)

    ran = office.shell.call("schema", "plan", "--code", "services")

    assert ran.code == 2
    assert "No layout says which tables are mapped" in ran.stderr


def test_control_nothing_is_named_where_rows_may_change(office: Office) -> None:
    layout = document()
    layout["columns"]["STATUS"]["ref_key"]["version"] = "attempt_version"
    office.configure(layout)
    office.count(list(SENT))

    plan = office.plan()

    assert plan["statements"]["refused"] == []
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
def test_without_the_extension_the_plan_says_that_it_did_not_look(
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
