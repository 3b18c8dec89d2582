"""What an earlier layout made and the one in force does not want: doctor names it, `schema apply` takes it off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from schemaless_core.failpoints import FailpointReached, use_folder
from tests.legacy import FLAVOURS, PARENT, TABLES, Legacy, apply, attempts, base, layout, legacy_server, notes, refused
from tripstore.backends.postgres.capture.unwanted import Unwanted, find_left
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, RefKeySource
from tripstore.backends.postgres.schema_steps import examine_capture, examine_left, schema_steps
from tripstore.backends.postgres.sqlstates import DELETE_REFUSED, WRONG_PARENT
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: Child tables without row keys: those are added, filled and required by us.
WITHOUT_KEYS = (
    TABLES.replace("    trip_uuid uuid NOT NULL,\n", "")
    .replace("    UNIQUE (trip_uuid, attempt_no)\n", "    UNIQUE (trip_id, attempt_no)\n")
    .replace("CREATE INDEX ON notes (trip_uuid, n);\n", "")
)
OURS = """
SELECT t.tgrelid::regclass::text, t.tgname::text FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
WHERE p.pronamespace = 'tripstore'::regnamespace AND t.tgrelid = ANY (%s::regclass[])
"""


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    made = Legacy(legacy_server(servers, flavour), tables=WITHOUT_KEYS)
    brought(made, layout())
    made.sql("INSERT INTO trips (status) VALUES ('a')")
    made.sql("INSERT INTO attempts (trip_id, attempt_no) VALUES (1, 1); INSERT INTO notes (trip_id, n) VALUES (1, 1)")
    return made


def brought(legacy: Legacy, wanted: Layout, *, is_whole: bool = True) -> None:
    """`schema apply`; not whole: as it was before it compared what earlier layouts had made."""
    with legacy.ours() as connection:
        apply([step for step in schema_steps(wanted) if is_whole or not isinstance(step, Unwanted)], connection)


def versioned() -> Layout:
    facts = attempts()
    rows = MappedColumn(
        facts.name,
        facts.table,
        facts.uuid,
        facts.parent,
        RefKeySource(column="attempt_no", version="attempt_version"),
        facts.fields,
    )
    return layout(base(), rows, notes())


def named(legacy: Legacy, wanted: Layout) -> list[str]:
    """What `doctor` says of it, and of nothing else."""
    with legacy.ours() as connection:
        assert not [each for each in examine_capture(connection, wanted) if each.is_error]
        return [f"{each.where}: {each.reason}" for each in examine_left(connection, wanted)]


def test_facts_that_became_versions_may_be_deleted(legacy: Legacy) -> None:
    brought(legacy, versioned(), is_whole=False)
    with refused(DELETE_REFUSED):  # the control
        legacy.sql("DELETE FROM attempts")
    assert any(
        "attempts: trigger ~tripstore_status_delete is of an earlier layout" in each
        for each in named(legacy, versioned())
    )

    brought(legacy, versioned())

    assert named(legacy, versioned()) == []
    legacy.sql("DELETE FROM attempts")
    assert legacy.sql("SELECT column_name, ref_key FROM tripstore.tomb") == [("STATUS", (1 << 20) + 1)]


def test_a_table_that_is_mapped_no_more_is_left_alone(legacy: Legacy) -> None:
    """Its partitions, what filled its row keys, and the event trigger for partitions go along; its columns stay."""
    smaller = layout(base(), attempts())
    brought(legacy, smaller, is_whole=False)
    assert legacy.sql("SELECT count(*) > 0 FROM (" + OURS + ") AS t", ["notes", "notes_0", "notes_1"]) == [(True,)]
    before = named(legacy, smaller)
    assert any("notes_0: trigger 0_tripstore_gate" in each for each in before)
    assert any("notes: trip_uuid is filled and required" in each for each in before)

    brought(legacy, smaller)

    assert named(legacy, smaller) == []
    assert legacy.sql(OURS, ["notes", "notes_0", "notes_1"]) == []
    assert legacy.sql("SELECT count(*) FROM pg_event_trigger") == [(0,)]
    assert legacy.sql("SELECT count(*) FROM tripstore.partition") == [(0,)]
    assert legacy.sql(
        "SELECT count(*) FROM pg_proc WHERE proname LIKE 'notes_%%'",
    ) == [(0,)]
    legacy.sql("INSERT INTO notes (trip_id, n) VALUES (1, 2); TRUNCATE notes")
    brought(legacy, layout())  # and mapped again
    legacy.sql("INSERT INTO notes (trip_id, n) VALUES (1, 3)")
    assert legacy.sql("SELECT count(*) FROM notes WHERE trip_uuid IS NULL") == [(0,)]


def test_a_partition_that_was_detached_keeps_no_gate(legacy: Legacy) -> None:
    legacy.sql("ALTER TABLE notes DETACH PARTITION notes_0")
    assert legacy.sql(OURS, ["notes_0"]) != []  # the control: Postgres leaves statement triggers on it

    brought(legacy, layout())

    assert legacy.sql(OURS, ["notes_0"]) == []


@pytest.mark.parametrize(("point", "after"), [("capture.left_dropped", 1), ("capture.left_key_dropped", 0)])
def test_a_run_that_was_killed_goes_on(legacy: Legacy, failpoints: Path, point: str, after: int) -> None:
    smaller = layout(base())
    (failpoints / point).write_text(f"raise after={after}")
    use_folder(failpoints)
    try:
        with pytest.raises(FailpointReached):
            brought(legacy, smaller)
    finally:
        use_folder(None)
    brought(legacy, smaller)

    assert named(legacy, smaller) == []
    assert legacy.sql(OURS, ["notes", "notes_0", "notes_1", "attempts"]) == []


def test_with_nothing_left_nothing_is_done(legacy: Legacy) -> None:
    with legacy.ours() as connection:
        assert not find_left(connection, layout())
        assert all(step.is_done(connection) for step in schema_steps(layout()))


#: A child with a UUID of its own.
OWN = WITHOUT_KEYS.replace(
    "    n bigint NOT NULL,\n", "    n bigint NOT NULL, own uuid NOT NULL DEFAULT gen_random_uuid(),\n"
)
IS_REQUIRED = "SELECT attnotnull FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s"


def keyed_by(uuid: str) -> Layout:
    """The key of the parent is in this column of the notes."""
    return layout(base(), attempts(), replace(notes(), uuid=uuid))


def moved(uuid: str) -> Layout:
    """The row key is in this column, of all tables."""
    columns = [replace(column, uuid=uuid) for column in (base(), attempts(), notes())]
    return Layout("trips", replace(PARENT, uuid=uuid), {column.name: column for column in columns})


@pytest.mark.parametrize(
    ("before", "after", "table"),
    [(keyed_by("first_uuid"), keyed_by("trip_uuid"), "notes"), (moved("first_uuid"), moved("second_uuid"), "trips")],
    ids=["of children", "of all"],
)
def test_row_keys_may_move_to_another_column(servers: LocalServers, before: Layout, after: Layout, table: str) -> None:
    """No INSERT of the company's fails in between, and a second run finds all done."""
    company = Legacy(legacy_server(servers, "wheel"), tables=WITHOUT_KEYS)
    brought(company, before)

    with company.ours() as connection:
        for number, step in enumerate(schema_steps(after)):
            apply([step], connection)
            company.sql("INSERT INTO trips (id, status) VALUES (%s, 'a')", number)
            company.sql("INSERT INTO notes (trip_id, n) VALUES (%s, 1)", number)
        assert [step.title for step in schema_steps(after) if not step.is_done(connection)] == []

    assert named(company, after) == []
    assert company.sql(IS_REQUIRED, table, "first_uuid") == [(False,)]
    key = after.columns["NOTES"].uuid
    assert company.sql(
        f"SELECT count(*) FROM notes n JOIN trips t ON t.id = n.trip_id WHERE n.{key} IS DISTINCT FROM"
        f" t.{after.row_key.uuid}"
    ) == [(0,)]


def test_a_uuid_of_the_companys_own_that_was_taken_for_the_parents_stays_as_it_was(servers: LocalServers) -> None:
    """Another column is named for the parent's key, as doctor advises."""
    company = Legacy(legacy_server(servers, "machine"), tables=OWN)
    brought(company, keyed_by("own"))
    company.sql("INSERT INTO trips (id, status) VALUES (1, 'a')")
    with refused(WRONG_PARENT):
        company.sql("INSERT INTO notes (trip_id, n) VALUES (1, 1)")

    brought(company, keyed_by("trip_uuid"))

    company.sql("INSERT INTO notes (trip_id, n) VALUES (1, 1)")
    assert company.sql(IS_REQUIRED, "notes", "own") == [(True,)]
    with company.ours() as connection:
        assert all(step.is_done(connection) for step in schema_steps(keyed_by("trip_uuid")))
