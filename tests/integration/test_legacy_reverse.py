"""The legacy store as the reverse mirror uses it: behind a shut gate, forward only, and uncaptured (I4, I9)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellConflict
from tests.chaos.actors import wait_until
from tests.legacy import FLAVOURS, Legacy, attempts, base, layout, notes, refused
from tests.legacy_backends import Company, company, status
from tests.legacy_databases import PATIENT, postgres_server
from tests.shut_gates import (
    CELLS,
    CHILD,
    GOING,
    MEDDLERS,
    SHUT,
    logged,
    mirrored_row,
    queued,
    set_to,
    triggered,
)
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.functions import changes, gate
from tripstore.backends.postgres.capture.functions.gate import BARRIER, DOOR, GateReading, GateState, lock_class
from tripstore.backends.postgres.cells.fence import MirrorRole
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable, Unrepresentable
from tripstore.backends.postgres.layout.layout import DeletePolicy, Field, FieldType, Layout
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers

K = lock_class("trips")


@pytest.fixture(scope="module", params=FLAVOURS)
def server(request: pytest.FixtureRequest, servers: LocalServers) -> PostgresServer:
    return postgres_server(servers, request.param)


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        made.store.put_cell(GOING, "BASE", 1, status(1))
        yield made


@pytest.fixture
def row(trips: Company) -> UUID:
    return mirrored_row(trips)


@pytest.mark.parametrize("what", CELLS)
def test_what_the_mirror_writes_behind_a_shut_gate_is_not_mirrored_again(trips: Company, row: UUID, what: str) -> None:
    cells, before = CELLS[what](row), queued(trips.legacy)
    results = trips.store.as_mirror().put_cells(cells)

    assert {result.status for result in results} == {"CREATED"}
    assert queued(trips.legacy) == before
    assert logged(trips.legacy, cells) == sorted((cell.column_name, cell.ref_key) for cell in cells)
    assert trips.store.get_cells([cell.key for cell in cells]) == cells
    assert {result.status for result in trips.store.as_mirror().put_cells(cells)} == {"EXISTS"}


def test_the_mirror_keeps_the_pair_of_a_row_that_goes(trips: Company, row: UUID) -> None:
    """It stands in a table of ours, behind the same gate."""
    mirror = trips.store.as_mirror()
    number = trips.store.legacy_id(row)
    mirror.put_cell(row, "NOTES", CHILD + 1, None)
    key = uuid4()
    mirror.put_cell(key, "BASE", 1, status(1))
    given = trips.store.legacy_id(key)
    mirror.put_cell(key, "BASE", 2, None)

    assert given is not None
    assert trips.store.legacy_ids([row, key]) == {row: number, key: given}


def test_the_mirror_never_goes_back(trips: Company, row: UUID) -> None:
    """I2, I4: late cells are history, never rows."""
    mirror = trips.store.as_mirror()
    mirror.put_cell(row, "NOTES", CHILD + 1, None)
    mirror.put_cell(row, "NOTES", CHILD - 1 + 1, {"text": "1"})
    with pytest.raises(CellConflict):
        mirror.put_cell(row, "NOTES", CHILD, {"text": "other"})
    with pytest.raises(CellConflict):
        mirror.put_cell(row, "BASE", 2, status("other"))

    assert trips.legacy.sql("SELECT count(*) FROM notes WHERE trip_uuid = %s", str(row)) == [(0,)]


#: Values of types that Postgres reads before it looks for the row: what the layout says of them is not enough.
TYPED = """
CREATE TYPE kind AS ENUM ('city', 'airport');
ALTER TABLE trips ADD kind kind, ADD code varchar(5), ADD day date, ADD tip numeric(4, 1);
ALTER TABLE notes ADD kind kind"""
REFUSED: dict[str, tuple[str, str]] = {
    "kind": ("city", "moon"),
    "code": ("short", "longer"),
    "day": ("2024-02-29", "4714-01-01 BC"),
    "tip": ("1.0", "1000.0"),
}


def typed_layout() -> Layout:
    kinds = {"code": FieldType.STRING, "day": FieldType.DATE, "tip": FieldType.DECIMAL}
    kind = Field("kind", "kind", FieldType.STRING)
    child = notes()
    return layout(
        base(DeletePolicy.TOMBSTONE, kind, *(Field(name, name, of) for name, of in kinds.items())),
        attempts(),
        replace(child, fields=(*child.fields, kind)),
    )


@pytest.fixture(scope="module")
def typed(server: PostgresServer) -> Iterator[Company]:
    with company(server, typed_layout(), altered=TYPED) as made:
        yield made


@pytest.mark.parametrize("field", REFUSED)
def test_a_version_that_was_replaced_is_kept_whatever_its_value(typed: Company, field: str) -> None:
    taken, refused_value = REFUSED[field]
    key, mirror = uuid4(), typed.store.as_mirror()
    mirror.put_cell(key, "BASE", 1, {field: taken})
    with pytest.raises(Unrepresentable, match=field):
        mirror.put_cell(key, "BASE", 4, {field: refused_value})  # it is the latest
    mirror.put_cell(key, "BASE", 5, {field: taken})
    before = queued(typed.legacy)
    late = [Cell(key, "BASE", ref_key, {field: refused_value}) for ref_key in (4, 2)]
    for expected in ("CREATED", "EXISTS"):
        assert [mirror.put_cell(*cell.key, cell.body).status for cell in late] == [expected] * 2
    with pytest.raises(CellConflict):
        mirror.put_cell(key, "BASE", 4, {field: refused_value + "0"})

    assert typed.versions(key) == [5, 4, 2, 1]
    assert typed.store.get_cells([cell.key for cell in late]) == late
    assert queued(typed.legacy) == before
    assert logged(typed.legacy, late) == [("BASE", ref_key) for ref_key in (1, 2, 4, 5)]


def test_a_first_version_and_one_of_a_child_are_kept_whatever_their_value(typed: Company) -> None:
    key, mirror = uuid4(), typed.store.as_mirror()
    mirror.put_cell(key, "BASE", 2, {"kind": "city"})
    mirror.put_cell(key, "NOTES", CHILD + 1, {"kind": "city"})
    late = [Cell(key, "BASE", 1, {"kind": "moon"}), Cell(key, "NOTES", CHILD, {"kind": "moon"})]
    for cell in late:
        mirror.put_cell(*cell.key, cell.body)

    assert typed.store.get_cells([cell.key for cell in late]) == late
    assert typed.legacy.sql("SELECT kind FROM notes WHERE trip_uuid = %s", str(key)) == [("city",)]


def test_only_the_mirror_puts_what_no_row_can_hold(typed: Company) -> None:
    """A body that no store has acknowledged is refused, replaced or not; what is there, is there."""
    key = uuid4()
    typed.store.as_mirror().put_cell(key, "BASE", 3, {"kind": "city"})
    typed.store.as_mirror().put_cell(key, "BASE", 1, {"kind": "moon"})
    with pytest.raises(Unrepresentable, match="kind"):
        typed.store.put_cell(key, "BASE", 2, {"kind": "moon"})

    assert typed.store.put_cell(key, "BASE", 1, {"kind": "moon"}).status == "EXISTS"
    assert typed.versions(key) == [3, 1]


def test_changes_of_the_companys_triggers_are_no_echo_either(trips: Company, row: UUID) -> None:
    before = queued(trips.legacy)
    insert = "INSERT INTO notes (trip_id, trip_uuid, n, text) VALUES (NEW.id, NEW.trip_uuid, 50, 'by a trigger');"
    with triggered(trips.legacy, "AFTER UPDATE", f"{insert} RETURN NULL;"):
        trips.store.as_mirror().put_cell(row, "BASE", 3, status(3))

    assert queued(trips.legacy) == before
    assert logged(trips.legacy, [Cell(row, "BASE", 3, None)]) == [("BASE", 3), ("NOTES", 50 * CHILD)]


@pytest.mark.parametrize("how", MEDDLERS)
@pytest.mark.parametrize("ref_key", [3, 1])
def test_a_row_that_a_trigger_changes_is_taken_back(trips: Company, row: UUID, how: str, ref_key: int) -> None:
    key = row if ref_key == 3 else uuid4()
    before, changes_before = queued(trips.legacy), trips.legacy.changes(key)
    with triggered(trips.legacy, *MEDDLERS[how]), pytest.raises(Unrepresentable):
        trips.store.as_mirror().put_cell(key, "BASE", ref_key, status("theirs"))

    assert (queued(trips.legacy), trips.legacy.changes(key)) == (before, changes_before)


@pytest.mark.parametrize("ref_key", [3, 1])
def test_control_what_runs_after_the_write_is_not_seen_without_another_look(
    trips: Company, row: UUID, ref_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MirrorRole, "is_exact", False)
    key = row if ref_key == 3 else uuid4()
    with triggered(trips.legacy, *MEDDLERS["after"]):
        trips.store.as_mirror().put_cell(key, "BASE", ref_key, status("theirs"))

    latest = trips.store.get_cell_latest(key, "BASE")
    assert latest is not None
    assert (latest.ref_key, latest.body) == (ref_key + 1, status("mine"))


def test_a_row_that_a_trigger_keeps_is_not_taken_for_deleted(trips: Company, row: UUID) -> None:
    key = uuid4()
    trips.store.as_mirror().put_cell(key, "BASE", 1, status(1))
    with triggered(trips.legacy, "BEFORE DELETE", "RETURN NULL;"), pytest.raises(LegacyRefused, match="keeps the row"):
        trips.store.as_mirror().put_cell(key, "BASE", 2, None)

    latest = trips.store.get_cell_latest(key, "BASE")
    assert latest is not None
    assert latest.ref_key == 1


@pytest.mark.parametrize("what", ["a new row", "versions", "a fact", "free", "free, many"])
def test_the_mirror_waits_for_the_barrier(trips: Company, row: UUID, what: str) -> None:
    """I9: a switch that has begun decides first."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND objid = 1"
    with closing(trips.legacy.connect(autocommit=True)) as switch, ThreadPoolExecutor(1) as pool:
        rows(switch, f"SELECT pg_advisory_lock({K}, {DOOR}), pg_advisory_lock({K}, {BARRIER})")
        put = pool.submit(trips.store.as_mirror().put_cells, CELLS[what](row))
        wait_until("it waits", lambda: trips.legacy.sql(waiting) == [(1,)])
        switch.close()
        assert {result.status for result in put.result(30)} == {"CREATED"}


