"""As whom the legacy store is used: an owner at an epoch (I9), and the reverse mirror, which is not captured (I4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import BatchFailed, Cell, CellConflict, CellKey, ColumnKey, SchemalessError, StaleEpoch
from schemaless_core.definitions.index import load_definitions
from schemaless_core.failpoints import use_folder
from tests.chaos.actors import wait_until
from tests.legacy import FLAVOURS, Blocked, layout, refused
from tests.legacy_backends import Company, company, status
from tests.legacy_databases import PATIENT, postgres_server
from tripstore.backends.postgres import sqlstates
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.functions.gate import (
    BARRIER,
    DOOR,
    GateReading,
    GateState,
    lock_class,
    set_gate,
)
from tripstore.backends.postgres.cells.fence import Owner
from tripstore.backends.postgres.errors import Unrepresentable
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection, Prepared, Row
from tripstore.local.postgres import PostgresServer
from tripstore.local.servers import LocalServers

K = lock_class("trips")
EPOCH = 4
CHILD = 1 << 20
INDEXES = load_definitions(
    [
        {
            "table": "by_status",
            "column_defs": [{"column_key": "BASE", "fields": [{"field": "status", "type": "string"}]}],
        }
    ],
    Path.cwd(),
    "trips",
)
OPEN, CLOSING, CLOSED = GateState.OPEN, GateState.CLOSING, GateState.CLOSED
#: Where a gate may stand that an owner at EPOCH must not pass.
ELSEWHERE = {
    "shut for the switch": GateReading(EPOCH + 1, CLOSED),
    "shut since long": GateReading(EPOCH + 2, CLOSED),
    "closed, then open later": GateReading(EPOCH + 2, OPEN),
    "closing a later time": GateReading(EPOCH + 3, CLOSING),
    "of an earlier time": GateReading(EPOCH - 2, OPEN),
    "not open yet": GateReading(EPOCH - 1, CLOSED),
}

Call = Callable[[PostgresBackend, UUID], object]

READS: dict[str, Call] = {
    "get_cell": lambda store, key: store.get_cell(key, "BASE", 2),
    "get_cell, history": lambda store, key: store.get_cell(key, "BASE", 1),
    "get_cell, never was": lambda store, key: store.get_cell(key, "BASE", 77),
    "get_cell, free": lambda store, key: store.get_cell(key, "FREE", 1),
    "get_cell, no row": lambda store, _key: store.get_cell(UUID(int=1), "BASE", 1),
    "get_cell, legacy id": lambda store, key: store.get_cell(key, "_LEGACY_ID", 0),
    "get_cell_latest": lambda store, key: store.get_cell_latest(key, "BASE"),
    "get_cell_latest, child": lambda store, key: store.get_cell_latest(key, "NOTES"),
    "get_cell_latest, fact": lambda store, key: store.get_cell_latest(key, "STATUS"),
    "get_cell_latest, free": lambda store, key: store.get_cell_latest(key, "FREE"),
    "get_cell_latest, legacy id": lambda store, key: store.get_cell_latest(key, "_LEGACY_ID"),
    "get_cell_latest, no row": lambda store, _key: store.get_cell_latest(UUID(int=1), "BASE"),
    "get_cells": lambda store, key: store.get_cells([CellKey(key, "BASE", 1), CellKey(key, "BASE", 9)]),
    "get_cells, all there": lambda store, key: store.get_cells([CellKey(key, "BASE", 1), CellKey(key, "FREE", 9)]),
    "get_cells_latest": lambda store, key: store.get_cells_latest([ColumnKey(key, "BASE"), ColumnKey(key, "FREE")]),
    "get_row": lambda store, key: store.get_row(key),
    "get_row, columns": lambda store, key: store.get_row(key, ["BASE", "FREE"]),
    "get_history": lambda store, key: store.get_history(key, "BASE"),
    "query_index": lambda store, key: store.query_index("by_status", str(key), columns="*"),
    "get_cells_for_shard": lambda store, key: store.get_cells_for_shard(store.shard_of(key), 0, 100),
    "get_cells_for_shards": lambda store, key: store.get_cells_for_shards({store.shard_of(key): 0}, 100),
    "scan_rows": lambda store, key: store.scan_rows(store.shard_of(key)),
    "checksum": lambda store, key: store.checksum(store.shard_of(key)),
    "resolve_id": lambda store, _key: store.resolve_id(1),
    "resolve_ids": lambda store, _key: store.resolve_ids([1, 2]),
    "legacy_id": lambda store, key: store.legacy_id(key),
    "legacy_ids": lambda store, key: store.legacy_ids([key]),
}
#: Of several statements, after which the gate is looked at. All others read it as well.
SEVERAL = [
    *("get_cell, never was", "get_cell, no row", "get_cells", "get_history", "query_index", "get_cells_for_shard"),
    *("get_cells_for_shards", "scan_rows", "checksum", "resolve_id", "resolve_ids", "legacy_id", "legacy_ids"),
]
SINGLE = sorted(READS.keys() - SEVERAL)

#: Each writes, or finds what is there; `key` has BASE 1 and 2, NOTES and STATUS 1, FREE 1.
PUTS: dict[str, Call] = {
    "a new row": lambda store, _key: store.put_cell(uuid4(), "BASE", 1, status("new")),
    "a new row, later": lambda store, _key: store.put_cell(uuid4(), "BASE", 3, status("new")),
    "a version": lambda store, key: store.put_cell(key, "BASE", 3, status("new")),
    "an expected version": lambda store, key: store.put_cell(key, "BASE", 3, status("new"), expect_latest=2),
    "history": lambda store, key: store.put_cell(key, "BASE", -1, status("new")),
    "the row again": lambda store, key: store.put_cell(key, "BASE", 2, status(2)),
    "history again": lambda store, key: store.put_cell(key, "BASE", 1, status(1)),
    "a fact": lambda store, key: store.put_cell(key, "STATUS", 2, {"result": "new"}),
    "a child": lambda store, key: store.put_cell(key, "NOTES", 2 * CHILD, {"text": "new"}),
    "a child before its parent": lambda store, _key: store.put_cell(uuid4(), "NOTES", CHILD, {"text": "new"}),
    "a tombstone": lambda store, key: store.put_cell(key, "NOTES", CHILD + 1, None),
    "free": lambda store, key: store.put_cell(key, "FREE", 2, {"x": 2}),
    "free, expected": lambda store, key: store.put_cell(key, "FREE", 2, {"x": 2}, expect_latest=1),
    "free again": lambda store, key: store.put_cell(key, "FREE", 1, {"x": 1}),
    "append": lambda store, key: store.append_cell(key, "BASE", status("new")),
    "append, free": lambda store, key: store.append_cell(key, "FREE", {"x": 2}),
    "legacy id": lambda store, key: store.put_cell(key, "_LEGACY_ID", 0, {"id": store.legacy_id(key)}),
    "a batch": lambda store, key: store.put_cells([Cell(key, "BASE", 3, status("new")), Cell(key, "FREE", 2, {})]),
    "a batch, free": lambda store, key: store.put_cells([Cell(key, "FREE", n, {"x": n}) for n in (1, 2)]),
}
#: Refusals are answers, too.
REFUSALS: dict[str, tuple[Call, type[SchemalessError]]] = {
    "conflict": (lambda store, key: store.put_cell(key, "BASE", 2, status("other")), CellConflict),
    "free conflict": (lambda store, key: store.put_cell(key, "FREE", 1, {"x": "other"}), CellConflict),
    "unexpected": (lambda store, key: store.put_cell(key, "BASE", 9, status(9), expect_latest=1), CellConflict),
    "unexpected, free": (lambda store, key: store.put_cell(key, "FREE", 9, {}, expect_latest=None), CellConflict),
    "what no row holds": (lambda store, key: store.put_cell(key, "NOTES", 9 * CHILD, {"text": 5}), Unrepresentable),
    "what no row holds, held": (lambda store, key: store.put_cell(key, "NOTES", CHILD, {"text": 5}), CellConflict),
    "batch": (lambda store, key: store.put_cells([Cell(key, "FREE", 1, {"x": "other"})]), BatchFailed),
}


@pytest.fixture(scope="module", params=FLAVOURS)
def server(request: pytest.FixtureRequest, servers: LocalServers) -> PostgresServer:
    return postgres_server(servers, request.param)


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server, indexes=INDEXES) as made:
        yield made


@pytest.fixture(autouse=True)
def open_gate(trips: Company) -> Iterator[None]:
    """Whatever a test leaves behind, the next finds the gate open at EPOCH."""
    set_to(trips, GateReading(EPOCH, OPEN))
    yield
    set_to(trips, GateReading(EPOCH, OPEN))


def set_to(trips: Company, gate: GateReading) -> None:
    with trips.legacy.ours() as connection:
        set_gate(connection, gate)


def trip(trips: Company) -> UUID:
    key = trips.base(1, 2)
    trips.store.put_cell(key, "STATUS", 1, {"result": "1"})
    trips.store.put_cell(key, "NOTES", CHILD, {"text": "1"})
    trips.store.put_cell(key, "FREE", 1, {"x": 1})
    return key


def written(trips: Company) -> list[Any]:
    """All that a put may change."""
    tables = ("trips", "attempts", "notes", "tripstore.cell", "tripstore.queue", "tripstore.log", "tripstore.tomb")
    return [trips.legacy.sql(f"SELECT t::text FROM {table} AS t ORDER BY 1") for table in tables]


@contextmanager
def holding(trips: Company, *locks: int) -> Iterator[Any]:
    """A switcher with the door, the barrier, or both."""
    with closing(trips.legacy.connect(autocommit=True)) as connection:
        for lock in locks:
            rows(connection, f"SELECT pg_advisory_lock({K}, {lock})")
        yield connection


@contextmanager
def meanwhile(call: Callable[[], object]) -> Iterator[Future[object]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


def wait_for_locks(trips: Company, kind: str, count: int = 1) -> None:
    query = (
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = %s "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    wait_until(f"{count} wait for a lock", lambda: trips.legacy.sql(query, kind)[0][0] >= count)


# ----------------------------------------------------------------------------------------------------------- owners


@pytest.mark.parametrize("gate", [GateReading(EPOCH, OPEN), GateReading(EPOCH + 1, CLOSING)], ids=["open", "closing"])
def test_an_owner_of_the_open_epoch_reads_what_is_there(trips: Company, gate: GateReading) -> None:
    """While the gate is closing the hand-over is not decided."""
    key = trip(trips)
    owner = trips.store.as_owner(EPOCH)
    expected = {name: read(trips.store, key) for name, read in READS.items()}
    set_to(trips, gate)

    assert {name: read(owner, key) for name, read in READS.items()} == expected


@pytest.mark.parametrize("gate", [GateReading(EPOCH, OPEN), GateReading(EPOCH + 1, CLOSING)], ids=["open", "closing"])
def test_an_owner_of_the_open_epoch_puts(trips: Company, gate: GateReading) -> None:
    """I9: no switcher waits for the barrier yet, so the next one will wait for these puts."""
    keys = {name: trip(trips) for name in PUTS}
    set_to(trips, gate)
    for name, put in PUTS.items():
        answer = put(trips.store.as_owner(EPOCH), keys[name])
        results: list[Any] = answer if isinstance(answer, list) else [answer]
        assert {result.epoch for result in results} == {EPOCH}, name
        assert results[-1].status == ("EXISTS" if name.endswith(("again", "id")) else "CREATED"), name


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_owner_of_another_epoch_is_refused_whatever_he_reads(trips: Company, name: str) -> None:
    """I9."""
    key = trip(trips)
    owner = trips.store.as_owner(EPOCH).using(deadline=20)
    for read in READS.values():
        read(owner, key)
    set_to(trips, ELSEWHERE[name])

    for what, read in READS.items():
        with pytest.raises(StaleEpoch) as caught:
            read(owner, key)
        assert caught.value.is_of_authority, what


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_owner_of_another_epoch_is_refused_whatever_he_puts(trips: Company, name: str) -> None:
    """I9: and nothing is written. What is there already is no answer either, nor is what stands in the way."""
    key = trip(trips)
    owner = trips.store.as_owner(EPOCH)
    set_to(trips, ELSEWHERE[name])
    before = written(trips)

    for what, put in PUTS.items() | {(what, put) for what, (put, _error) in REFUSALS.items()}:
        with pytest.raises((StaleEpoch, BatchFailed)) as caught:
            put(owner, key)
        failed = caught.value
        results = failed.results if isinstance(failed, BatchFailed) else [failed]
        assert all(isinstance(result, StaleEpoch) and result.is_of_authority for result in results), (what, results)

    assert written(trips) == before


def test_an_owner_of_the_open_epoch_hears_refusals(trips: Company) -> None:
    key = trip(trips)
    for put, error in REFUSALS.values():
        with pytest.raises(error):
            put(trips.store.as_owner(EPOCH), key)


def test_a_batch_says_of_each_cell_whether_it_came_before_the_switch(trips: Company, tmp_path: Path) -> None:
    key, owner = trip(trips), trips.store.as_owner(EPOCH)
    cells = [Cell(key, "BASE", 3, status(3)), Cell(key, "BASE", 4, status(4))]
    (tmp_path / "put.committed").write_text("wait")
    use_folder(tmp_path)
    with meanwhile(lambda: owner.put_cells(cells)) as batch:
        wait_until("the first is committed", (tmp_path / "put.committed.hit").exists)
        set_to(trips, GateReading(EPOCH + 1, CLOSED))
        (tmp_path / "put.committed.go").touch()
        with pytest.raises(BatchFailed) as caught:
            batch.result(30)

    first, second = caught.value.results
    assert not isinstance(first, SchemalessError)
    assert isinstance(second, StaleEpoch)
    assert trips.versions(key) == [3, 2, 1]


@pytest.mark.parametrize("name", ["a version", "a child", "free", "a new row"])
def test_the_barrier_waits_for_a_put_that_has_entered(trips: Company, name: str, tmp_path: Path) -> None:
    """I8, I9: it is committed before anybody counts what is to be carried over."""
    key, owner = trip(trips), trips.store.as_owner(EPOCH)
    with closing(trips.legacy.connect()) as reader, holding(trips, DOOR) as switch:
        rows(reader, "LOCK TABLE tripstore.queue IN SHARE MODE")  # so the put stops with its lock taken
        with meanwhile(lambda: PUTS[name](owner, key)) as put:
            wait_for_locks(trips, "relation")
            set_to(trips, GateReading(EPOCH + 1, CLOSING))
            barrier = Blocked(trips.legacy, switch, f"SELECT pg_advisory_lock({K}, {BARRIER})")
            barrier.wait_until_it_waits()
            reader.rollback()
            put.result(30)
            barrier.result()


@pytest.mark.parametrize("gate", [GateReading(EPOCH, OPEN), GateReading(EPOCH + 1, CLOSING)], ids=["open", "closing"])
@pytest.mark.parametrize("name", ["a version", "the row again", "free", "append", "a batch"])
def test_a_put_waits_at_the_door_and_goes_on_if_the_switch_is_undecided(
    trips: Company, name: str, gate: GateReading
) -> None:
    key, owner = trip(trips), trips.store.as_owner(EPOCH)
    with holding(trips, DOOR, BARRIER) as switch, meanwhile(lambda: PUTS[name](owner, key)) as put:
        wait_for_locks(trips, "advisory")
        set_to(trips, gate)
        switch.close()
        assert put.result(30)


@pytest.mark.parametrize("name", ["a version", "free"])
def test_i9_a_put_waits_for_the_barrier_where_the_door_is_free(trips: Company, name: str) -> None:
    """With no lock of its own, nothing would wait for it before the gate is shut."""
    key, owner = trip(trips), trips.store.as_owner(EPOCH)
    with holding(trips, BARRIER) as switch, meanwhile(lambda: PUTS[name](owner, key)) as put:
        wait_for_locks(trips, "advisory")
        switch.close()
        assert put.result(30)


def stopped_at_the_door(trips: Company) -> object:
    """What becomes of a put that came before a switch, and gets in after the way back."""
    key, owner = trip(trips), trips.store.as_owner(EPOCH)
    with holding(trips, DOOR, BARRIER) as switch, meanwhile(lambda: PUTS["a version"](owner, key)) as put:
        wait_for_locks(trips, "advisory")
        set_to(trips, GateReading(EPOCH + 2, OPEN))
        switch.close()
        return put.exception(30)


def test_a_put_waits_at_the_door_and_is_refused_after_the_switch(trips: Company) -> None:
    """I9: the gate is open again, but not at the epoch that the put goes by."""
    assert isinstance(stopped_at_the_door(trips), StaleEpoch)


def test_control_who_looks_before_he_locks_writes_at_a_later_epoch(
    trips: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_first(self: Owner, connection: LegacyConnection) -> list[str]:
        self.look(connection)
        return [f"SELECT pg_catalog.pg_advisory_xact_lock_shared({K}, {BARRIER})"]

    monkeypatch.setattr(Owner, "enter", looked_first)

    assert stopped_at_the_door(trips) is None


def test_who_waits_at_the_door_for_too_long_is_refused(trips: Company) -> None:
    key = trip(trips)
    hasty = LegacyDatabase(trips.legacy.url, replace(PATIENT, lock_seconds=0.02))
    with PostgresBackend(hasty, layout(), shards=8) as store, holding(trips, DOOR, BARRIER):
        set_to(trips, GateReading(EPOCH + 1, CLOSING))
        for name in ("a version", "free"):
            with pytest.raises(StaleEpoch):
                PUTS[name](store.as_owner(EPOCH), key)


def test_who_comes_too_late_does_not_wait(trips: Company) -> None:
    """A stopped switcher may have left the door shut: an old epoch will not come again."""
    key = trip(trips)
    with holding(trips, DOOR, BARRIER):
        set_to(trips, GateReading(EPOCH + 2, CLOSED))
        with pytest.raises(StaleEpoch):
            trips.store.as_owner(EPOCH).put_cell(key, "BASE", 3, status(3))


@pytest.mark.parametrize("name", SEVERAL)
def test_a_read_is_dropped_when_the_gate_is_shut_before_it_returns(trips: Company, name: str, tmp_path: Path) -> None:
    """I9: what it read may be old by the time it is told."""
    key, owner = trip(trips), trips.store.as_owner(EPOCH)
    (tmp_path / "read.before_gate").write_text("wait")
    use_folder(tmp_path)
    with meanwhile(lambda: READS[name](owner, key)) as read:
        wait_until("it has read", (tmp_path / "read.before_gate.hit").exists)
        set_to(trips, GateReading(EPOCH + 1, CLOSED))
        (tmp_path / "read.before_gate.go").touch()
        with pytest.raises(StaleEpoch):
            read.result(30)


def read_across_a_switch(trips: Company, read: Call) -> object:
    """What becomes of a read whose snapshot is older than a switch: after that it waits for the table."""
    key, owner = trip(trips), trips.store.as_owner(EPOCH)
    read(owner, key)  # prepares the statement
    with closing(trips.legacy.connect()) as writer:
        rows(writer, "LOCK TABLE trips IN ACCESS EXCLUSIVE MODE")
        with meanwhile(lambda: read(owner, key)) as answer:
            wait_for_locks(trips, "relation")
            rows(writer, "UPDATE trips SET status = 'later' WHERE trip_uuid = %s", (str(key),))
            set_to(trips, GateReading(EPOCH + 1, CLOSED))
            writer.commit()
            return answer.exception(30) or answer.result()


@pytest.mark.parametrize(
    "name", [name for name in SINGLE if "free" not in name and not name.endswith(("child", "fact"))]
)
def test_one_statement_reads_the_gate_after_its_snapshot(trips: Company, name: str) -> None:
    """I9."""
    assert isinstance(read_across_a_switch(trips, READS[name]), StaleEpoch)


@pytest.mark.parametrize("name", ["get_cell", "get_cell_latest"])
def test_control_a_gate_that_is_read_before_the_snapshot_lets_an_old_answer_pass(
    trips: Company, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_first(self: Owner, connection: LegacyConnection, statement: Prepared, arguments: str) -> list[Row]:
        self.look(connection)
        return connection.execute(statement, arguments)

    monkeypatch.setattr(Owner, "execute", looked_first)
    answer = read_across_a_switch(trips, READS[name])

    assert isinstance(answer, Cell)
    assert answer.body == status(2)


def test_a_store_without_standing_reads_and_puts_as_ever(trips: Company) -> None:
    key = trip(trips)
    set_to(trips, GateReading(EPOCH + 2, OPEN))

    result = trips.store.put_cell(key, "BASE", 3, status(3))
    assert (result.status, result.epoch) == ("CREATED", 0)
    assert trips.store.using(deadline=5).as_owner(EPOCH + 2).using(deadline=4).put_cell(key, "FREE", 2, {}).epoch == 6


def test_free_columns_are_behind_the_gate(trips: Company) -> None:
    """I9: for a facade that puts them, and for SQL that writes our table directly."""
    key = trip(trips)
    set_to(trips, GateReading(EPOCH + 1, CLOSED))

    with pytest.raises(StaleEpoch):
        trips.store.put_cell(key, "FREE", 2, {"x": 2})
    for statement in (
        "INSERT INTO tripstore.cell (row_key, column_name, ref_key, body) VALUES (gen_random_uuid(), 'F', 1, '1')",
        "UPDATE tripstore.cell SET ref_key = 5",
        "DELETE FROM tripstore.cell",
        "TRUNCATE tripstore.cell",
    ):
        with refused(sqlstates.GATE_SHUT):
            trips.legacy.sql(statement)
