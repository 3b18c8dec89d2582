"""`tripstore audit db`: who still uses the company's tables without us."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.companies import Companies, Company, companies_on
from tripstore.demo.legacy import LAYOUT
from tripstore.local.servers import LocalServers


@pytest.fixture(scope="module")
def companies(servers: LocalServers) -> Iterator[Companies]:
    made = companies_on(servers, "machine", "audited")
    yield made
    made.drop()


@pytest.fixture
def company(companies: Companies) -> Company:
    return companies.seeded(20)


@pytest.fixture
def office(store: Shell, company: Company) -> Shell:
    """A datastore whose legacy store is the company's, with capture installed."""
    config = store.folder / "tripstore.yaml"
    legacy = {"legacy": {"postgres": company.url, "layout": str(LAYOUT)}}
    config.write_text(re.sub(r"(?m)^#.*\n", "", config.read_text()) + "\n" + yaml.safe_dump(legacy))
    assert store.call("schema", "apply").code == 0
    return store


def write_as(company: Company, application: str, *statements: str) -> None:
    with closing(psycopg2.connect(company.url, application_name=application)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def test_writers_are_told_by_application_and_role(office: Shell, company: Company) -> None:
    write_as(
        company,
        "dispatch",
        "SET ROLE svc_support",
        "UPDATE trip_notes SET text = text || '!' WHERE n = 1",
        "UPDATE trip_notes SET reads = reads + 1",  # not mapped: no change
    )
    ((notes,),) = [row.values() for row in company.query("SELECT count(*) FROM trip_notes WHERE n = 1")]

    found = json.loads(office.call("audit", "db", "--json").stdout)

    written = [(each["table"], each["application"], each["role"], each["changes"]) for each in found["writers"]]
    assert written == [("trip_notes", "dispatch", "svc_support", notes)]
    text = office.call("audit", "db").stdout
    assert re.search(rf"trip_notes +dispatch +svc_support +{notes} ", text)


def test_changes_through_the_facade_count_for_no_service(office: Shell, company: Company) -> None:
    write_as(company, "mirror", "BEGIN; SET LOCAL tripstore.origin = 'reverse'")  # of another transaction
    write_as(
        company,
        "mirror",
        "BEGIN; SET LOCAL tripstore.origin = 'reverse'; "
        "UPDATE trips SET fare_amount = 7, base_version = 9 WHERE id = 1; COMMIT",
    )

    assert json.loads(office.call("audit", "db", "--json").stdout)["writers"] == []


def test_a_time_leaves_out_what_was_before(office: Shell, company: Company) -> None:
    write_as(company, "dispatch", "UPDATE trips SET fare_amount = 3 WHERE id = 1")

    found = json.loads(office.call("audit", "db", "--since", "2100-01-01", "--json").stdout)

    assert found["writers"] == []
    assert found["known_since"] is not None
    assert office.call("audit", "db", "--since", "2100-01-01").stdout.startswith("only tripstore has written")


def test_readers_are_told_where_the_extension_is_and_said_to_be_unknown_where_not(
    office: Shell, company: Company
) -> None:
    assert "pg_stat_statements is not installed" in office.call("audit", "db").stderr
    assert json.loads(office.call("audit", "db", "--json").stdout)["statements"] is None

    company.query("CREATE EXTENSION pg_stat_statements")
    write_as(company, "report", "SET ROLE svc_support", "SELECT count(*) FROM trips WHERE city_id = 1")

    found = json.loads(office.call("audit", "db", "--json").stdout)["statements"]
    reads = [each for each in found if each["role"] == "svc_support" and each["access"] == "read"]
    assert [(each["table"], each["calls"]) for each in reads] == [("trips", 1)]
    assert "SELECT count(*) FROM trips" in office.call("audit", "db").stdout


def test_without_a_legacy_store_it_says_what_to_write(store: Shell) -> None:
    refused = store.call("audit", "db")

    assert refused.code == 2
    assert "legacy" in refused.stderr
