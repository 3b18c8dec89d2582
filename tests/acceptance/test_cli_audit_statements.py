"""`tripstore audit statements`: files and statistics, what it prints, and what its exit code says."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg2
import pytest
import yaml

from tests.acceptance.conftest import Ran, Shell
from tests.layouts import COMPANY, company_database, document
from tests.preflights import MORE
from tripstore.local.servers import LocalServers

READS = "SELECT status FROM trips WHERE id = %s;\n"
ASKED = ("--table", "trips", "--table", "trip_notes")


@pytest.fixture(scope="module")
def url(servers: LocalServers) -> str:
    """The company's database; nothing of ours is in it."""
    return company_database(servers, "machine", COMPANY + MORE)


@pytest.fixture
def office(shell: Shell) -> Shell:
    (shell.folder / "layout.yaml").write_text(yaml.safe_dump(document()))
    return shell


def audit(shell: Shell, text: str, *options: str) -> Ran:
    (shell.folder / "week.sql").write_text(text)
    return shell.call("audit", "statements", "week.sql", "--layout", "layout.yaml", *options)


def test_each_statement_has_its_verdicts_reasons_and_place(office: Shell, url: str) -> None:
    ran = audit(office, READS + "\nTRUNCATE trip_notes;\nSELECT count(*) FROM trips;\n", "--from", url)

    assert ran.code == 1
    assert "week.sql:3  TRUNCATE trip_notes" in ran.stdout
    assert "off–rampdown" in ran.stdout
    assert "(TS005)" in ran.stdout
    assert "it calls a function or an aggregate" in ran.stdout
    assert "3 kinds of statements, 3 calls, from week.sql." in ran.stdout
    assert "SELECT status" not in ran.stdout  # Nothing is to be said of it.


def test_the_document_has_everything(office: Shell, url: str) -> None:
    text = "UPDATE trips SET fare_amount = 1 WHERE id = 2;\nUPDATE trips SET fare_amount = 3 WHERE id = 4;"
    document = audit(office, text, "--from", url, "--json").document

    (finding,) = document["findings"]
    assert (finding["where"], finding["places"], finding["calls"]) == ("week.sql:1", 2, 2)
    assert finding["verdicts"] == {
        **dict.fromkeys(("off", "dualwrite", "shadow"), "slowed"),
        **dict.fromkeys(("live", "rampdown", "complete"), "refused"),
    }
    assert [reason["sqlstate"] for reason in finding["reasons"]] == ["TS001", None]
    assert document["phases"][0] == {"phase": "off", "verdicts": {**_no_verdicts(), "slowed": 1}}


def _no_verdicts() -> dict[str, int]:
    return dict.fromkeys(("fine", "slowed", "unserved", "unclear", "breaks", "refused"), 0)


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        (READS, (), 0),
        ("UPDATE trips SET fare_amount = 1 WHERE id = 2", (), 1),  # Refused after the switch.
        ("UPDATE trips SET fare_amount = 1 WHERE id = 2", ("--phase", "off", "--phase", "shadow"), 0),
        ("SELECT count(*) FROM trips", ("--phase", "live"), 1),
        ("SELECT count(*) FROM trips", ("--phase", "dualwrite"), 0),
        ("SELECT bill(1)", (), 3),
        (READS + "SELEC 1", (), 3),
        ("SELEC 1; TRUNCATE trips", (), 1),
    ],
)
def test_the_exit_code_speaks_of_the_phases_that_were_asked_for(
    office: Shell, url: str, text: str, options: tuple[str, ...], code: int
) -> None:
    assert audit(office, text, "--from", url, *options).code == code


def test_without_a_database_nothing_is_verified(office: Shell) -> None:
    """I12: a clean list is not called fine while views, triggers and cascades were not looked at."""
    ran = audit(office, READS)

    assert ran.code == 3
    assert "No database was asked" in ran.stdout


def test_tables_are_enough_where_the_database_can_be_asked(shell: Shell, url: str) -> None:
    (shell.folder / "week.sql").write_text("UPDATE trips SET id = 9 WHERE id = 5")

    ran = shell.call("audit", "statements", "week.sql", "--from", url, *ASKED)

    assert ran.code == 1
    assert "(TS002)" in ran.stdout
    assert not Path(shell.folder / "layout.yaml").exists()


def test_the_database_is_asked_what_it_counted_and_nothing_is_changed_in_it(office: Shell, url: str) -> None:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION pg_stat_statements")
        cursor.execute("SELECT pg_stat_statements_reset()")
        for trip in (1, 2, 3):
            cursor.execute("UPDATE trips SET fare_amount = 4 WHERE driver_id = %s", (trip,))
        cursor.execute("SELECT count(*) FROM pg_class")
        before = cursor.fetchone()
        ran = office.call("audit", "statements", "--layout", "layout.yaml", "--from", url, "--json")
        cursor.execute("SELECT count(*) FROM pg_class")
        assert cursor.fetchone() == before
        cursor.execute("DROP EXTENSION pg_stat_statements")
    connection.close()

    found = {each["statement"]: each for each in ran.document["findings"]}
    update = found["UPDATE trips SET fare_amount = $1 WHERE driver_id = $2"]
    assert (update["calls"], update["rows"]) == (3, 5)
    assert any("7 times" in reason["text"] for reason in update["reasons"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("week.sql",), "No layout is named."),
        (("week.sql", "--table", "trips"), "--from URL beside --table"),
        ((), "no database to ask"),
        (("week.sql", "--layout", "layout.yaml", "--table", "trips"), "exclude each other"),
    ],
)
def test_a_call_that_lacks_something_says_what(office: Shell, arguments: tuple[str, ...], words: str) -> None:
    (office.folder / "week.sql").write_text(READS)

    ran = office.call("audit", "statements", *arguments)

    assert ran.code == 2
    assert words in ran.complaint


def test_a_database_that_does_not_count_says_what_to_do(office: Shell, url: str) -> None:
    ran = office.call("audit", "statements", "--layout", "layout.yaml", "--from", url)

    assert ran.code == 2
    assert "CREATE EXTENSION pg_stat_statements" in ran.complaint


def test_the_page_shows_what_is_printed(office: Shell, url: str) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/preflight.md").read_text()
    (script,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)

    printed = audit(office, script, "--from", url).stdout

    assert lines(printed)[: len(lines(shown))] == lines(shown)


def lines(text: str) -> list[str]:
    """Without the blanks that columns are filled with."""
    return [" ".join(line.split()) for line in text.splitlines()]
