"""`tripstore init --from`: from the company's tables to a layout that `schema plan` takes; nothing is overwritten."""

from __future__ import annotations

import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
import pytest
import yaml

from tests.acceptance.conftest import Ran, Shell
from tests.layouts import FLAVOURS, company_database
from tripstore.config import load_config
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

ASKED = ("--table", "trips", "--table", "billing_attempts", "--table", "trip_notes")


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


@pytest.fixture
def company(servers: LocalServers) -> str:
    """The URL of a database with the company's tables."""
    return company_database(servers, "machine")


def password(url: str) -> str:
    return url.partition("postgres:")[2].partition("@")[0]


def test_from_tables_to_a_plan_in_two_commands(shell: Shell, servers: LocalServers, flavour: Flavour) -> None:
    url = company_database(servers, flavour)
    kept_out = url.replace(password(url), "${PG_PASSWORD}")

    ran = shell.run("init", "--from", kept_out, *ASKED, environment={"PG_PASSWORD": password(url)})

    assert ran.code == 0, ran.stderr
    assert "look at: " in ran.stdout
    assert "`tripstore schema plan`" in ran.stdout
    assert stat.S_IMODE((shell.folder / "tripstore.yaml").stat().st_mode) == 0o600
    assert password(url) not in (shell.folder / "tripstore.yaml").read_text() + ran.stdout + ran.stderr
    planned = shell.run("schema", "plan", environment={"PG_PASSWORD": password(url)})
    assert planned.code == 0, planned.stdout + planned.stderr
    assert "steps are to do; `tripstore schema apply` does them in this order." in planned.stdout
    assert password(url) not in planned.stdout + planned.stderr


def test_rows_are_facts_only_where_the_operator_says_so(shell: Shell, servers: LocalServers, flavour: Flavour) -> None:
    """The control is the other table, and the same call without --facts."""
    url = company_database(servers, flavour)

    def ref_keys(*facts: str) -> dict[str, dict[str, str]]:
        assert shell.call("init", "--from", url, *ASKED, *facts, "--force").code == 0
        columns = yaml.safe_load((shell.folder / "layout.yaml").read_text())["columns"].values()
        return {column["table"]: column["ref_key"] for column in columns}

    asked = ref_keys("--facts", "billing_attempts")
    assert asked["billing_attempts"].keys() == {"column"}
    assert asked["trip_notes"].keys() == {"column", "version"}
    planned = shell.call("schema", "plan")
    assert planned.code == 0, planned.stdout + planned.stderr
    assert "no statement was held against the facts" in planned.stdout

    assert ref_keys()["billing_attempts"].keys() == {"column", "version"}
    assert "held against the facts" not in shell.call("schema", "plan").stdout


def test_facts_of_a_table_that_is_not_taken_are_refused(shell: Shell, company: str) -> None:
    ran = shell.call("init", "--from", company, "--table", "trips", "--facts", "billing_attempts")

    assert ran.code == 2
    assert "--facts billing_attempts is none of the tables." in ran.complaint
    assert "--table billing_attempts" in ran.complaint
    assert not (shell.folder / "layout.yaml").exists()


def test_init_from_changes_nothing_in_the_database(shell: Shell, company: str) -> None:
    def relations() -> list[tuple[object, ...]]:
        connection = psycopg2.connect(company)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute("SELECT oid, relname, relnatts FROM pg_class WHERE oid >= 16384 ORDER BY oid")
                return cursor.fetchall()
        finally:
            connection.close()

    before = relations()

    assert shell.call("init", "--from", company, *ASKED).code == 0
    assert relations() == before


def test_a_layout_that_is_there_is_kept_until_forced_and_so_is_the_configuration(shell: Shell, company: str) -> None:
    layout, config = shell.folder / "layout.yaml", shell.folder / "tripstore.yaml"
    layout.write_text("precious: layout\n")
    config.write_text("datastore: rides\nshards: 4\nclusters: {a: {primary: sqlite:///a}}\n")

    refused = shell.call("init", "--from", company, *ASKED)

    assert refused.code == 2
    assert "layout.yaml" in refused.complaint
    assert "--force" in refused.complaint
    assert layout.read_text() == "precious: layout\n"

    forced = shell.call("init", "--from", company, *ASKED, "--force")
    assert forced.code == 0
    assert yaml.safe_load(layout.read_text())["datastore"] == "rides"
    assert config.read_text().startswith("datastore: rides\nshards: 4\n")
    assert "legacy: {postgres: postgresql://…, layout: " in forced.stdout


