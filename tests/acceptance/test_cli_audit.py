"""`tripstore audit code`: what it prints, what it counts, and what its exit code says to a service's CI."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from textwrap import dedent

import pytest

from tests.acceptance.conftest import Ran, Shell

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "audit-code.md"

#: A small service: reads and writes of trips, one of them allowed, a star, and a table that the layout does not name.
SERVICE = {
    "app/models.py": """
        from sqlalchemy import Column, Integer
        from sqlalchemy.orm import declarative_base

        Base = declarative_base()


        class Trip(Base):
            __tablename__ = "trips"
            id = Column(Integer, primary_key=True)
        """,
    "app/service.py": """
        from app.models import Trip


        def finish(session, trip_id):
            trip = session.get(Trip, trip_id)
            trip.status = "completed"


        def clean(cursor):
            cursor.execute("DELETE FROM trips WHERE at < now()")  # tripstore: allow ends with the old table
            cursor.execute("SELECT id FROM users")
        """,
    "reports/busy.sql": "SELECT * FROM trips;\n",
}
LAYOUT = """
legacy:
  postgres: postgresql://app@localhost/trips
  layout:
    datastore: trips
    row_key: {table: trips, id: id, uuid: trip_uuid}
    columns:
      BASE:
        table: trips
        ref_key: {version: base_version}
        fields:
          status: {column: status, type: string}
