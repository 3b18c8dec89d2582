"""A layout is held against the live database before anything is done: every misfit is named, with a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.layout_check.checking import Change, checked, errors, on_columns, on_field
from tests.layouts import company_database, document
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.demo import legacy
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

COMPANY_LAYOUT = Path(legacy.__file__).with_name("layout.yaml")


def test_row_security_that_hides_rows_is_an_error(servers: LocalServers, flavour: Flavour) -> None:
    """Of the role that looks: the owner, and a role with BYPASSRLS, see all."""
    url, role = company_database(servers, flavour), f"hidden_{uuid4().hex[:8]}"
    with connected(url, "test", search_path="public") as connection:
        rows(connection, f"CREATE ROLE {role}; GRANT pg_read_all_data, pg_monitor TO {role}")
        rows(connection, "ALTER TABLE trips ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON trips USING (id > 3)")

    complaints = {}
    for each in ("postgres", role):
        with connected(url, "test", role=each) as connection:
            found = check_layout(connection, load_layout(document()))
        complaints[each] = [one.is_error for one in found if "row-level security" in one.reason]

    assert complaints == {"postgres": [False], role: [True]}


def test_a_layout_that_fits_has_no_errors_and_says_what_will_be_added(servers: LocalServers, flavour: Flavour) -> None:
    complaints = checked(servers, flavour)

    assert errors(complaints) == []
    notes = {(complaint.where, complaint.reason) for complaint in complaints}
    for added in ("trips.trip_uuid", "billing_attempts.trip_uuid", "trip_notes.trip_uuid"):
        assert (added, "the column of the row key is missing") in notes
    assert ("trips.base_version", "the column of the version is missing") in notes
    assert ("trip_notes.note_version", "the column of the version is missing") in notes
    assert ("trips.base_extra", "the column of extra is missing") in notes
    assert ("trips", "updated_at is not mapped") in notes


def test_the_layout_of_the_example_company_fits_its_tables(servers: LocalServers, flavour: Flavour) -> None:
    url = company_database(servers, flavour, "")
    CompanySchema(url).upgrade()

    with connected(url, "test") as connection:
        complaints = check_layout(connection, load_layout(COMPANY_LAYOUT, "trips"))

    assert errors(complaints) == []
    # What the layout says of itself in its comments.
    assert any("exported_at" in complaint.reason for complaint in complaints)


def test_a_layout_fits_after_its_columns_were_added_too(servers: LocalServers, flavour: Flavour) -> None:
    added = """
    ALTER TABLE trips ADD trip_uuid uuid NOT NULL, ADD base_version bigint NOT NULL DEFAULT 1, ADD base_extra json;
    CREATE UNIQUE INDEX ON trips (trip_uuid);
    ALTER TABLE billing_attempts ADD trip_uuid uuid NOT NULL;
    ALTER TABLE trip_notes ADD trip_uuid uuid NOT NULL, ADD note_version bigint NOT NULL DEFAULT 0;
    """
    complaints = checked(servers, flavour, added)

    assert errors(complaints) == []
    assert not [complaint for complaint in complaints if "missing" in complaint.reason]


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        (on_columns("STATUS", "table", "billing_attemts"), "columns.STATUS.table", "Did you mean billing_attempts?"),
        (on_columns("STATUS", "table", "else.where"), "columns.STATUS.table", "no table in schema else"),
        (on_columns("STATUS", "parent", {"column": "tripid"}), "billing_attempts.tripid", "Did you mean trip_id?"),
        (on_columns("STATUS", "ref_key", {"column": "attempt"}), "billing_attempts.attempt", "attempt_no?"),
        (on_columns("STATUS", "ref_key", {"column": "result"}), "billing_attempts.result", "is of type text"),
        (on_field("fare", column="fare", type="decimal"), "trips.fare", "fields.fare"),
        (on_field("fare", column="fare_amount", type="int"), "trips.fare_amount", "Write type: decimal."),
        (on_field("at", column="updated_at", type="string"), "trips.updated_at", "Write type: datetime."),
        (on_field("tags", column="tags", type="string"), "trips.tags", "type: array"),
        (on_field("tags", column="tags", type="array", items="int"), "trips.tags", "Write items: string."),
        (on_field("status", column="status", type="array"), "trips.status", "It is no array."),
        (on_columns("BASE", "extra", "status"), "trips.status", "extra is json"),
    ],
)
def test_what_a_layout_names_wrongly_is_said_with_what_was_meant(
    servers: LocalServers, change: Change, where: str, words: str
) -> None:
    def without_status(layout: dict[str, Any]) -> None:
        if layout["columns"]["BASE"].get("extra") == "status":
            del layout["columns"]["BASE"]["fields"]["status"]

    found = errors(checked(servers, "machine", "", change, without_status))

    assert any(complaint.startswith(f"{where}: ") and words.lower() in complaint.lower() for complaint in found), found


@pytest.mark.parametrize(
    ("statements", "where", "words"),
    [
        # Keys: a race is decided by an immediate unique index on exactly the row key.
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key",
            "trip_notes (trip_id, n)",
            "CREATE UNIQUE INDEX CONCURRENTLY",
        ),
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key, ADD UNIQUE (trip_id, n, text)",
            "trip_notes (trip_id, n)",
            "no unique index on exactly",
        ),
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key, ADD UNIQUE (trip_id, n) DEFERRABLE",
            "trip_notes (trip_id, n)",
            "DEFERRABLE",
        ),
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key;"
            "CREATE UNIQUE INDEX ON trip_notes (trip_id, n) WHERE n > 3",
            "trip_notes (trip_id, n)",
            "is partial",
        ),
        ("ALTER TABLE trip_notes ALTER n DROP NOT NULL", "trip_notes.n", "may be NULL"),
        ("ALTER TABLE billing_attempts ALTER trip_id DROP NOT NULL", "billing_attempts.trip_id", "may be NULL"),
        ("ALTER TABLE trips ADD trip_uuid text", "trips.trip_uuid", "the row key is a uuid"),
        ("ALTER TABLE trips ADD base_version text NOT NULL DEFAULT '1'", "trips.base_version", "whole numbers"),
        ("ALTER TABLE trips ADD base_version bigint", "trips.base_version", "may be NULL"),
        ("ALTER TABLE trips ADD base_extra jsonb", "trips.base_extra", "not jsonb"),
        # What no trigger would see.
        ("CREATE TABLE old_trips () INHERITS (trips)", "trips", "old_trips inherits"),
        (
            "ALTER TABLE billing_attempts SET UNLOGGED",
            "billing_attempts",
            "is unlogged",
        ),
        # What changes rows by itself.
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey,"
            "ADD FOREIGN KEY (trip_id) REFERENCES trips (id) ON DELETE SET NULL",
            "trip_notes, foreign key trip_notes_trip_id_fkey",
            "ON DELETE SET NULL",
        ),
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey,"
            "ADD FOREIGN KEY (trip_id) REFERENCES trips (id) DEFERRABLE INITIALLY DEFERRED",
            "trip_notes, foreign key trip_notes_trip_id_fkey",
            "INITIALLY DEFERRED",
        ),
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey,"
            "ADD FOREIGN KEY (trip_id) REFERENCES users (id)",
            "trip_notes, foreign key trip_notes_trip_id_fkey",
            "leads to users (id)",
        ),
        (
            "ALTER TABLE billing_attempts ADD who bigint REFERENCES users (id) ON DELETE CASCADE",
            "billing_attempts, foreign key billing_attempts_who_fkey",
            "deletes facts without their parent",
        ),
        (
            "CREATE TABLE results (result text PRIMARY KEY);"
            "ALTER TABLE billing_attempts ADD FOREIGN KEY (result) REFERENCES results ON DELETE SET DEFAULT",
            "billing_attempts, foreign key billing_attempts_result_fkey",
            "changes facts when a row of results goes",
        ),
        (
            "CREATE TABLE lines (n int PRIMARY KEY);"
            "ALTER TABLE trip_notes ADD FOREIGN KEY (n) REFERENCES lines ON DELETE SET DEFAULT",
            "trip_notes, foreign key trip_notes_n_fkey",
            "would change n of rows",
        ),
        (
            "CREATE TABLE pages (trip_id bigint, n int, PRIMARY KEY (trip_id, n));"
            "ALTER TABLE trip_notes ADD FOREIGN KEY (trip_id, n) REFERENCES pages ON DELETE SET NULL",
            "trip_notes, foreign key trip_notes_trip_id_n_fkey",
            "would change trip_id, n of rows",
        ),
        (
            "ALTER TABLE trips ADD trip_uuid uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE;"
            "ALTER TABLE trip_notes ADD trip_uuid uuid REFERENCES trips (trip_uuid) ON DELETE SET NULL",
            "trip_notes, foreign key trip_notes_trip_uuid_fkey",
            "would change trip_uuid of rows",
        ),
        (
            "CREATE TABLE journeys (id bigint PRIMARY KEY);"
            "ALTER TABLE trips ADD FOREIGN KEY (id) REFERENCES journeys ON DELETE SET DEFAULT",
            "trips, foreign key trips_id_fkey",
            "would change id of rows",
        ),
        # What puts could not write.
        ("ALTER TABLE trips ADD must int NOT NULL", "trips.must", "puts cannot insert rows"),
        # Lookups: one answer each way, always.
        ("ALTER TABLE users ALTER user_uuid DROP NOT NULL", "users.user_uuid", "may be NULL"),
        ("ALTER TABLE users DROP CONSTRAINT users_user_uuid_key", "users.user_uuid", "is not unique"),
        ("ALTER TABLE users ALTER user_uuid TYPE text USING 'x'", "users.user_uuid", "bodies hold a UUID"),
        ("ALTER TABLE users DROP COLUMN user_uuid", "users.user_uuid", "there is no such column"),
    ],
)
def test_what_a_database_lacks_is_said_with_what_to_do(
    servers: LocalServers, flavour: Flavour, statements: str, where: str, words: str
) -> None:
    found = errors(checked(servers, flavour, statements))

    assert any(complaint.startswith(f"{where}: ") and words.lower() in complaint.lower() for complaint in found), found


def test_a_view_is_refused(servers: LocalServers) -> None:
    view = "CREATE VIEW notes AS SELECT * FROM trip_notes"

    found = errors(checked(servers, "machine", view, on_columns("NOTES", "table", "notes")))

    assert any(complaint.startswith("notes: is a view") for complaint in found), found


def test_facts_that_were_changed_are_noted_with_the_number(servers: LocalServers, flavour: Flavour) -> None:
    statements = """
    INSERT INTO trips (id) VALUES (1);
    INSERT INTO billing_attempts (trip_id, attempt_no, result) SELECT 1, n, 'declined' FROM generate_series(1, 3) n;
    UPDATE billing_attempts SET result = 'captured' WHERE attempt_no < 3;
    DELETE FROM billing_attempts WHERE attempt_no = 3;
    """
    url = company_database(servers, flavour)
    with connected(url, "test", search_path="public") as connection:
        rows(connection, statements)
        # Postgres 15 and later hand counts over at once when they are asked to.
        rows(connection, "SELECT pg_stat_force_next_flush()")
        found = [str(complaint) for complaint in check_layout(connection, load_layout(document()))]

    assert any("billing_attempts: is said to hold facts, and 2 updates" in complaint for complaint in found), found
    assert any("billing_attempts: is said to hold facts, and 1 deletes" in complaint for complaint in found), found


def test_a_trigger_that_fires_after_ours_is_noted(servers: LocalServers) -> None:
    statements = """
    CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
    CREATE TRIGGER "~~~" BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION f();
    CREATE TRIGGER audit BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION f();
    """
    reasons = [complaint.reason for complaint in checked(servers, "machine", statements)]

    assert "trigger ~~~ fires after ours" in reasons
    assert not any("audit" in reason for reason in reasons)


def test_a_not_null_column_that_a_trigger_may_fill_is_only_noted(servers: LocalServers) -> None:
    statements = """
    ALTER TABLE trips ADD must int NOT NULL;
    CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.must := 1; RETURN NEW; END';
    CREATE TRIGGER fill BEFORE INSERT ON trips FOR EACH ROW EXECUTE FUNCTION fill();
    """
    complaints = checked(servers, "machine", statements)

    assert errors(complaints) == []
    assert any(complaint.where == "trips.must" for complaint in complaints)
