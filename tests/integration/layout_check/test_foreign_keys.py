"""Foreign keys and triggers that change what a layout maps."""

from __future__ import annotations

import pytest

from tests.integration.layout_check.checking import checked, errors
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


@pytest.mark.parametrize(
    "statements",
    [
        # It goes with its parent.
        "ALTER TABLE trips ADD trip_uuid uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE;"
        "ALTER TABLE billing_attempts ADD trip_uuid uuid REFERENCES trips (trip_uuid) ON DELETE CASCADE",
        # The number stays as it is.
        "CREATE TABLE lines (n int, text text, PRIMARY KEY (n, text)); ALTER TABLE trip_notes ALTER text DROP NOT NULL,"
        "ADD FOREIGN KEY (n, text) REFERENCES lines ON DELETE SET NULL (text)",
        # What is not captured is no part of a fact.
        "ALTER TABLE billing_attempts ADD who bigint REFERENCES users ON DELETE SET NULL ON UPDATE CASCADE",
    ],
)
def test_a_foreign_key_that_leaves_keys_and_facts_alone_is_no_error(
    servers: LocalServers, flavour: Flavour, statements: str
) -> None:
    complaints = checked(servers, flavour, statements)

    assert errors(complaints) == []
    assert [str(complaint) for complaint in complaints if "ON UPDATE" in complaint.reason] == []


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            "CREATE TABLE results (result text PRIMARY KEY);"
            "ALTER TABLE billing_attempts ADD FOREIGN KEY (result) REFERENCES results {}",
            "billing_attempts, foreign key billing_attempts_result_fkey: "
            "changes facts when result of results changes (ON UPDATE CASCADE)",
        ),
        (
            "CREATE TABLE lines (n int PRIMARY KEY); ALTER TABLE trip_notes ADD FOREIGN KEY (n) REFERENCES lines {}",
            "trip_notes, foreign key trip_notes_n_fkey: is ON UPDATE CASCADE, which would change n of rows",
        ),
        (
            "ALTER TABLE trips ADD trip_uuid uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE;"
            "ALTER TABLE trip_notes ADD trip_uuid uuid REFERENCES trips (trip_uuid) {}",
            "trip_notes, foreign key trip_notes_trip_uuid_fkey: "
            "is ON UPDATE CASCADE, which would change trip_uuid of rows",
        ),
        (
            "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey,"
            "ADD FOREIGN KEY (trip_id) REFERENCES trips (id) {}",
            "trip_notes, foreign key trip_notes_trip_id_fkey: is ON UPDATE CASCADE",
        ),
        (
            "CREATE TABLE journeys (id bigint PRIMARY KEY);"
            "ALTER TABLE trips ADD FOREIGN KEY (id) REFERENCES journeys {}",
            "trips, foreign key trips_id_fkey: is ON UPDATE CASCADE, which would change id of rows",
        ),
    ],
)
def test_a_foreign_key_that_follows_another_tables_key_is_noted(
    servers: LocalServers, flavour: Flavour, statements: str, said: str
) -> None:
    """The control: without ON UPDATE CASCADE nothing is said of it."""
    follows = checked(servers, flavour, statements.format("ON UPDATE CASCADE"))
    control = checked(servers, flavour, statements.format("ON UPDATE RESTRICT"))

    assert errors(follows) == []
    assert any(str(complaint).startswith(f"{said}.") for complaint in follows), [str(each) for each in follows]
    assert [str(complaint) for complaint in control if "foreign key" in complaint.where] == []


FILLED = """
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NEW.request_at := now(); RETURN NEW; END $$;
CREATE TRIGGER filled BEFORE INSERT OR UPDATE ON trips FOR EACH ROW {} EXECUTE FUNCTION fill();
"""


def test_a_field_that_a_trigger_always_fills_is_noted_with_the_trigger(servers: LocalServers, flavour: Flavour) -> None:
    """The control: one that fills it at times is no such trigger."""

    def about(condition: str) -> list[str]:
        complaints = checked(servers, flavour, FILLED.format(condition))
        assert errors(complaints) == []
        return [str(complaint) for complaint in complaints if "trigger filled" in complaint.reason]

    assert about("") == [
        "trips.request_at: is a field, and trigger filled fills it whatever is written. "
        "Leave field trip_created_at out of the layout: a put that brings another value is refused."
    ]
    assert about("WHEN (NEW.driver_id IS NULL)") == []
