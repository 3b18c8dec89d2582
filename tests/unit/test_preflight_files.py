"""Files of statements: scripts, logs of Postgres, statistics; what cannot be read is said, and counted."""

from __future__ import annotations

import pytest

from schemaless_core.errors import InvalidRequest
from tripstore.audit.preflight.asked import Asked
from tripstore.audit.preflight.files import Form, guessed, read_statements
from tripstore.audit.preflight.grammar import UnreadableStatement, fingerprint, parsed

SCRIPT = r"""
-- a comment; with a semicolon
SELECT ';' FROM trips;
\set who 'me'
COPY trips (id) FROM stdin;
1	it's; quoted
\.
DO $$ BEGIN; END $$;
UPDATE trips
SET fare = %s
"""
STDERR = """\
2026-01-02 10:00:00.000 UTC [12] app@rides LOG:  statement: SELECT 1
\tFROM trips;
2026-01-02 10:00:00.000 UTC [12] app@rides LOG:  duration: 0.2 ms  parse s1: SELECT 9
2026-01-02 10:00:00.100 UTC [12] app@rides LOG:  execute s1: UPDATE trips SET fare = $1
2026-01-02 10:00:00.100 UTC [12] app@rides DETAIL:  parameters: $1 = '2'
2026-01-02 10:00:00.200 UTC [12] app@rides LOG:  duration: 3.1 ms  statement: SELECT 2
2026-01-02 10:00:00.300 UTC [12] app@rides ERROR:  relation "x" does not exist
2026-01-02 10:00:00.300 UTC [12] app@rides STATEMENT:  SELECT * FROM x
2026-01-02 10:00:00.400 UTC [1] LOG:  fastpath function call: "lo_open" (OID 952)
"""
CSVLOG = (
    '2026-01-02 10:00:00.000 UTC,"app","rides",12,"[local]",69.c,1,"SELECT",2026-01-02 10:00:00 UTC,3/4,0,LOG,00000,'
    '"statement: SELECT ""id""\nFROM trips;",,,,,,,,,"psql","client backend",,0\n'
    '2026-01-02 10:00:01.000 UTC,"app","rides",12,"[local]",69.c,2,"idle",2026-01-02 10:00:00 UTC,3/4,0,ERROR,42P01,'
    '"no relation",,,,,"SELECT 3",,,,"psql","client backend",,0\n'
)
JSONLOG = (
    '{"timestamp":"2026-01-02 10:00:00.000 UTC","error_severity":"LOG","message":"execute <unnamed>: SELECT $1"}\n{]\n'
)
STATISTICS = 'query,calls,rows\n"SELECT id\nFROM trips",7,70\n<insufficient privilege>,3,3\n'


def texts(found: list[Asked]) -> list[tuple[str, str]]:
    return [(each.where, each.text) for each in found if each.unreadable is None]


def unread(found: list[Asked]) -> list[str]:
    return [each.where for each in found if each.unreadable is not None]


def test_a_script_is_cut_where_psql_cuts_it() -> None:
    found = read_statements(SCRIPT, "week.sql")

    assert texts(found) == [
        ("week.sql:3", "SELECT ';' FROM trips"),
        ("week.sql:5", "COPY trips (id) FROM stdin"),
        ("week.sql:8", "DO $$ BEGIN; END $$"),
        ("week.sql:9", "UPDATE trips\nSET fare = %s"),
    ]
    assert unread(found) == ["week.sql:4"]


def test_a_log_gives_what_was_executed_once_and_nothing_that_failed() -> None:
    found = read_statements(STDERR, "pg.log")

    assert texts(found) == [
        ("pg.log:1", "SELECT 1\nFROM trips"),
        ("pg.log:4", "UPDATE trips SET fare = $1"),
        ("pg.log:6", "SELECT 2"),
    ]
    assert unread(found) == ["pg.log:9"]


@pytest.mark.parametrize(
    ("text", "form", "statements", "unreadable"),
    [
        (CSVLOG, Form.CSVLOG, [("f:1", 'SELECT "id"\nFROM trips')], []),
        (JSONLOG, Form.JSONLOG, [("f:1", "SELECT $1")], ["f:2"]),
        (STATISTICS, Form.STATISTICS, [("f:2", "SELECT id\nFROM trips")], ["f:4"]),
        (STDERR, Form.LOG, None, ["f:9"]),
        (SCRIPT, Form.SQL, None, ["f:4"]),
        ("2026-01-02 10:00:00.000 UTC [1] LOG:  statement: SELECT a, b", Form.LOG, [("f:1", "SELECT a, b")], []),
    ],
)
def test_each_form_is_told_from_the_others(
    text: str, form: Form, statements: list[tuple[str, str]] | None, unreadable: list[str]
) -> None:
    assert guessed(text) is form
    found = read_statements(text, "f")
    assert unread(found) == unreadable
    if statements is not None:
        assert texts(found) == statements


def test_statistics_bring_their_counts() -> None:
    (first, _) = read_statements(STATISTICS, "f")

    assert (first.calls, first.rows) == (7, 70)


def test_a_file_without_a_statement_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"no statement in empty\.log, read as log"):
        read_statements("2026 LOG:  checkpoint complete\n", "empty.log")


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE trips SET fare = %s WHERE id = %(id)s",
        "UPDATE trips SET fare = :fare WHERE id = ?",
        "SET application_name = $1",
        "SELECT now() - interval $1",
        "INSERT INTO trips (fare) VALUES (?, ?)",
    ],
)
def test_placeholders_of_drivers_stand_for_values(text: str) -> None:
    assert len(parsed(text)) == 1


def test_statements_that_differ_in_values_alone_are_of_one_kind() -> None:
    assert fingerprint("SELECT 1 FROM trips WHERE id = 4") == fingerprint("select 2 from trips where id = %s")
    assert fingerprint("SELECT 1 FROM trips") != fingerprint("SELECT 1 FROM users")


def test_what_is_no_statement_is_not_guessed_at() -> None:
    with pytest.raises(UnreadableStatement, match="syntax error"):
        parsed("SELECT FROM WHERE")
