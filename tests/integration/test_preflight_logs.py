"""Logs as a real Postgres writes them, in all of its forms: what was sent is what the preflight reads."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest

from tests.chaos.actors import wait_until
from tripstore.audit.preflight.asked import Asked
from tripstore.audit.preflight.files import Form, guessed, read_statements
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers

LOGGING = {
    "logging_collector": "on",
    "log_destination": "stderr,csvlog,jsonlog",
    "log_filename": "postgres.log",
    "log_statement": "all",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
SENT = (
    'SELECT 1,\n\t2 -- two lines, "quoted"',
    "CREATE TABLE trips (id int, note text)",
    "INSERT INTO trips VALUES (1, 'é; \u2028 '''), (2, E'a\\nb')",
    "SELECT no_such_column FROM trips",
    "PREPARE noted AS UPDATE trips SET note = $1 WHERE id = $2",
    "EXECUTE noted ('x', 1)",
    "DO $$ BEGIN\n\n  PERFORM 1; END $$",
)
#: The last one says that the logs are written.
LAST = "SELECT 'the last one'"


@pytest.fixture(scope="module")
def logged(servers: LocalServers) -> PostgresServer:
    server = servers.postgres("logged", flavour="machine", settings=LOGGING)
    with closing(psycopg2.connect(f"{server.url}/postgres")) as connection:
        connection.autocommit = True
        for statement in (*SENT, LAST):
            with connection.cursor() as cursor:
                try:
                    cursor.execute(statement)
                except psycopg2.errors.UndefinedColumn:
                    continue
    return server


@pytest.mark.parametrize(
    ("suffix", "form"), [("log", Form.LOG), ("csv", Form.CSVLOG), ("json", Form.JSONLOG)], ids=lambda value: str(value)
)
def test_what_was_sent_is_read_from_each_form_of_a_log(logged: PostgresServer, suffix: str, form: Form) -> None:
    path = logged.place.data / "log" / f"postgres.{suffix}"
    wait_until("the log is written", lambda: path.exists() and LAST in path.read_text(), seconds=20)
    text = path.read_text()

    found = read_statements(text, path.name)

    assert guessed(text) is form
    assert [each for each in found if each.unreadable] == []
    assert ours(found) == [*SENT, LAST]


def ours(found: list[Asked]) -> list[str]:
    """From the first that was sent on: others asked whether the server answers."""
    texts = [each.text for each in found]
    return texts[texts.index(SENT[0]) : texts.index(LAST) + 1]