def test_the_mirror_does_not_wait_for_ever(trips: Company, row: UUID) -> None:
    hasty = LegacyDatabase(trips.legacy.url, replace(PATIENT, lock_seconds=0.02))
    with (
        PostgresBackend(hasty, layout(), shards=8) as store,
        closing(trips.legacy.connect(autocommit=True)) as switch,
    ):
        rows(switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
        with pytest.raises(LegacyUnavailable):
            store.as_mirror().put_cell(row, "BASE", 3, status(3))


def test_control_without_its_admission_the_mirror_writes_behind_the_barrier(
    trips: Company, row: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MirrorRole, "enter", lambda _self, _connection: [])
    with closing(trips.legacy.connect(autocommit=True)) as switch:
        rows(switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
        trips.legacy.sql('ALTER TABLE tripstore.cell DISABLE TRIGGER "0_tripstore_gate"')
        result = trips.store.as_mirror().put_cell(row, "FREE", 1, {"x": 1})
        trips.legacy.sql('ALTER TABLE tripstore.cell ENABLE ALWAYS TRIGGER "0_tripstore_gate"')

    assert result.status == "CREATED"


# ---------------------------------------------------------------------------------------------- who may be the mirror

WRITES = {
    "update": "UPDATE trips SET status = 'mine' WHERE trip_uuid = %s",
    "delete": "DELETE FROM notes WHERE trip_uuid = %s",
    "cell": "INSERT INTO tripstore.cell (row_key, column_name, ref_key, body) VALUES (%s, 'F', 1, '{}')",
}


def as_service(legacy: Legacy, statement: str, key: UUID) -> None:
    """What a service's own role says that calls itself the mirror."""
    role = f"service_{legacy.name}"
    if not legacy.sql("SELECT 1 FROM pg_roles WHERE rolname = %s", role):
        legacy.sql(f"CREATE ROLE {role}; GRANT ALL ON trips, attempts, notes, tripstore.cell TO {role}")
    with closing(legacy.connect(autocommit=True)) as connection:
        rows(connection, f"SET SESSION AUTHORIZATION {role}; SET tripstore.origin = 'reverse'")
        rows(connection, statement, (str(key),))


@pytest.mark.parametrize("what", WRITES)
def test_a_service_that_calls_itself_the_mirror_is_refused(trips: Company, row: UUID, what: str) -> None:
    """I9."""
    with refused(sqlstates.GATE_SHUT):
        as_service(trips.legacy, WRITES[what], row)


@pytest.mark.parametrize("what", ["update", "delete"])
def test_row_capture_refuses_him_by_itself(server: PostgresServer, what: str) -> None:
    with company(server) as made:
        key = made.base(1)
        made.store.put_cell(key, "NOTES", CHILD, {"text": "1"})
        for table in ("trips", "notes", "notes_0", "notes_1"):
            made.legacy.sql(f'ALTER TABLE {table} DISABLE TRIGGER "0_tripstore_gate"')
        set_to(made.legacy, SHUT)
        with refused(sqlstates.GATE_SHUT):
            as_service(made.legacy, WRITES[what], key)


def test_what_he_writes_while_the_gate_is_open_is_mirrored(trips: Company, row: UUID) -> None:
    """I8."""
    set_to(trips.legacy, GateReading(8, GateState.OPEN))
    as_service(trips.legacy, WRITES["update"], row)
    as_service(trips.legacy, WRITES["delete"], row)

    assert trips.legacy.sql(
        "SELECT column_name, ref_key FROM tripstore.queue WHERE row_key = %s AND ref_key IN (3, %s) ORDER BY 1",
        str(row),
        CHILD + 1,
    ) == [("BASE", 3), ("NOTES", CHILD + 1)]


def test_control_an_exemption_by_the_variable_alone_lets_a_service_pass(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "IS_OURS", "true")
    for module in (gate, changes):
        monkeypatch.setattr(module, "IS_MIRROR", "said = 'reverse'")
    legacy = Legacy(server)
    legacy.install(layout())
    _, key = legacy.trip()
    set_to(legacy, SHUT)
    as_service(legacy, WRITES["update"], key)

    assert legacy.sql("SELECT status FROM trips") == [("mine",)]
    assert queued(legacy) == [(str(key), "BASE", 1)]
