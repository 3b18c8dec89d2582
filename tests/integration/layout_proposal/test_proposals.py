"""A proposal loads, fits the tables it was made from, and says of everything else that it did not decide it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.integration.layout_proposal.proposing import Proposed
from tests.layouts import company_database, document
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import Lookup, RefKeyKind, TableName
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.proposals.proposing import propose
from tripstore.backends.postgres.proposals.text import render
from tripstore.backends.postgres.wire.connections import connected
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


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


FILLED = """
INSERT INTO trips (id) VALUES (1);
INSERT INTO billing_attempts (trip_id, attempt_no, result) VALUES (1, 1, 'declined'), (1, 2, 'captured');
INSERT INTO trip_notes (trip_id, n, text) VALUES (1, 1, 'hello');
"""


def test_child_rows_are_versions_unless_facts_are_asked_for(servers: LocalServers, flavour: Flavour) -> None:
    """A restored copy has counted inserts alone: taken for facts, the company's UPDATE would fail after `apply`."""
    proposed = Proposed(servers, flavour, FILLED)

    assert {column.ref_key.kind for column in proposed.layout.children} == {RefKeyKind.CHILD}
    assert proposed.says("2 inserts and no change were counted; if rows of billing_attempts never change")
    assert proposed.says("--facts billing_attempts")
    assert proposed.says("rows change: there is updated_at")


def test_facts_are_proposed_when_they_are_asked_for_and_what_speaks_against_it_is_said(
    servers: LocalServers, flavour: Flavour
) -> None:
    changed = FILLED + "UPDATE billing_attempts SET result = 'captured';"
    proposed = Proposed(servers, flavour, changed, facts=("billing_attempts",))

    assert proposed.layout.columns["BILLING_ATTEMPTS"].ref_key.kind is RefKeyKind.FACT
    assert proposed.layout.columns["NOTES"].ref_key.kind is RefKeyKind.CHILD
    assert proposed.says("facts, as was asked for")
    assert proposed.says("but 2 updates were counted")


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
            "its own key is taken for the number",
            True,
        ),
        (
            "ALTER TABLE trip_notes DROP COLUMN id, DROP CONSTRAINT trip_notes_trip_id_n_key",
            "no whole number tells the rows of one trip_id apart",
            False,
        ),
        (
            "ALTER TABLE trip_notes DROP COLUMN id, DROP CONSTRAINT trip_notes_trip_id_n_key, ADD UNIQUE (trip_id)",
            "one row per parent has no number",
            False,
        ),
        ("ALTER TABLE trip_notes ALTER trip_id DROP NOT NULL", "trip_id may be NULL", False),
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey,"
            "ADD FOREIGN KEY (trip_id) REFERENCES trips (id) ON DELETE SET NULL",
            "ON DELETE SET NULL, which would change the parent of rows",
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
    assert "is taken for the key of each row" not in proposed.text


def test_a_unique_uuid_that_may_change_is_taken_with_a_remark(servers: LocalServers, flavour: Flavour) -> None:
    proposed = Proposed(servers, flavour, "ALTER TABLE trips ADD session_token uuid NOT NULL UNIQUE")

    assert "trips.session_token is taken for the key of each row, which never changes" in proposed.text


def test_what_schema_apply_added_is_taken_again_and_mapped_as_no_field(servers: LocalServers) -> None:
    added = """
    ALTER TABLE trips ADD trip_uuid uuid NOT NULL UNIQUE, ADD base_version bigint NOT NULL DEFAULT 1;
    ALTER TABLE trips ADD base_extra json;
    ALTER TABLE trip_notes ADD trip_uuid uuid NOT NULL, ADD note_version bigint NOT NULL DEFAULT 0;
    COMMENT ON COLUMN trips.base_version IS 'Added by tripstore.';
    COMMENT ON COLUMN trips.base_extra IS 'Added by tripstore.';
    COMMENT ON COLUMN trip_notes.note_version IS 'Added by tripstore.';
    """
    first, again = Proposed(servers, "machine"), Proposed(servers, "machine", added)

    assert again.errors == []
    assert again.layout.parent.extra == "base_extra"
    assert again.layout.parent.fields == first.layout.parent.fields
    assert again.layout.columns["NOTES"] == first.layout.columns["NOTES"]


def test_a_number_of_the_companys_own_is_taken_for_no_version(servers: LocalServers, flavour: Flavour) -> None:
    """Capture counts versions itself, whatever is written: a service's own number would be written over."""
    own = """
    ALTER TABLE trip_notes ADD note_version int NOT NULL DEFAULT 1, ADD note_version_2 text, ADD note_extra json;
    ALTER TABLE trips ADD base_version int;
    """
    proposed = Proposed(servers, flavour, own)

    assert proposed.errors == []
    assert proposed.layout.parent.ref_key.version == "base_version_2"
    column = proposed.layout.columns["NOTES"]
    assert column.ref_key.version == "note_version_3"
    assert {"note_version", "note_version_2", "note_extra"} <= set(column.captured)


LONG = f"""
CREATE TABLE {"a" * 63} (id bigserial PRIMARY KEY, {"b" * 63} text);
CREATE TABLE {"旅" * 21} (id bigserial PRIMARY KEY, {"c" * 63} bigint NOT NULL REFERENCES {"a" * 63}, メモ text);
"""


def test_what_is_named_after_a_table_with_a_long_name_is_cut(servers: LocalServers, flavour: Flavour) -> None:
    proposed = Proposed(servers, flavour, LONG, ("a" * 63, "旅" * 21))

    assert proposed.errors == []
    assert proposed.layout.row_key.uuid == "a" * 58 + "_uuid"
    assert proposed.layout.columns["旅" * 13].ref_key.version == "旅" * 18 + "_version"


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