def test_what_was_not_decided_is_in_the_document_too(shell: Shell, company: str) -> None:
    ran = shell.call("init", "--from", company, *ASKED, "--layout", "tables.yaml", "--json")

    assert ran.code == 0
    assert ran.document["layout"] == "tables.yaml"
    assert any("trips.updated_at" in remark for remark in ran.document["undecided"])
    legacy = load_config(shell.folder / "tripstore.yaml").legacy
    assert legacy is not None
    assert [str(table) for table in sorted(legacy.layout.tables)] == ["billing_attempts", "trip_notes", "trips"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--table", "trips"), "belong together"),
        (("--layout", "l.yaml"), "belong together"),
        (("--from", "postgresql://a@h/d"), "belong together"),
        (("--from", "mysql://a:S3cr3t@h", "--table", "trips"), "is no URL of Postgres"),
        (("--from", "postgresql://a:S3cr3t@h", "--table", "trips"), "names no database"),
        (("--from", "postgresql://a:${NOT_SET}@h/d", "--table", "trips"), "is not set"),
        (("--from", "postgresql://a:S3cr3t@127.0.0.1:1/d", "--table", "trips"), "cannot be reached"),
        (("--from", "postgresql+asyncpg://a:S3cr3t@h/d", "--table", "trips"), "Leave out +asyncpg"),
        (("--from", "postgres+psycopg2://a:S3cr3t@h/d", "--table", "trips"), "Leave out +psycopg2"),
        (("--from", "jdbc:postgresql://a:S3cr3t@h/d", "--table", "trips"), "Leave out jdbc:"),
        (("--from", "postgresql://a:x@S3cr3t@h/d", "--table", "trips"), "Write a password's @"),
    ],
)
def test_nothing_is_written_when_the_call_cannot_be(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    ran = shell.call("init", *arguments)

    assert ran.code in (1, 2)
    assert words in ran.complaint
    assert "S3cr3t" not in ran.stdout + ran.stderr
    assert list(shell.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("of_url", "way_out"),
    [
        ({"host": "nowhere.invalid"}, "No host has this name: check the host, in --from."),
        ({"port": "1"}, "Nothing listens there: check host and port, and that Postgres runs, in --from."),
        ({"port": "99999"}, "check the port, in --from."),
        ({"password": "wr0ng"}, "Check user and password; in a password @ is %40"),
        ({"password": ""}, "Postgres asks for a password, and there is none"),
        ({"user": "ann"}, "Check user and password"),
        ({"database": "riders"}, "Check the database's name, the last part of the URL, in --from."),
        ({"options": "?sslmode=require"}, "check sslmode, in --from."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_part_of_a_url_that_is_wrong_is_named(
    shell: Shell, company: str, of_url: dict[str, str], way_out: str
) -> None:
    """The control is the same URL as it is: it leads in, and `postgres://` is one, too."""
    parts = urlsplit(company)
    right = {"user": "postgres", "password": password(company), "host": "127.0.0.1", "port": str(parts.port)}
    right |= {"database": parts.path[1:], "options": ""}

    def asked(scheme: str, of: dict[str, str]) -> Ran:
        secret = of["password"] and f":{of['password']}"
        url = f"{scheme}://{of['user']}{secret}@{of['host']}:{of['port']}/{of['database']}{of['options']}"
        return shell.call("init", "--from", url, "--table", "trips")

    wrong = asked("postgresql", right | of_url)
    assert wrong.code == 1
    assert way_out in wrong.complaint
    assert not {password(company), "wr0ng"} & set(wrong.stderr.replace(":", " ").replace("@", " ").split())
    assert asked("postgres", right).code == 0


def test_what_listens_and_is_no_postgres_is_said(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as answering:

        def answer() -> None:
            client, _address = other.accept()
            with client:
                client.recv(8)
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        answering.submit(answer)
        ran = shell.call("init", "--from", f"postgresql://a@127.0.0.1:{other.getsockname()[1]}/d", "--table", "trips")

    assert "What listens there is no Postgres: check the port, in --from." in ran.complaint


def test_a_table_that_is_not_there_is_named_with_the_one_that_was_meant(shell: Shell, company: str) -> None:
    ran = shell.call("init", "--from", company, "--table", "trip")

    assert ran.code == 2
    assert "There is no table trip." in ran.complaint
    assert "Did you mean trips?" in ran.complaint
    assert not Path(shell.folder / "layout.yaml").exists()


TWINS = """
CREATE SCHEMA "Ops"; CREATE SCHEMA ops; CREATE SCHEMA "o.p";
CREATE TABLE "Ops"."Order" (id serial PRIMARY KEY, uuid uuid NOT NULL UNIQUE, of_upper int);
CREATE TABLE ops.order (id serial PRIMARY KEY, uuid uuid NOT NULL UNIQUE, of_lower int);
CREATE TABLE "o.p"."a.b" (id serial PRIMARY KEY, uuid uuid NOT NULL UNIQUE, of_dots int);
CREATE TABLE orders (id serial PRIMARY KEY, uuid uuid NOT NULL UNIQUE, of_public int);
"""


def test_tables_are_named_as_psql_quotes_them_and_near_misses_are_named_so_too(
    shell: Shell, servers: LocalServers
) -> None:
    """The control: two tables that differ by their case alone are never taken for each other."""
    url = company_database(servers, "machine", TWINS)

    def asked(name: str) -> str:
        """The column that only the table has which was taken; or what was said."""
        ran = shell.call("init", "--from", url, "--table", name, "--force")
        if ran.code != 0:
            return ran.complaint
        (column,) = yaml.safe_load((shell.folder / "layout.yaml").read_text())["columns"].values()
        assert shell.call("schema", "plan").code == 0
        (field,) = [field for field in column["fields"] if field.startswith("of_")]
        return str(field)

    for name in ('"Ops"."Order"', 'Ops."Order"', "Ops.Order"):
        assert asked(name) == "of_upper"
    for name in ("ops.order", 'ops."order"', '"ops"."order"'):
        assert asked(name) == "of_lower"
    assert asked('"o.p"."a.b"') == "of_dots"
    assert asked('"public"."orders"') == asked("orders") == "of_public"
    for name, meant in {
        '"Ops"."order"': "Ops.Order or ops.order",
        "OPS.ORDER": "Ops.Order or ops.order",
        "order": "Ops.Order or ops.order or orders",
        '"Ops.Order"': "Ops.Order or ops.order",
        '"o.p".a': '"o.p"."a.b"',
        "Orders": "orders",
    }.items():
        assert f"Did you mean {meant}?" in asked(name), name
    assert "in schema nowhere that this role could see; there are some in Ops, o.p, ops, public." in asked(
        "nowhere.invoice_lines"
    )
    assert "in quotes: --table" in asked("o.p.a.b")
