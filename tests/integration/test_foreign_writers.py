"""Who else writes a mapped table: a subscription's apply worker, pg_restore, and TRUNCATE where it is allowed (I8)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.chaos.actors import wait_until
from tests.facades import Migration, facts_of, migration
from tests.legacy import Legacy, refused
from tests.legacy_databases import FLAVOURS, postgres_server
from tests.mirrors import missing
from tests.stores import Stores
from tripstore.backends.postgres.capture import verify
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.sqlstates import GATE_SHUT
from tripstore.handover.authority import Authority, Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.phase import Phase

ROWS = """
INSERT INTO trips (status) SELECT 'requested' FROM generate_series(1, 6);
INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) SELECT id, trip_uuid, 1, 'paid' FROM trips;
INSERT INTO notes (trip_id, trip_uuid, n, text) SELECT id, trip_uuid, 1, 'a' FROM trips
"""
CHANGES = """
UPDATE trips SET status = 'changed' WHERE id <= 3; UPDATE notes SET text = 'b' WHERE trip_id = 2;
DELETE FROM trips WHERE id = 6; INSERT INTO trips (status) VALUES ('last')
"""
READY = "SELECT FROM pg_subscription_rel HAVING bool_and(srsubstate = 'r')"
WHOLE = ["trips", "attempts"]
ERRORS = "SELECT apply_error_count FROM pg_stat_subscription_stats WHERE subname = %s"


@pytest.fixture(params=["postgres", "postgres18"])
def made(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param) as found:
        found.legacy.sql("DELETE FROM users")
        found.phase(Phase.DUALWRITE)
        yield found


@pytest.fixture
def source(made: Migration) -> Legacy:
    """Another database with the company's tables, without capture."""
    company = Legacy(made.legacy.server)
    company.sql(ROWS)
    return company


@contextmanager
def subscribed(made: Migration, source: Legacy, *, via_root: bool) -> Iterator[str]:
    """The mapped tables, filled and kept up by logical replication."""
    name, legacy = f"sub_{uuid4().hex[:8]}", made.legacy
    source.sql(
        "CREATE PUBLICATION p FOR TABLE users, trips, attempts, notes"
        f" WITH (publish_via_partition_root = {str(via_root).lower()})"
    )
    source.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", name)
    legacy.sql(
        f"CREATE SUBSCRIPTION {name} CONNECTION '{source.url}' PUBLICATION p WITH (create_slot = false, streaming = on)"
    )
    try:
        yield name
    finally:
        legacy.sql(f"ALTER SUBSCRIPTION {name} DISABLE")
        legacy.sql(f"ALTER SUBSCRIPTION {name} SET (slot_name = NONE)")
        legacy.sql(f"DROP SUBSCRIPTION {name}")
        idle = "SELECT count(*) = 0 FROM pg_replication_slots WHERE slot_name = %s AND active"
        wait_until("the slot is free", lambda: source.sql(idle, name) == [(True,)], 20)
        source.sql("SELECT pg_drop_replication_slot(%s)", name)


def has(made: Migration, query: str, *values: object) -> Callable[[], bool]:
    return lambda: made.legacy.sql(f"SELECT EXISTS ({query})", *values) == [(True,)]


@pytest.mark.parametrize("via_root", [True, False])
def test_i8_what_a_subscription_brings_is_captured_from_its_first_copy_on(
    made: Migration, source: Legacy, via_root: bool
) -> None:
    """ENABLE ALWAYS: neither the first copy nor the apply worker passes by. TRUNCATE stops the worker, and is named.

    So a subscription is a note, said once; a partition that it fills is named as well.
    """
    assert filled(made) == []
    with subscribed(made, source, via_root=via_root) as name:
        wait_until("all tables are copied", has(made, READY), 30)
        notes = ["notes"] if via_root else ["notes_0", "notes_1"]
        assert filled(made) == [(False, f"public.{table} is filled by a subscription") for table in WHOLE + notes]
        captured = "SELECT column_name, count(row) FROM tripstore.queue GROUP BY 1 ORDER BY 1"
        assert made.legacy.sql(captured) == [("BASE", 6), ("NOTES", 6), ("STATUS", 6)]

        source.sql(CHANGES)
        wait_until("the changes are applied", has(made, "SELECT FROM trips WHERE status = 'last'"), 30)
        made.carry()
        assert missing(made) == []
        assert len(made.legacy.changes(column="BASE")) == 6 + 3 + 1 + 1

        ((errors,),) = made.legacy.sql(ERRORS, name)
        source.sql("TRUNCATE notes")
        refused = "SELECT FROM pg_stat_subscription_stats WHERE subname = %s AND apply_error_count > %s"
        wait_until("TRUNCATE is refused", has(made, refused, name, errors), 30)
        assert made.legacy.sql("SELECT count(*) FROM notes") == [(5,)]


