"""`tripstore ids`: how far the tables are, which id is which UUID, and the page that tells of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.integration.id_company import (
    FULL_SPEED,
    LAYOUT,
    QUICK,
    ROWS,
    SCHEMA,
    apply,
    company_session,
    database,
    postgres,
    session,
)
from tripstore.backends.postgres.ids.ids import uuid_of_id
from tripstore.backends.postgres.ids.key_columns import AddColumn
from tripstore.backends.postgres.ids.key_triggers import FillNewRows
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.servers import LocalServers

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "ids-to-uuids.md"


@pytest.fixture
def url(servers: LocalServers) -> Iterator[str]:
    with database(postgres(servers, "machine")) as made:
        with company_session(made) as company:
            rows(company, SCHEMA)
            rows(company, ROWS.format(count=20))
        yield made


@pytest.fixture
def office(store: Shell, url: str) -> Shell:
    """A datastore with a legacy store."""
    (store.folder / "layout.yaml").write_text(yaml.safe_dump(dict(LAYOUT.to_document()), sort_keys=False))
    config = store.folder / "tripstore.yaml"
    legacy = {"legacy": {"postgres": url, "layout": "layout.yaml"}}
    config.write_text(re.sub(r"(?m)^#.*\n", "", config.read_text()) + "\n" + yaml.safe_dump(legacy))
    return store


def test_status_says_what_is_to_be_done_and_what_is_done(office: Shell, url: str) -> None:
    before = office.call("ids", "status")
    assert before.code == 1
    assert before.stdout.count("to do") == 20
    assert "tripstore schema apply" in before.stderr

    with session(url) as ours:
        apply(ours, id_steps(LAYOUT)[:2])
    midway = office.call("ids", "status", "--json")
    assert (midway.code, midway.document["is_done"]) == (1, False)
    [trips, *children] = midway.document["columns"]
    assert [step["is_done"] for step in trips["steps"]] == [True, True, False, False, False]
    assert (trips["table"], trips["column"], trips["is_ours"], trips["is_done"]) == ("trips", "trip_uuid", True, False)
    assert {child["is_ours"] for child in children} == {None}

    with session(url) as ours:
        apply(ours, id_steps(LAYOUT))
        rows(ours, "ANALYZE")
    after = office.call("ids", "status", "--json")
    assert (after.code, after.document["is_done"]) == (0, True)
    assert [column["estimated_rows"] for column in after.document["columns"]] == [20, 20, 20, 10]
    assert office.run("ids", "status").stdout.count("done") == 20


def test_keys_that_are_not_their_parents_are_counted_when_asked(office: Shell, url: str) -> None:
    early = office.call("ids", "status", "--verify", "--json")
    assert {column["strays"] for column in early.document["columns"]} == {None}
    with session(url) as ours:
        apply(ours, id_steps(LAYOUT))
        assert office.call("ids", "status", "--verify").code == 0
        rows(ours, "UPDATE public.trip_notes SET trip_uuid = gen_random_uuid() WHERE trip_id IN (3, 6)")

    assert office.call("ids", "status").code == 0
    ran = office.call("ids", "status", "--verify")
    assert (ran.code, "2 rows of trip_notes have no key" in ran.stderr) == (1, True)
    assert [column["strays"] for column in office.call("ids", "status", "--verify", "--json").document["columns"]] == [
        0, 2, 0, 0,
    ]  # fmt: skip


def test_a_column_of_the_companys_is_said_to_be_theirs(office: Shell, url: str) -> None:
    with company_session(url) as company:
        rows(company, "ALTER TABLE trips ADD COLUMN trip_uuid uuid NOT NULL UNIQUE DEFAULT gen_random_uuid()")

    ran = office.call("ids", "status")

    assert ran.code == 1
    assert "trips.trip_uuid is the company's own" in ran.stderr


def test_ids_and_uuids_are_resolved_in_the_order_of_the_question(office: Shell, url: str) -> None:
    with session(url) as ours:
        apply(ours, id_steps(LAYOUT))
    known, stranger = uuid_of_id(LAYOUT, 3), uuid4()

    ran = office.call("ids", "resolve", "6", str(known), "-5", str(stranger), "--json")
    shown = office.call("ids", "resolve", "6", str(stranger))
    fine = office.run("ids", "resolve", "3")

    assert ran.code == 1
    assert ran.document["pairs"] == [
        {"id": 6, "row_key": str(uuid_of_id(LAYOUT, 6))},
        {"id": 3, "row_key": str(known)},
        {"id": -5, "row_key": None},
        {"id": None, "row_key": str(stranger)},
    ]
    assert (shown.code, shown.stdout.count("unknown")) == (1, 1)
    assert (fine.code, str(known) in fine.stdout) == (0, True)


@pytest.mark.parametrize("value", ["trip", "1.5", "99999999999999999999", "9999999999999999999"])
def test_what_is_neither_an_id_nor_a_uuid_is_refused(office: Shell, value: str) -> None:
    ran = office.call("ids", "resolve", value)

    assert ran.code == 2
    assert value in ran.complaint


def test_before_the_first_step_resolve_says_what_to_do(office: Shell) -> None:
    ran = office.call("ids", "resolve", "3")

    assert ran.code == 2
    assert "There is no trips.trip_uuid. " not in ran.stdout
    assert "tripstore schema apply" in ran.complaint


def test_without_a_legacy_store_it_is_said_how_to_name_one(store: Shell) -> None:
    for arguments in (("ids", "status"), ("ids", "resolve", "3")):
        ran = store.call(*arguments)
        assert (ran.code, "legacy" in ran.complaint) == (2, True)


def test_a_server_that_is_gone_is_unavailable_and_no_surprise(office: Shell, url: str) -> None:
    config = office.folder / "tripstore.yaml"
    config.write_text(re.sub(r"@127\.0\.0\.1:\d+", "@127.0.0.1:1", config.read_text()))

    ran = office.call("ids", "status")

    assert ran.code == 1
    assert "Postgres cannot be reached" in ran.complaint


def test_the_page_computes_what_postgres_gives(url: str) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    printed: list[object] = []
    exec(code, {"print": printed.append})

    assert printed == [uuid_of_id(LAYOUT, 4711)]
    with session(url) as ours:
        apply(ours, id_steps(LAYOUT)[:2])
        [(uuid,)] = rows(ours, "INSERT INTO public.trips (id) VALUES (4711) RETURNING trip_uuid")
    assert UUID(uuid) == printed[0]


def test_the_way_back_that_the_page_shows_leads_back(url: str) -> None:
    statements, *_index = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    steps = id_steps(LAYOUT, pace=FULL_SPEED, patience=QUICK)
    with session(url) as ours, company_session(url) as company:
        apply(ours, steps[:5])
        for statement in statements.split(";\n"):
            if statement.strip():
                rows(company, statement)

        assert not any(step.is_done(ours) for step in steps[:5])
        assert not any(isinstance(step, AddColumn | FillNewRows) and step.is_done(ours) for step in steps)
