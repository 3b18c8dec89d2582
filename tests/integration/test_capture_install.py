"""Capture installs, upgrades, verifies and removes itself: on busy tables, killed anywhere, with no gap unseen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from schemaless_core.failpoints import FailpointReached, use_folder
from tests.legacy import FLAVOURS, Legacy, apply, attempts, base, captured, layout, legacy_server, notes
from tests.scale import SCALE
from tripstore.backends.postgres.capture import capture_steps, migrate, note_gap, read_state, remove, verify
from tripstore.backends.postgres.capture.names import EVENT_TRIGGER
from tripstore.backends.postgres.ddl.ddl import Patience
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import DeletePolicy, Field, FieldType, Layout
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: Where a run may be killed, and after how many visits: there are four tables.
POINTS = [
    ("capture.schema_made", 0),
    ("capture.migrated", 0),
    ("capture.gate_made", 0),
    ("capture.look_made", 0),
    ("capture.event_made", 0),
    ("capture.begun", 0),
    *((point, after) for point in ("capture.before_triggers", "capture.triggers_made") for after in range(4)),
]
HASTE = Patience(lock_timeout_seconds=0.05, pause_seconds=0.0, give_up_seconds=0.0)


@pytest.fixture(params=FLAVOURS if SCALE >= 1 else FLAVOURS[:1])
def server(request: pytest.FixtureRequest, servers: LocalServers) -> PostgresServer:
    flavour: Flavour = request.param
    return legacy_server(servers, flavour)


@pytest.fixture
def legacy(server: PostgresServer) -> Legacy:
    """Without capture."""
    return Legacy(server)


@pytest.fixture
def installed(server: PostgresServer) -> Legacy:
    return captured(server)


@contextmanager
def armed(folder: Path, point: str, after: int) -> Iterator[None]:
    (folder / point).write_text(f"raise after={after}")
    use_folder(folder)
    try:
        yield
    finally:
        use_folder(None)


def larger() -> Layout:
    """The same with one more field."""
    return layout(base(DeletePolicy.TOMBSTONE, Field("memo", "memo", FieldType.STRING)), attempts(), notes())


def faults(legacy: Legacy, wanted: Layout | None = None) -> list[str]:
    with legacy.ours() as connection:
        return [str(complaint) for complaint in verify(connection, wanted or layout()) if complaint.is_error]


def remarks(legacy: Legacy) -> list[str]:
    with legacy.ours() as connection:
        return [str(complaint) for complaint in verify(connection, layout()) if not complaint.is_error]


def reinstall(legacy: Legacy) -> None:
    with legacy.ours() as connection:
        apply(capture_steps(layout()), connection)


def objects(legacy: Legacy) -> set[tuple[object, ...]]:
    """Everything of ours, the tables in our schema aside."""
    return set(
        legacy.sql(
            "SELECT 'function', p.proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = 'tripstore'"
            " UNION ALL SELECT t.tgrelid::regclass::text, t.tgname::text FROM pg_trigger t WHERE NOT t.tgisinternal"
            " UNION ALL SELECT attrelid::regclass::text, attname::text FROM pg_attribute"
            " WHERE attname IN ('base_version', 'note_version', 'base_extra') AND NOT attisdropped"
        )
    )


def test_a_second_run_does_nothing(installed: Legacy) -> None:
    with installed.ours() as connection:
        before = read_state(connection)
        assert all(apply(capture_steps(layout()), connection))
        assert read_state(connection) == before
    assert before.since is not None


def test_rows_that_were_there_get_the_first_version(legacy: Legacy) -> None:
    id_, key = legacy.trip("old")
    legacy.install(layout())
    legacy.sql("UPDATE trips SET status = 'new' WHERE id = %s", id_)

    assert legacy.versions(key) == [(2, "new")]
    assert legacy.changes(key)[0].previous == 1


@pytest.mark.parametrize(("point", "after"), POINTS)
def test_a_run_that_was_killed_anywhere_goes_on_where_it_stopped(
    legacy: Legacy, failpoints: Path, point: str, after: int
) -> None:
    with legacy.ours() as connection, armed(failpoints, point, after), pytest.raises(FailpointReached):
        apply(capture_steps(layout()), connection)
    assert (read_state_of(legacy) is None) == (point != "capture.begun")
    legacy.install(layout())
    _, key = legacy.trip("a")

    assert legacy.versions(key) == [(1, "a")]


def test_runs_at_the_same_time_end_alike(legacy: Legacy) -> None:
    start, errors = threading.Barrier(4), list[BaseException]()

    def run() -> None:
        try:
            with legacy.ours() as connection:
                start.wait(30)
                migrate(connection)
                apply(capture_steps(layout()), connection)
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert errors == []
    assert faults(legacy) == []


def test_a_busy_table_is_given_up_with_the_name_of_who_is_in_the_way(legacy: Legacy) -> None:
    writer = legacy.connect()
    rows(writer, "INSERT INTO trips (status) VALUES ('a')")
    try:
        with legacy.ours() as connection:
            migrate(connection)
            with pytest.raises(LegacyUnavailable, match=str(writer.info.backend_pid)):
                apply(capture_steps(layout(), patience=HASTE), connection)
            assert read_state(connection).since is None
        legacy.sql("SET lock_timeout = '2s'; INSERT INTO trips (status) VALUES ('does not wait behind us')")
        writer.commit()
    finally:
        writer.close()
    legacy.install(layout())


def test_capture_begins_after_those_who_were_writing_without_it(legacy: Legacy) -> None:
    """What a snapshot younger than `since` does not see is in the queue: no third place (I8)."""
    writer = legacy.connect()
    with legacy.ours() as connection:
        steps = capture_steps(layout(), patience=Patience(lock_timeout_seconds=30, old_seconds=60))
        (triggers_of_trips,) = (step for step in steps if step.title == "triggers of trips")
        apply(steps[: steps.index(triggers_of_trips)], connection)
        rows(writer, "INSERT INTO trips (status) VALUES ('unseen')")
        waiting = threading.Thread(target=apply, args=([triggers_of_trips], connection))
        waiting.start()
        query = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)"
        while not legacy.sql(query, connection.info.backend_pid)[0][0]:
            assert waiting.is_alive()
        assert read_state_of(legacy) is None
        writer.commit()
        waiting.join(60)
        apply(steps, connection)
    writer.close()

    assert legacy.sql("SELECT count(*) FROM trips") == [(1,)]
    assert legacy.changes() == []
    assert read_state_of(legacy) is not None


def read_state_of(legacy: Legacy) -> object:
    with legacy.ours() as connection:
        return read_state(connection).since


# --- upgrades ---


def test_a_new_layout_replaces_the_functions_and_begins_anew(installed: Legacy) -> None:
    id_, key = installed.trip("a")
    before = read_state_of(installed)
    installed.install(larger())
    installed.sql("UPDATE trips SET memo = 'm' WHERE id = %s", id_)

    assert [sorted(change.row or {})[-2:] for change in installed.changes(key)] == [
        ["request_at", "status"],
        ["request_at", "status"],
    ]
    assert [(change.row or {}).get("memo") for change in installed.changes(key)] == [None, "m"]
    assert installed.sql("SELECT layout FROM tripstore.queue ORDER BY id") == [(1,), (2,)]
    assert read_state_of(installed) != before
    assert faults(installed, larger()) == []
    assert faults(installed) != []  # by the old layout it is another


def test_an_upgrade_is_whole_for_each_table(installed: Legacy, failpoints: Path) -> None:
    """Killed within, a table has all of the old or all of the new."""
    id_, _ = installed.trip("a")
    with (
        installed.ours() as connection,
        armed(failpoints, "capture.before_triggers", 0),
        pytest.raises(FailpointReached),
    ):
        apply(capture_steps(larger()), connection)
    installed.sql("UPDATE trips SET status = 'b' WHERE id = %s", id_)
    installed.install(larger())
    installed.sql("UPDATE trips SET status = 'c' WHERE id = %s", id_)

    assert installed.sql("SELECT ref_key, layout FROM tripstore.queue ORDER BY 1") == [(1, 1), (2, 1), (3, 2)]


# --- what verify finds ---


BREAKS = {
    "disabled": ('ALTER TABLE trips DISABLE TRIGGER "S_tripstore_base_updated"', "is disabled"),
    "all disabled": ("ALTER TABLE attempts DISABLE TRIGGER ALL", "is disabled"),
    "downgraded": ('ALTER TABLE trips ENABLE TRIGGER "S_tripstore_base_inserted"', "role replica"),
    "restored": ("ALTER TABLE notes DISABLE TRIGGER ALL; ALTER TABLE notes ENABLE TRIGGER ALL", "role replica"),
    "clone": ('ALTER TABLE notes_0 DISABLE TRIGGER "S_tripstore_notes_deleted"', "is disabled"),
    "dropped": ('DROP TRIGGER "~tripstore_base_update" ON trips', "is missing"),
    "gate dropped": ('DROP TRIGGER "0_tripstore_gate" ON trips', "gate is missing"),
    "another trigger": (
        'CREATE OR REPLACE TRIGGER "~tripstore_base_update" BEFORE UPDATE OF status ON trips FOR EACH ROW'
        ' EXECUTE FUNCTION tripstore.base_update(); ALTER TABLE trips ENABLE ALWAYS TRIGGER "~tripstore_base_update";'
        'COMMENT ON TRIGGER "~tripstore_base_update" ON trips IS NULL',
        "is not what this layout",
    ),
    "body": (
        "CREATE OR REPLACE FUNCTION tripstore.base_deleted() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RETURN NULL; END'",
        "function base_deleted is not what",
    ),
    "settings": ("ALTER FUNCTION tripstore.base_updated() RESET TimeZone", "function base_updated is not what"),
    "invoker": ("ALTER FUNCTION tripstore.base_updated() SECURITY INVOKER", "function base_updated is not what"),
    "gate function": (
        "CREATE OR REPLACE FUNCTION tripstore.gate_slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "function gate_slow is not what",
    ),
    "heir": ("CREATE TABLE more_trips () INHERITS (trips)", "inherits from it"),
    "unique": ("ALTER TABLE trips DROP CONSTRAINT trips_trip_uuid_key", "no unique index covers exactly"),
    "deferrable": (
        "ALTER TABLE trips DROP CONSTRAINT trips_trip_uuid_key, ADD UNIQUE (trip_uuid) DEFERRABLE",
        "is DEFERRABLE",
    ),
    "partial": (
        "ALTER TABLE trips DROP CONSTRAINT trips_trip_uuid_key;"
        "CREATE UNIQUE INDEX ON trips (trip_uuid) WHERE status <> 'x'",
        "no unique index covers exactly",
    ),
    "rename swap": (
        "CREATE TABLE fresh (LIKE attempts INCLUDING ALL); ALTER TABLE attempts RENAME TO gone;"
        "ALTER TABLE fresh RENAME TO attempts",
        "another table than the one",
    ),
    "pairs": ("ALTER TABLE users DISABLE TRIGGER ALL", "is disabled"),
    "table": ("DROP TABLE attempts", "there is no such table"),
}


def test_a_layout_whose_lines_are_in_another_order_is_the_same(installed: Legacy) -> None:
    """Its digest is, so that `schema apply` has nothing to do; then capture must not count as broken."""
    columns = {
        name: replace(column, fields=column.fields[::-1]) for name, column in list(layout().columns.items())[::-1]
    }
    turned = replace(layout(), columns=columns)

    assert turned.digest == layout().digest
    assert faults(installed, turned) == []


@pytest.mark.parametrize("name", BREAKS)
def test_verify_finds_what_is_broken(installed: Legacy, name: str) -> None:
    for _ in range(12):
        id_, _ = installed.trip()
        installed.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'x')", id_)
    assert faults(installed) == []
    statement, reason = BREAKS[name]
    installed.sql(statement)

    found = faults(installed)
    assert any(reason in fault for fault in found), found
    assert len(set(found)) == len(found)  # each is said once


@pytest.mark.parametrize("name", ["disabled", "restored", "dropped", "body", "rename swap", "pairs"])
def test_apply_mends_it_and_the_gap_is_known(installed: Legacy, name: str) -> None:
    for _ in range(12):
        installed.trip()
    installed.sql("INSERT INTO notes (trip_id, n, text) SELECT id, 1, 'x' FROM trips")
    before = read_state_of(installed)
    installed.sql(BREAKS[name][0])
    with installed.ours() as connection:
        apply(capture_steps(layout()), connection)

    assert faults(installed) == []
    assert read_state_of(installed) not in (before, None)


def test_what_broke_capture_is_kept_until_it_is_mended(installed: Legacy) -> None:
    with installed.ours() as connection:
        for reason in ("trigger x is disabled", "trigger x is disabled", "a dump was restored"):
            note_gap(connection, reason)
        state = read_state(connection)
        assert state.since is None
        assert state.broken == "trigger x is disabled; a dump was restored"
        apply(capture_steps(layout()), connection)
        mended = read_state(connection)

    assert mended.since is not None
    assert mended.broken is None


def test_a_new_partition_is_captured_and_wants_its_gate(installed: Legacy) -> None:
    """Where no superuser let us make the event trigger, which puts it on at once."""
    before = read_state_of(installed)
    installed.sql(
        f"DROP EVENT TRIGGER {EVENT_TRIGGER}; ALTER TABLE notes DETACH PARTITION notes_1; DROP TABLE notes_1;"
        "CREATE TABLE notes_x PARTITION OF notes FOR VALUES WITH (MODULUS 2, REMAINDER 1)"
    )
    for _ in range(8):
        id_, _ = installed.trip()
        installed.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'x')", id_)

    assert faults(installed) == []
    assert any("notes_x: this partition has no trigger 0_tripstore_gate" in remark for remark in remarks(installed))
    assert len([change for change in installed.changes() if change.column == "NOTES"]) == 8
    reinstall(installed)
    assert remarks(installed) == []
    assert read_state_of(installed) == before  # nothing was missed


def test_a_trigger_that_runs_after_ours_is_named(installed: Legacy) -> None:
    installed.sql('CREATE TRIGGER "~~touch" BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION touch()')

    assert any("~~touch runs after capture" in remark for remark in remarks(installed))


# --- removal ---


def test_removal_leaves_the_companys_tables_as_they_were(legacy: Legacy) -> None:
    before = objects(legacy)
    legacy.install(layout())
    assert objects(legacy) != before
    _, key = legacy.trip("a")
    with legacy.ours() as connection:
        remove(connection, layout())
        state = read_state(connection)
        kept = legacy.versions(key)
        remove(connection, layout(), tables=True, columns=True)
        remove(connection, layout(), tables=True, columns=True)

    assert state.since is None
    assert state.broken == "capture was removed"
    assert kept == [(1, "a")]
    assert objects(legacy) == before
    assert legacy.sql("SELECT to_regclass('tripstore.queue') IS NULL") == [(True,)]
    legacy.sql("UPDATE trips SET status = 'free'; TRUNCATE trips CASCADE")
    legacy.install(layout())


def test_a_column_of_the_companys_is_not_dropped(legacy: Legacy) -> None:
    legacy.sql("ALTER TABLE trips ADD base_version bigint NOT NULL DEFAULT 1")
    legacy.install(layout())
    with legacy.ours() as connection:
        remove(connection, layout(), tables=True, columns=True)

    assert {name for table, name in objects(legacy) if table == "trips"} == {"base_version", "touch"}


def test_a_removal_that_was_killed_is_repeated(installed: Legacy, failpoints: Path) -> None:
    with (
        installed.ours() as connection,
        armed(failpoints, "capture.triggers_dropped", 1),
        pytest.raises(FailpointReached),
    ):
        remove(connection, layout(), tables=True)
    with installed.ours() as connection:
        remove(connection, layout(), tables=True)
        assert not list(
            rows(connection, "SELECT FROM pg_proc p WHERE p.pronamespace::regnamespace::text = 'tripstore'")
        )


# --- statements that were prepared before ---


def test_sessions_go_on_over_an_upgrade(installed: Legacy) -> None:
    """Plans of functions that were replaced, and of triggers, are made anew."""
    service = installed.connect(autocommit=True)
    id_, key = installed.trip("a")
    rows(service, "PREPARE change AS UPDATE trips SET status = $1 WHERE id = $2")
    rows(service, "EXECUTE change ('b', %s)", (id_,))
    installed.install(larger())
    rows(service, "EXECUTE change ('c', %s)", (id_,))
    with installed.ours() as connection:
        remove(connection, larger())
    rows(service, "EXECUTE change ('d', %s)", (id_,))
    service.close()

    assert installed.versions(key) == [(1, "a"), (2, "b"), (3, "c")]