def test_i8_a_subscription_from_another_server_is_captured_and_waits_while_schemaless_is_the_authority(
    made: Migration, servers: LocalServers
) -> None:
    """By another version of Postgres, onto each partition. On live the gate refuses its worker, which tries again."""
    [other] = [flavour for flavour in FLAVOURS.values() if made.legacy.server is not postgres_server(servers, flavour)]
    source = Legacy(postgres_server(servers, other))
    source.sql(ROWS)
    with subscribed(made, source, via_root=False) as name:
        wait_until("all tables are copied", has(made, READY), 30)
        source.sql(CHANGES)
        wait_until("the changes are applied", has(made, "SELECT FROM trips WHERE status = 'last'"), 30)
        made.carry()
        assert missing(made) == []
        (said,) = refusals(made)
        assert "notes_0" in said
        assert "filled by a subscription" in said

        made.phase(Phase.LIVE)
        assert refusals(made) == []
        ((errors,),) = made.legacy.sql(ERRORS, name)
        source.sql("UPDATE trips SET status = 'late'; UPDATE notes SET text = 'late'")
        refused = "SELECT FROM pg_stat_subscription_stats WHERE subname = %s AND apply_error_count > %s"
        wait_until("the gate refuses the worker", has(made, refused, name, errors), 30)
        assert made.legacy.sql("SELECT FROM trips WHERE status = 'late'") == []

        made.phase(Phase.DUALWRITE)
        wait_until("the worker goes on", has(made, "SELECT FROM notes HAVING bool_and(text = 'late')"), 30)
        made.carry()
        assert missing(made) == []


def refusals(made: Migration) -> list[str]:
    """What the gate of capture says in the direction that there is now."""
    facts = facts_of(made)
    assert isinstance(facts.authority, Authority)
    way = Direction.FORWARD if facts.authority.backend is Backend.LEGACY else Direction.BACK
    return [gate.said for gate in plan(way, facts, made.facade.config.cutover).refusals if gate.name == "capture"]


def filled(made: Migration) -> list[tuple[bool, str]]:
    """All that layout and capture say of subscriptions."""
    with made.legacy.ours() as connection:
        layout = made.duo.legacy.layout
        found = [*check_layout(connection, layout), *verify(connection, layout)]
    return [(each.is_error, each.reason) for each in found if "subscription" in each.reason]


def program(made: Migration, name: str) -> str:
    found = made.legacy.server.program(name)
    assert found is not None, f"this Postgres comes without {name}"
    return str(found)


def restore(made: Migration, file: Path, *options: str) -> str:
    """Run pg_restore into the mapped tables; what it said."""
    ran = subprocess.run(
        [program(made, "pg_restore"), *options, "-d", made.legacy.url, str(file)], capture_output=True, text=True
    )
    return ran.stderr


def complaints(made: Migration) -> list[str]:
    with made.legacy.ours() as connection:
        return [str(each) for each in verify(connection, made.duo.legacy.layout) if each.is_error]


@pytest.fixture
def dump(made: Migration, source: Legacy, tmp_path: Path) -> Path:
    file = tmp_path / "company.dump"
    subprocess.run([program(made, "pg_dump"), "-Fc", "-f", str(file), source.url], check=True)
    return file


