"""Indexes of row key and number, of partitioned tables, too."""

from __future__ import annotations

import pytest

from tests.integration.layout_check.checking import checked, errors, on_columns
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


@pytest.mark.parametrize(
    "index",
    [
        "CREATE UNIQUE INDEX ON trip_notes (n, trip_id)",
        "CREATE UNIQUE INDEX ON trip_notes (trip_id, n) INCLUDE (text)",
        "ALTER TABLE trip_notes ADD trip_uuid uuid NOT NULL; CREATE UNIQUE INDEX ON trip_notes (trip_uuid, n)",
    ],
)
def test_any_index_that_holds_the_row_key_and_number_to_one_row_will_do(
    servers: LocalServers, flavour: Flavour, index: str
) -> None:
    statements = f"ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key; {index}"

    assert errors(checked(servers, flavour, statements)) == []


@pytest.mark.parametrize("unique", ["n", "trip_id"])
def test_a_number_or_parent_that_is_unique_by_itself_gets_its_index_by_apply(
    servers: LocalServers, flavour: Flavour, unique: str
) -> None:
    statements = f"ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key, ADD UNIQUE ({unique})"

    complaints = checked(servers, flavour, statements)

    assert errors(complaints) == []
    (said,) = [each for each in complaints if each.where == "trip_notes (trip_uuid, n)"]
    assert "`tripstore schema apply` makes one" in said.hint
    # A control: one that may be violated until the end of a transaction decides no race.
    deferrable = statements + " DEFERRABLE"
    assert any("no unique index on exactly" in each for each in errors(checked(servers, flavour, deferrable)))


PARTITIONED = """
DROP TABLE trip_notes;
CREATE TABLE trip_notes (
    trip_id bigint NOT NULL REFERENCES trips (id) ON DELETE CASCADE, n int NOT NULL, text text, at date NOT NULL,
    {unique}
) PARTITION BY {by};
"""


def test_a_partitioned_table_is_taken_when_its_key_is_within_the_row_key(
    servers: LocalServers, flavour: Flavour
) -> None:
    fitting = PARTITIONED.format(unique="UNIQUE (trip_id, n)", by="HASH (trip_id)")
    fitting += "CREATE TABLE trip_notes_0 PARTITION OF trip_notes FOR VALUES WITH (MODULUS 1, REMAINDER 0);"

    found = errors(checked(servers, flavour, fitting))

    assert [complaint for complaint in found if not complaint.startswith("trip_notes.at: ")] == []


def test_i2_a_partitioned_table_without_a_foreign_key_is_refused(servers: LocalServers, flavour: Flavour) -> None:
    """A child that stays when its parent goes would share its ref key with one of the parent that comes back."""
    by_parent = PARTITIONED.format(unique="UNIQUE (trip_id, n)", by="HASH (trip_id)")
    dropped = "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey"

    (found,) = [each for each in errors(checked(servers, flavour, f"{by_parent};{dropped}")) if "foreign key" in each]

    assert "let no unique index keep a child of a deleted parent apart" in found
    # The way out, as it is printed. Controls: where the index of `schema apply` does it, it is a remark.
    add = found.split("ALTER TABLE")[1].split(", or")[0]
    mended = checked(servers, flavour, f"{by_parent};{dropped};ALTER TABLE{add}")
    assert [each for each in mended if "no foreign key" in each.reason] == []
    for fitting in (dropped, PARTITIONED.format(unique="CHECK (n > 0)", by="HASH (n)") + dropped):
        (remark,) = [each for each in checked(servers, flavour, fitting) if "no foreign key" in each.reason]
        assert not remark.is_error


def test_a_partitioned_table_whose_unique_index_needs_more_is_refused(servers: LocalServers, flavour: Flavour) -> None:
    unfit = PARTITIONED.format(unique="UNIQUE (trip_id, n, at)", by="RANGE (at)")

    found = errors(checked(servers, flavour, unfit))

    assert any("partitioned by at, so no unique index" in complaint for complaint in found), found


def test_a_partitioned_table_is_told_how_its_partitions_get_an_index(servers: LocalServers, flavour: Flavour) -> None:
    """CONCURRENTLY is refused for the whole: what a hint says must work."""
    bare = PARTITIONED.format(unique="CHECK (n > 0)", by="HASH (trip_id)")

    found = errors(checked(servers, flavour, bare))

    assert any(
        complaint.startswith("trip_notes (trip_id, n): ")
        and "CREATE UNIQUE INDEX ON ONLY" in complaint
        and "ATTACH PARTITION" in complaint
        for complaint in found
    ), found


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("RANGE (request_at)", "partitioned by request_at, so no unique index can hold id or trip_uuid to one row"),
        ("HASH (id)", "partitioned by id, so no unique index can hold trip_uuid to one row"),
        ("HASH (trip_uuid)", "partitioned by trip_uuid, so no unique index can hold id to one row"),
    ],
)
def test_a_partitioned_table_of_the_row_key_is_refused_once_with_a_way_out(
    servers: LocalServers, flavour: Flavour, by: str, words: str
) -> None:
    parent = f"""
    ALTER TABLE billing_attempts DROP CONSTRAINT billing_attempts_trip_id_fkey;
    ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey;
    ALTER TABLE trips ADD trip_uuid uuid NOT NULL;
    ALTER TABLE trips RENAME TO old;
    CREATE TABLE trips (LIKE old INCLUDING DEFAULTS) PARTITION BY {by};
    """
    (found,) = errors(checked(servers, flavour, parent))

    assert found.startswith(f"trips: it is {words}")
    assert "Copy its rows into a table without partitions" in found


def test_a_partition_is_refused_for_the_whole(servers: LocalServers) -> None:
    parts = PARTITIONED.format(unique="UNIQUE (trip_id, n)", by="HASH (trip_id)")
    parts += "CREATE TABLE some_notes PARTITION OF trip_notes FOR VALUES WITH (MODULUS 1, REMAINDER 0);"

    found = errors(checked(servers, "machine", parts, on_columns("NOTES", "table", "some_notes")))

    assert any("is a partition of trip_notes" in complaint for complaint in found), found
