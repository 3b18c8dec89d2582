"""What an earlier layout made and the one in force does not want: doctor names it, `schema apply` takes it off."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemaless_core.failpoints import FailpointReached, use_folder
from tests.legacy import FLAVOURS, TABLES, Legacy, apply, attempts, base, layout, legacy_server, notes, refused
from tripstore.backends.postgres.capture.sqlstates import DELETE_REFUSED
from tripstore.backends.postgres.capture.unwanted import Unwanted, find_left
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, RefKeySource
from tripstore.backends.postgres.schema_steps import examine_capture, examine_left, schema_steps
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


def test_a_run_that_was_killed_goes_on(legacy: Legacy, failpoints: Path) -> None:
    smaller = layout(base())
    (failpoints / "capture.left_dropped").write_text("raise after=1")
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