@pytest.mark.parametrize("option", ["--data-only", "--section=data"])
def test_i8_rows_of_pg_restore_are_captured(made: Migration, dump: Path, option: str) -> None:
    """Table by table, parents first: a child without its parent is refused, as a foreign key would."""
    assert "has no such row" in restore(made, dump, option, "-t", "attempts")
    for table in ("users", "trips", "attempts", "notes_0", "notes_1"):
        assert restore(made, dump, option, "-t", table) == ""

    counts = "SELECT column_name, count(row) FROM tripstore.queue GROUP BY 1 ORDER BY 1"
    assert made.legacy.sql(counts) == [("BASE", 6), ("NOTES", 6), ("STATUS", 6)]
    made.carry()
    assert missing(made) == []
    assert complaints(made) == []


def test_i8_pg_restore_that_disables_triggers_passes_capture_and_is_complained_of(made: Migration, dump: Path) -> None:
    """It enables them again, but not ALWAYS: that stays as a trace, in partitions as well."""
    assert restore(made, dump, "--data-only", "--disable-triggers") == ""

    assert made.legacy.sql("SELECT count(*) FROM trips") == [(6,)]
    assert made.legacy.sql("SELECT count(*) FROM tripstore.queue") == [(0,)]  # none of it was captured
    said = complaints(made)
    for table in ("trips", "attempts", "notes_0"):
        assert any(each.startswith(f"{table}: ") and "not enabled for sessions" in each for each in said), table


def test_i8_tables_that_pg_restore_makes_anew_are_complained_of(made: Migration, dump: Path) -> None:
    restore(made, dump, "--clean", "--if-exists")

    assert any("trips: it is another table" in each for each in complaints(made))


@pytest.mark.parametrize("postgres", ["postgres", "postgres18"])
@pytest.mark.parametrize("statement", ["TRUNCATE notes", "TRUNCATE notes_0", "TRUNCATE trips CASCADE"])
def test_i8_truncate_where_it_is_allowed_breaks_capture_and_writes_no_tombstone(
    servers: LocalServers, stores: Stores, statement: str, postgres: str
) -> None:
    """The mirror keeps the rows, and the gates refuse until all is copied and compared anew. Rows that come back
    stand above those that went.
    """
    with migration(servers, stores, postgres=postgres) as made:
        made.legacy.install(made.duo.legacy.layout, may_truncate=True)
        made.phase(Phase.DUALWRITE)
        made.legacy.sql(ROWS)
        made.carry()
        (key, number), *_ = made.legacy.sql("SELECT trip_uuid::text, trip_id FROM notes_0")

        made.legacy.sql(statement)

        assert made.legacy.sql("SELECT count(*) FROM tripstore.queue") == [(0,)]
        ((since, broken),) = made.legacy.sql("SELECT since, broken FROM tripstore.capture")
        assert since is None
        truncated = ["trips", "attempts", "notes"] if "CASCADE" in statement else ["notes"]
        assert all(f"{table} was truncated at" in broken for table in truncated)

        if "trips" not in statement:
            made.legacy.sql("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, 'again')", number)
            made.carry()
            cell = made.facade.store.get_cell_latest(UUID(key), "NOTES")
            assert cell is not None
            assert (cell.ref_key, cell.body) == ((1 << 20) + 1, {"text": "again"})


@pytest.mark.parametrize("postgres", ["postgres", "postgres18"])
@pytest.mark.parametrize("statement", ["TRUNCATE notes", "TRUNCATE notes_0", "TRUNCATE trips CASCADE"])
def test_i9_truncate_on_live_is_refused_by_the_gate_even_where_it_is_allowed(
    servers: LocalServers, stores: Stores, statement: str, postgres: str
) -> None:
    """Schemaless is the authority: no row goes, and capture is as whole as before. Back again it breaks capture."""
    with migration(servers, stores, postgres=postgres) as made:
        made.legacy.install(made.duo.legacy.layout, may_truncate=True)
        made.phase(Phase.SHADOW)
        made.legacy.sql(ROWS)
        made.carry()
        made.phase(Phase.LIVE)

        with refused(GATE_SHUT):
            made.legacy.sql(statement)

        assert made.legacy.sql("SELECT count(*) FROM notes") == [(6,)]
        assert made.legacy.sql("SELECT since IS NULL, broken FROM tripstore.capture") == [(False, None)]
        made.phase(Phase.SHADOW)
        made.legacy.sql(statement)
        assert made.legacy.sql("SELECT since IS NULL FROM tripstore.capture") == [(True,)]
