"""The end in Postgres: mapped tables closed for good, on partitions of today and of tomorrow; capture gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemaless_core.failpoints import FailpointReached, use_folder
from tests.legacy import FLAVOURS, Legacy, captured, layout, legacy_server, refused
from tripstore.backends.postgres.capture.names import FIRST, LAST, LOGGED
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.handover.closing import are_closed, close_tables, remove_capture
from tripstore.backends.postgres.sqlstates import GATE_SHUT
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

WRITES = (
    "INSERT INTO trips (status) VALUES ('x')",
    "UPDATE trips SET memo = 'x'",
    "DELETE FROM attempts",
    "INSERT INTO notes (trip_id, trip_uuid, n) SELECT id, trip_uuid, 9 FROM trips",
    "UPDATE notes_0 SET memo = 'x'",
    "TRUNCATE notes_1",
    "TRUNCATE attempts",
)


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    company = captured(legacy_server(servers, flavour))
    id_, key = company.trip()
    company.sql("INSERT INTO notes (trip_id, trip_uuid, n) VALUES (%s, %s, 1)", id_, str(key))
    return company


def triggers(legacy: Legacy) -> list[str]:
    found = legacy.sql("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal")
    return [name for (name,) in found if name.startswith((FIRST, LOGGED, LAST))]


def end(legacy: Legacy) -> None:
    with legacy.ours() as connection:
        close_tables(connection, layout())
        remove_capture(connection, layout())


def assert_closed(legacy: Legacy) -> None:
    for statement in WRITES:
        with refused(GATE_SHUT) as caught:
            legacy.sql(statement)
        assert "takes no more writes" in str(caught.value), statement


def test_every_write_is_refused_before_and_after_capture_is_gone(legacy: Legacy) -> None:
    """I9."""
    before = legacy.sql("SELECT count(*) FROM trips"), legacy.changes()
    with legacy.ours() as connection:
        close_tables(connection, layout())
        assert_closed(legacy)
        remove_capture(connection, layout())
        assert_closed(legacy)

        assert are_closed(connection, layout())
    assert triggers(legacy) == []
    assert (legacy.sql("SELECT count(*) FROM trips"), legacy.changes()) == before, "nothing is dropped"
    legacy.sql("UPDATE users SET name = 'c' WHERE id = 1")


def test_a_session_that_fires_no_ordinary_triggers_is_refused(legacy: Legacy) -> None:
    """As logical apply and pg_restore have it."""
    with legacy.ours() as connection:
        close_tables(connection, layout())

    for statement in WRITES:
        with refused(GATE_SHUT):
            legacy.sql(f"SET session_replication_role = replica; {statement}")


def test_a_partition_that_is_made_later_is_closed_by_birth(legacy: Legacy) -> None:
    with legacy.ours() as connection:
        close_tables(connection, layout())
    legacy.sql("ALTER TABLE notes DETACH PARTITION notes_1")
    legacy.sql("CREATE TABLE notes_2 PARTITION OF notes FOR VALUES WITH (MODULUS 2, REMAINDER 1)")

    with refused(GATE_SHUT):
        legacy.sql(
            "INSERT INTO notes_2 (trip_id, trip_uuid, n) SELECT n, gen_random_uuid(), 1 FROM generate_series(1, 9) n"
        )


@pytest.mark.parametrize("point", ["closing.table_closed", "closing.step_reverted"])
def test_killed_anywhere_it_goes_on(legacy: Legacy, failpoints: Path, point: str) -> None:
    (failpoints / point).write_text("raise")
    use_folder(failpoints)
    try:
        with pytest.raises(FailpointReached):
            end(legacy)
    finally:
        use_folder(None)

    end(legacy)

    assert triggers(legacy) == []
    assert_closed(legacy)


def test_capture_stays_on_tables_that_are_not_closed(legacy: Legacy) -> None:
    """The control: without what takes its place, the gate must not go."""
    with legacy.ours() as connection:
        with pytest.raises(LegacyRefused, match="not all closed"):
            remove_capture(connection, layout())
        close_tables(connection, layout())
        legacy.sql('ALTER TABLE attempts DISABLE TRIGGER "0_closed_rows"')
        with pytest.raises(LegacyRefused, match="not all closed"):
            remove_capture(connection, layout())

    assert triggers(legacy)
