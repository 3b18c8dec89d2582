"""A proposal loads, fits the tables it was made from, and says of everything else that it did not decide it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.layouts import FLAVOURS, company_database, document
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.check import check_layout
from tripstore.backends.postgres.layout.layout import Layout, Lookup, RefKeyKind, TableName
from tripstore.backends.postgres.layout.proposal import Proposal, propose
from tripstore.backends.postgres.layout.proposal_text import render, undecided
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

TABLES = ("billing_attempts", "trips", "trip_notes")


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    found: Flavour = request.param
    return found


class Proposed:
    """What is proposed for tables after some statements, and what is said of it."""

    def __init__(
        self, servers: LocalServers, flavour: Flavour, statements: str = "", tables: tuple[str, ...] = TABLES
    ) -> None:
        with connected(company_database(servers, flavour), "test", search_path="public") as connection:
            if statements:
                rows(connection, statements)
                rows(connection, "SELECT pg_stat_force_next_flush()")
            self.proposal: Proposal = propose(connection, [TableName("public", name) for name in tables], "trips")
            self.text = render(self.proposal)
            self.layout: Layout = load_layout(yaml.safe_load(self.text))
            self.errors = [str(each) for each in check_layout(connection, self.layout) if each.is_error]
        self.undecided = undecided(self.proposal)

    def says(self, words: str) -> bool:
        """In the list and in the text."""
        return any(words in remark for remark in self.undecided) and words.lower() in self.text.lower()


def test_a_proposal_loads_and_fits_the_tables(servers: LocalServers, flavour: Flavour) -> None:
    proposed = Proposed(servers, flavour)

    assert proposed.errors == []
    assert list(proposed.layout.columns) == ["BASE", "BILLING_ATTEMPTS", "NOTES"]
    assert proposed.layout.parent.table == TableName("public", "trips")
    assert proposed.layout.row_key.uuid == "trip_uuid"
    base = proposed.layout.parent.fields_by_name
    assert base["driver_uuid"].lookup == Lookup(TableName("public", "users"), "id", "user_uuid")
    hand_written = load_layout(document()).parent.fields_by_name
    assert {field.column: field.kind for field in base.values()} == {
        field.column: field.kind for field in hand_written.values()
    }
    assert proposed.says("updated_at: changes whenever anything does")


def test_child_rows_are_facts_only_when_nothing_says_that_they_change(servers: LocalServers, flavour: Flavour) -> None:
    filled = """
    INSERT INTO trips (id) VALUES (1);
    INSERT INTO billing_attempts (trip_id, attempt_no, result) VALUES (1, 1, 'declined'), (1, 2, 'captured');
    INSERT INTO trip_notes (trip_id, n, text) VALUES (1, 1, 'hello');
    """
    proposed = Proposed(servers, flavour, filled)

    assert proposed.layout.columns["BILLING_ATTEMPTS"].ref_key.kind is RefKeyKind.FACT
    assert proposed.says("facts: 2 inserts were counted, and no update")
    assert proposed.layout.columns["NOTES"].ref_key.kind is RefKeyKind.CHILD
    assert proposed.says("rows change: there is updated_at")


def test_rows_that_were_updated_are_no_facts(servers: LocalServers, flavour: Flavour) -> None:
    changed = """
    INSERT INTO trips (id) VALUES (1);
    INSERT INTO billing_attempts (trip_id, attempt_no, result) VALUES (1, 1, 'declined');
    UPDATE billing_attempts SET result = 'captured';
    """
    proposed = Proposed(servers, flavour, changed)

    assert proposed.layout.columns["BILLING_ATTEMPTS"].ref_key.kind is RefKeyKind.CHILD
    assert proposed.says("1 updates were counted")


def test_a_table_that_nobody_has_written_yet_is_not_taken_for_facts(servers: LocalServers) -> None:
    proposed = Proposed(servers, "machine")

    assert proposed.layout.columns["BILLING_ATTEMPTS"].ref_key.kind is RefKeyKind.CHILD
    assert proposed.says("nothing was counted here yet")


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ("ALTER TABLE trips ADD price money", "lc_monetary"),
        ("ALTER TABLE trips ADD twice numeric GENERATED ALWAYS AS (fare_amount * 2) STORED", "Postgres computes it"),
        ("ALTER TABLE trips ADD local_at timestamp", "has no time zone"),
        ('ALTER TABLE trips ADD "50%" int', "a character that is not supported"),
        (
            "CREATE TABLE cars (id int PRIMARY KEY); ALTER TABLE trips ADD car_id int REFERENCES cars (id)",
            "points to cars, which has no unique NOT NULL uuid",
        ),
    ],
)
def test_columns_that_it_cannot_decide_stand_as_comments(servers: LocalServers, statements: str, words: str) -> None:
    proposed = Proposed(servers, "machine", statements)

    assert proposed.says(words)
    assert proposed.errors == []


@pytest.mark.parametrize(
    ("statements", "words", "is_proposed"),
    [
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key",
            "its own key is taken for the number: CREATE UNIQUE INDEX CONCURRENTLY",
            True,
        ),
        (
            "ALTER TABLE trip_notes DROP COLUMN id, DROP CONSTRAINT trip_notes_trip_id_n_key",
            "no unique index on (trip_id, a whole number)",
            False,
        ),
        (
            "ALTER TABLE trip_notes DROP COLUMN id, DROP CONSTRAINT trip_notes_trip_id_n_key, ADD UNIQUE (trip_id)",
            "one row per parent has no number",
            False,
        ),
        ("ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey", "no foreign key leads to trips.id", False),
    ],
)
def test_a_table_without_a_number_or_parent_is_said_to_lack_it(
    servers: LocalServers, statements: str, words: str, is_proposed: bool
) -> None:
    proposed = Proposed(servers, "machine", statements)

    assert proposed.says(words)
    assert ("NOTES" in proposed.layout.columns) is is_proposed
    assert "NOTES:" in proposed.text


def test_an_existing_uuid_is_taken_for_the_row_key(servers: LocalServers, flavour: Flavour) -> None:
    proposed = Proposed(servers, flavour, "ALTER TABLE trips ADD public_key uuid NOT NULL UNIQUE")

    assert proposed.layout.row_key.uuid == "public_key"


def test_what_schema_apply_added_is_taken_again_and_mapped_as_no_field(servers: LocalServers) -> None:
    added = """
    ALTER TABLE trips ADD trip_uuid uuid NOT NULL UNIQUE, ADD base_version bigint NOT NULL DEFAULT 1;
    ALTER TABLE trips ADD base_extra json;
    ALTER TABLE trip_notes ADD trip_uuid uuid NOT NULL, ADD note_version bigint NOT NULL DEFAULT 0;
    """
    first, again = Proposed(servers, "machine"), Proposed(servers, "machine", added)

    assert again.errors == []
    assert again.layout.parent.extra == "base_extra"
    assert again.layout.parent.fields == first.layout.parent.fields
    assert again.layout.columns["NOTES"] == first.layout.columns["NOTES"]


def test_a_table_of_another_schema_and_names_in_quotes_are_proposed(servers: LocalServers, flavour: Flavour) -> None:
    odd = """
    CREATE SCHEMA "Fleet";
    CREATE TABLE "Fleet"."Car Rides" (id int PRIMARY KEY, "Total Fare" numeric, "null" text, "on" bool);
    """
    with connected(company_database(servers, flavour, odd), "test") as connection:
        proposal = propose(connection, [TableName("Fleet", "Car Rides")], "rides")
        layout = load_layout(yaml.safe_load(render(proposal)))

        assert [each for each in check_layout(connection, layout) if each.is_error] == []
    assert layout.parent.captured == ("Total Fare", "null", "on")


@pytest.mark.parametrize(
    ("statements", "tables", "words"),
    [
        ("", ("trips", "trip_note"), "Did you mean trip_notes?"),
        ("CREATE TABLE lists (name text)", ("lists",), "no unique column of whole numbers"),
        ("CREATE VIEW all_trips AS SELECT * FROM trips", ("all_trips",), "is no table"),
    ],
)
def test_tables_that_cannot_be_described_are_refused_by_name(
    servers: LocalServers, statements: str, tables: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(InvalidLayout) as refused:
        Proposed(servers, "machine", statements, tables)

    assert words in str(refused.value)