"""


@pytest.fixture
def service(shell: Shell) -> Shell:
    for name, text in SERVICE.items():
        (shell.folder / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (shell.folder / "code" / name).write_text(dedent(text))
    return shell


def audit(service: Shell, *arguments: str) -> Ran:
    return service.call("audit", "code", "code", "--table", "trips", *arguments)


def test_every_use_is_printed_with_its_place_and_counted_by_module_kind_and_table(service: Shell) -> None:
    ran = audit(service)

    assert ran.code == 0
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert [line[:4] for line in lines[1:4]] == [
        ["app/service.py:6:24", "orm.get", "trips", "read"],
        ["app/service.py:7:5", "orm.instance", "trips", "write"],
        ["reports/busy.sql:1:15", "sql.select_star", "trips", "read"],
    ]
    assert ["app/service.py", "2", "1", "1", "0"] in lines
    assert ["orm.get", "1", "1", "0", "0"] in lines
    assert ["trips", "3", "2", "1", "0"] in lines
    assert ran.stdout.splitlines()[-1] == (
        "3 uses in 3 files: 2 read, 1 write. 1 may break when a table gets one more column. 1 more allowed by comments."
    )


def test_a_summary_is_counts_alone(service: Shell) -> None:
    ran = audit(service, "--summary")

    assert "app/service.py:6" not in ran.stdout
    assert re.search(r"^app/service.py +2 +1 +1 +0", ran.stdout, re.MULTILINE)


def test_the_document_has_the_same_and_the_models(service: Shell) -> None:
    document = audit(service, "--json").document

    assert {name: document[name] for name in ("files", "uses", "reads", "writes", "unknown", "brittle", "allowed")} == {
        "files": 3,
        "uses": 3,
        "reads": 2,
        "writes": 1,
        "unknown": 0,
        "brittle": 1,
        "allowed": 1,
    }
    assert document["is_complete"] is True
    assert document["findings"][0] == {
        "file": "app/service.py",
        "line": 6,
        "column": 24,
        "kind": "orm.get",
        "table": "trips",
        "access": "read",
        "is_brittle": False,
        "excerpt": "trip = session.get(Trip, trip_id)",
        "allowed": None,
    }
    assert document["definitions"] == [{"file": "app/models.py", "line": 8, "name": "Trip", "table": "trips"}]
    assert [each["allowed"] for each in document["allowed_findings"]] == ["ends with the old table"]
    assert document["modules"][0] == {"name": "app/service.py", "uses": 2, "reads": 1, "writes": 1, "unknown": 0}
    assert audit(service, "--json").stdout == audit(service, "--json").stdout


@pytest.mark.parametrize(
    ("limit", "code", "said"),
    [
        ("0", 1, "Too many: 3 more than --fail-over 0."),
        ("2", 1, "Too many: 1 more than --fail-over 2."),
        ("3", 0, "As many as --fail-over 3 allows."),
        ("5", 0, "Fewer than --fail-over 5: lower it to 3, so that none comes back."),
    ],
)
def test_more_uses_than_the_ratchet_holds_fail(service: Shell, limit: str, code: int, said: str) -> None:
    ran = audit(service, "--fail-over", limit)

    assert (ran.code, ran.stdout.splitlines()[-1]) == (code, said)


def test_control_a_use_that_is_hidden_from_the_audit_is_not_counted(service: Shell) -> None:
    """The ratchet holds what is found: without the file that has the uses it would let them pass."""
    assert audit(service, "--fail-over", "2").code == 1
    assert audit(service, "--fail-over", "2", "--exclude", "service.py").code == 0


def test_a_file_that_does_not_parse_is_named_and_makes_the_run_say_so(service: Shell) -> None:
    (service.folder / "code" / "old.py").write_text("print 'no trips'\n")

    ran = audit(service, "--fail-over", "3")
    document = audit(service, "--json").document

    assert ran.code == 3
    assert "NOT LOOKED AT: old.py:1 does not parse" in ran.stdout
    assert "1 file could not be looked at." in ran.stdout
    assert document["is_complete"] is False
    assert [each["file"] for each in document["unread"]] == ["old.py"]
    assert audit(service, "--fail-over", "2").code == 1


def test_no_use_is_not_called_clean_while_the_table_of_a_model_cannot_be_told(service: Shell) -> None:
    """I12: what cannot be told is not reported as clean; a reason beside the class says that it is no such model."""
    model = "from company import Base\n\n\nclass Row(Base):{}\n    id = mapped_column()\n"
    rows = service.folder / "code" / "rows.py"
    rows.write_text(model.format(""))

    ran = service.call("audit", "code", "code", "--table", "fares")

    assert ran.code == 3
    assert "Of 1 model the table cannot be told" in ran.stdout
    assert (
        service.call("audit", "code", "code", "--table", "fares", "--json").document["untold"][0]["file"] == "rows.py"
    )
    # A text that happens to be the name of the table is a use, and no sign that the model was understood.
    rows.write_text(f"{model.format('')}\n\ndef search(word):\n    pass\n\n\nsearch('fares')\n")
    named = service.call("audit", "code", "code", "--table", "fares", "--fail-over", "1")
    assert named.code == 3
    assert "1 use in" in named.stdout
    assert "Give each a table name that can be read" in named.stdout
    rows.write_text(model.format("  # tripstore: allow kept in memory"))
    assert service.call("audit", "code", "code", "--table", "fares").code == 0


def test_a_folder_without_code_is_not_taken_for_a_clean_one(shell: Shell) -> None:
    (shell.folder / "empty").mkdir()

    ran = shell.call("audit", "code", "empty", "--table", "trips", "--fail-over", "0")

    assert ran.code == 3
    assert "nothing was looked at" in ran.stdout


def test_the_tables_of_the_layout_are_meant_when_none_is_named(service: Shell) -> None:
    nothing = service.call("audit", "code", "code")
    assert nothing.code == 2
    assert "--table trips" in nothing.complaint

    service.call("init")
    config = service.folder / "tripstore.yaml"
    no_layout = service.call("audit", "code", "code", "--json")
    assert no_layout.code == 2
    assert "legacy.layout" in no_layout.document["error"]["message"]

    kept = re.sub(r"^legacy:.*?(?=^\S|\Z)", "", config.read_text(), flags=re.MULTILINE | re.DOTALL)
    config.write_text(kept + LAYOUT)
    assert service.call("audit", "code", "code", "--json").document["uses"] == 3


def test_wrong_calls_are_refused(service: Shell) -> None:
    assert service.call("audit", "code", "nowhere", "--table", "trips").code == 2
    assert service.call("audit", "code", "code", "--table", "a.b.c").code == 2
    assert audit(service, "--fail-over", "-1").code == 2


def test_the_page_shows_what_the_command_finds(shell: Shell) -> None:
    fences = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    example = next(text for language, text in fences if language == "py")
    [shown] = [text for language, text in fences if language == "text"]
    (shell.folder / "services").mkdir()
    (shell.folder / "services" / "billing.py").write_text(example)
    [command] = [line for language, text in fences if language == "bash" for line in text.splitlines()]

    ran = shell.call(*shlex.split(command)[1:])

    printed = [line.split() for line in ran.stdout.splitlines()]
    assert all(line.split() in printed for line in shown.splitlines() if line.strip())
