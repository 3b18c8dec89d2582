"""A cell whose own server does not take it waits elsewhere, and is in its log once when that is back (I5)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from schemaless_core import BatchFailed, Cell, CellConflict, CellKey, Datastore, NodeUnavailable, PutStatus
from schemaless_core.buffers import steps
from schemaless_core.buffers.ports import OnHold
from schemaless_core.buffers.replayer import NOTHING, Replayed
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.names import Names
from schemaless_core.errors import BufferFull, SchemaMissing, StaleEpoch, Unavailable
from schemaless_core.failpoints import FailpointReached, use_folder
from schemaless_core.servers.routing import Router
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import rows_on
from tests.stores import ServerEngine, Stores
from tripstore.local.proxy import Proxy

CREATED, EXISTS, BUFFERED = PutStatus.CREATED, PutStatus.EXISTS, PutStatus.BUFFERED
MEBIBYTE = 1024 * 1024
#: Servers that do not answer cost a deadline, and the pair of cores is busy.
DEADLINES = {"put_seconds": 0.3, "read_seconds": 5.0, "connect_seconds": 5.0, "pool_seconds": 5.0}


class Lame(NamedTuple):
    """A datastore, and the way to its cluster a."""

    store: Datastore
    proxy: Proxy

    @contextmanager
    def down(self, how: str = "cut") -> Iterator[None]:
        """Cluster a does not answer."""
        self.proxy.refuse() if how == "cut" else self.proxy.swallow()
        if how == "cut":
            self.proxy.cut()
        try:
            yield
        finally:
            self.proxy.heal()

    def drain(self, is_patient: bool = True) -> int:
        """Carry all that waits, once the breakers let writes through."""
        replayer, carried, give_up_at = self.store.replayer(), 0, time.monotonic() + 20
        while time.monotonic() < give_up_at:
            done = replayer.round()
            carried += done.cells
            if not done.left or not is_patient:
                return carried
            time.sleep(0.05)
        raise AssertionError("cells still wait")

    def waiting(self) -> int:
        return sum(size.cells for size in self.store.replayer().sizes().values() if not isinstance(size, Exception))

    def log(self) -> list[tuple[UUID, str, int, Any]]:
        """Every cell of every log."""
        pages = [self.store.get_cells_for_shard(shard, 0, 1000) for shard in range(self.store.config.shards)]
        return sorted((*cell.key, cell.body) for page in pages for cell in page.cells)


@contextmanager
def lame(engine: ServerEngine, stores: Stores, **options: Any) -> Iterator[Lame]:
    config = stores.config(engine, shards=4)
    Datastore.open(config).create_schema()
    proxy = stores.primaries(engine)["a"].proxy()
    config["clusters"]["a"] = {"primary": proxy.url}
    config |= {"deadlines": DEADLINES, "buffer": {"put_seconds": 5.0}} | options
    with closing(proxy), Datastore.open(config) as store:
        for row in [*rows_on(store, "a", 2), *rows_on(store, "b", 2)]:
            store.using(deadline=10.0).put_cell(row, "WARM", 1, "warm")
        yield Lame(store, proxy)


@pytest.fixture
def half(server_engine: ServerEngine, stores: Stores) -> Iterator[Lame]:
    with lame(server_engine, stores) as made:
        yield made


@pytest.mark.parametrize("how", ["cut", "swallow"])
def test_i5_a_put_is_kept_found_again_and_stored_once(half: Lame, how: str) -> None:
    """Where packets are swallowed the primary may have it as well: nothing tells."""
    store = half.store
    on_a, on_b = rows_on(store, "a", 3), rows_on(store, "b", 1)
    with half.down(how):
        results = [store.put_cell(row, "BASE", 1, n) for n, row in enumerate(on_a)]
        assert {(result.status, result.readable, result.added_id) for result in results} == {(BUFFERED, False, None)}
        assert store.put_cell(on_b[0], "BASE", 1, "b").status is CREATED
        assert store.put_cell(on_a[0], "BASE", 1, 0).status is BUFFERED  # again
        everywhere = store.using(include_buffered=True)
        assert everywhere.get_cell(on_a[1], "BASE", 1) == Cell(on_a[1], "BASE", 1, 1)
        those = [CellKey(row, "BASE", 1) for row in (on_b[0], *on_a)]
        assert everywhere.get_cells(those) == [
            Cell(*those[0], "b"),
            *(Cell(*key, n) for n, key in enumerate(those[1:])),
        ]
        with pytest.raises(NodeUnavailable):  # whether there is another one the silent primary alone knows
            everywhere.get_cells([*those, CellKey(on_a[0], "BASE", 2)])
    assert half.waiting() == len(on_a)

    assert half.drain() == len(on_a)

    assert [store.get_cell_latest(row, "BASE") for row in on_a] == [
        Cell(row, "BASE", 1, n) for n, row in enumerate(on_a)
    ]
    assert store.put_cell(on_a[0], "BASE", 1, 0).status is EXISTS
    assert len([entry for entry in half.log() if entry[1] == "BASE"]) == len(on_a) + 1
    assert half.waiting() == 0


def test_i5_a_batch_is_stored_where_it_can_be_and_kept_where_it_cannot(half: Lame) -> None:
    store = half.store
    on_a, on_b = rows_on(store, "a", 20), rows_on(store, "b", 20)
    cells = [
        Cell(row, "BASE", ref_key, "x") for pair in zip(on_a, on_b, strict=True) for row in pair for ref_key in (1, 2)
    ]
    with half.down():
        results = store.put_cells(cells)
        again = store.put_cells(cells)

    assert [result.status for result in results] == [BUFFERED if cell.row_key in on_a else CREATED for cell in cells]
    assert [result.status for result in again] == [BUFFERED if cell.row_key in on_a else EXISTS for cell in cells]
    half.drain()
    assert store.get_cells([cell.key for cell in cells]) == cells
    assert len([entry for entry in half.log() if entry[1] == "BASE"]) == len(cells)


def test_i2_two_bodies_under_one_key_conflict_in_the_buffer_and_at_the_shard(half: Lame) -> None:
    store = half.store
    kept, stored = rows_on(store, "a", 2)
    with half.down():
        store.put_cell(kept, "BASE", 1, "first")
        with pytest.raises(CellConflict) as conflict:
            store.put_cell(kept, "BASE", 1, "second")
        with pytest.raises(BatchFailed) as failed:
            store.put_cells([Cell(kept, "BASE", 1, "third"), Cell(kept, "BASE", 2, "fine")])
        store.put_cell(stored, "BASE", 1, "waits")
    assert conflict.value.stored == Cell(kept, "BASE", 1, "first")
    assert [type(result).__name__ for result in failed.value.results] == ["CellConflict", "PutResult"]
    _put_when_back(store, Cell(stored, "BASE", 1, "there first"))

    half.drain()

    assert store.get_cell(kept, "BASE", 1) == Cell(kept, "BASE", 1, "first")
    assert store.get_cell(stored, "BASE", 1) == Cell(stored, "BASE", 1, "there first")
    (entry,) = store.replayer().conflicts(10)["b"]  # type: ignore[misc]  # the server answers
    assert (entry.waiting.cell.body, entry.stored) == (b'"waits"', b'"there first"')


def _put_when_back(store: Datastore, cell: Cell) -> None:
    """By a store without buffers, once the breaker lets it through."""
    plain, give_up_at = store.as_copier().using(deadline=5.0), time.monotonic() + 15
    while True:
        try:
            plain.put_cell(cell.row_key, cell.column_name, cell.ref_key, cell.body)
            return
        except NodeUnavailable:
            assert time.monotonic() < give_up_at
            time.sleep(0.05)


def test_what_asks_the_primary_and_what_copiers_write_is_not_kept_and_says_so(half: Lame) -> None:
    store = half.store
    (row,) = rows_on(store, "a", 1)
    end = store.end_of_log(store.shard_of(row))
    calls: list[Callable[[], object]] = [
        lambda: store.put_cell(row, "BASE", 1, "x", expect_latest=None),
        lambda: store.put_together([Cell(row, "BASE", 1, "x")], end),
    ]
    with half.down():
        for call in calls:
            with pytest.raises(NodeUnavailable) as refused:
                call()
            assert "No buffer keeps it" in str(refused.value.hint)
        with pytest.raises(NodeUnavailable):
            store.append_cell(row, "BASE", "x")
        with pytest.raises(NodeUnavailable):
            store.as_copier().put_cell(row, "BASE", 1, "x")

    assert half.waiting() == 0


@contextmanager
def small_packets(stores: Stores, engine: ServerEngine, primaries: Sequence[int]) -> Iterator[None]:
    """Some servers take no packet above one mebibyte."""
    servers = [stores.clusters(engine)[n].primary for n in primaries]
    before = [server.query("SELECT @@GLOBAL.max_allowed_packet AS v")[0]["v"] for server in servers]
    try:
        for server in servers:
            server.query(f"SET GLOBAL max_allowed_packet = {MEBIBYTE}")
        yield
    finally:
        for server, value in zip(servers, before, strict=True):
            server.query(f"SET GLOBAL max_allowed_packet = {value}")


def large_cells(row: UUID, body: str) -> list[Cell]:
    """Five of one row: no two of them fit into a packet of a mebibyte."""
    return [Cell(row, "BASE", ref_key, body * 600_000) for ref_key in range(1, 6)]


def test_i5_a_batch_that_is_larger_than_a_packet_of_the_buffer_is_kept_by_parts(
    server_engine: ServerEngine, stores: Stores
) -> None:
    with (
        lame(server_engine, stores) as made,
        small_packets(stores, server_engine, [1]),
        Datastore(made.store.config) as later,
    ):
        (row,) = rows_on(made.store, "a", 1)
        later.get_cell(row, "BASE", 1)
        with made.down():
            results = later.put_cells([*large_cells(row, "x"), Cell(row, "BASE", 9, "y")])
        assert {result.status for result in results} == {BUFFERED}
        assert made.drain() == 6


def test_i5_what_waits_and_is_larger_than_a_packet_of_its_server_is_carried_and_what_differs_is_in_the_ledger(
    server_engine: ServerEngine, stores: Stores
) -> None:
    with lame(server_engine, stores) as made:
        carried, differs = rows_on(made.store, "a", 2)
        with made.down():
            made.store.put_cells([*large_cells(carried, "x"), *large_cells(differs, "x")])
        for cell in large_cells(differs, "y"):
            _put_when_back(made.store, cell)
        with small_packets(stores, server_engine, [0, 1]), Datastore(made.store.config) as later:
            for _ in range(20):  # a take each, until nothing moves
                later.replayer().round()

        assert made.waiting() == 0
        assert made.store.get_history(carried, "BASE") == large_cells(carried, "x")[::-1]
        (ledger,) = [each for each in made.store.replayer().conflicts(10).values() if each]
        assert isinstance(ledger, list)
        assert [each.waiting.cell.ref_key for each in ledger] == [1, 2, 3, 4, 5]


def test_i5_a_cell_that_is_too_large_for_its_server_keeps_no_other_waiting(
    server_engine: ServerEngine, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    with lame(server_engine, stores) as made:
        (row,) = rows_on(made.store, "a", 1)
        with made.down():
            made.store.put_cells([Cell(row, "BASE", 1, "x" * 1_500_000), Cell(row, "BASE", 2, "y")])
        with small_packets(stores, server_engine, [0]), Datastore(made.store.config) as later:
            assert sum(later.replayer().round().cells for _ in range(5)) == 1
        told = [record for record in caplog.records if getattr(record, "event", "") == "replay.too_large"]
        assert "max_allowed_packet" in told[0].hint  # type: ignore[attr-defined]  # given as extra
        assert made.store.get_history(row, "BASE") == [Cell(row, "BASE", 2, "y")]
        assert made.drain() == 1


@pytest.mark.parametrize("holds", [["a", "b"], ["a"]], ids=["holds shards", "holds none any more"])
def test_i5_what_a_cluster_kept_is_found_and_carried_whichever_shards_it_holds(
    half: Lame, monkeypatch: pytest.MonkeyPatch, holds: list[str]
) -> None:
    store = half.store
    (row,) = rows_on(store, "a", 1)
    with half.down():
        store.put_cell(row, "BASE", 1, "x")
        monkeypatch.setattr(Router, "holders", lambda self, deadline: [store.clusters[name] for name in holds])
        assert store.using(include_buffered=True).get_cell(row, "BASE", 1) == Cell(row, "BASE", 1, "x")

    assert half.waiting() == 1
    assert half.drain() == 1


def test_i5_what_waits_is_read_and_carried_when_the_section_is_gone(half: Lame) -> None:
    (row,) = rows_on(half.store, "a", 1)
    with half.down():
        half.store.put_cell(row, "BASE", 1, "x")
    with Datastore(replace(half.store.config, buffer=None)) as later:
        assert later.using(include_buffered=True).get_cell(row, "BASE", 1) == Cell(row, "BASE", 1, "x")
        assert [fact.value.split(",")[0] for fact in later.replayer().facts("b")] == ["1 cells wait"]
        assert later.replayer().facts("a") == []

        with later.replayer():  # as a worker has it
            wait_until("it is carried", lambda: later.get_cell(row, "BASE", 1) is not None)


def test_a_cluster_without_the_tables_holds_nothing_and_another_one_that_is_silent_is_an_error(
    server_engine: ServerEngine, stores: Stores, half: Lame
) -> None:
    """It is new, or made before there were buffers: a layout may be changed, and a gate evaluated, all the same."""
    store, replayer = half.store, half.store.replayer()
    tables = store.clusters["b"].primary.node.buffers
    for table in ("buffered", "buffer_conflict"):
        stores.clusters(server_engine)[1].primary.query(f"DROP TABLE {Names(store.config.datastore).meta}.{table}")
    with pytest.raises(SchemaMissing):
        tables.size(Deadline(5.0))

    assert replayer.columns() == set()
    assert replayer.sizes()["b"] == NOTHING
    assert replayer.conflicts(10)["b"] == []
    with half.down(), pytest.raises(Unavailable):
        replayer.columns()


def test_a_replayer_survives_an_error_that_nobody_foresaw(
    half: Lame, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (row,) = rows_on(half.store, "a", 1)
    with half.down():
        half.store.put_cell(row, "BASE", 1, "x")
    replayer = half.store.replayer()
    failures = iter([True, True])
    true_round = replayer.round

    def round_() -> Replayed:
        if next(failures, False):
            raise ZeroDivisionError
        return true_round()

    monkeypatch.setattr(replayer, "round", round_)
    with replayer:
        wait_until("it is carried", lambda: half.store.get_cell(row, "BASE", 1) is not None)

    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True, True]


def test_without_the_section_puts_fail_as_before(server_engine: ServerEngine, stores: Stores) -> None:
    with lame(server_engine, stores, buffer=None) as made:
        (row,) = rows_on(made.store, "a", 1)
        with made.down(), pytest.raises(NodeUnavailable):
            made.store.put_cell(row, "BASE", 1, "x")
        assert made.waiting() == 0


def test_a_full_buffer_is_refused_by_name(server_engine: ServerEngine, stores: Stores) -> None:
    with lame(server_engine, stores, buffer={"put_seconds": 5.0, "max_cells": 2}) as made:
        rows = rows_on(made.store, "a", 4)
        with made.down():
            made.store.put_cells([Cell(row, "BASE", 1, "x") for row in rows[:3]])
            time.sleep(2.1)  # for so long its size is believed
            with pytest.raises(BufferFull, match="buffer of b is full"):
                made.store.put_cell(rows[3], "BASE", 1, "x")
        assert made.drain() == 3


def test_i9_a_stale_owner_is_refused_by_the_buffer(half: Lame) -> None:
    store = half.store
    (row,) = rows_on(store, "a", 1)
    for cluster in ("a", "b"):
        store.authority.close(cluster, 1)
        store.authority.open(cluster, 2)
    owner = store.as_owner(2)
    owner.put_cell(row, "BASE", 1, "x")  # this process knows its place
    with half.down():
        assert owner.put_cell(row, "BASE", 2, "x").status is BUFFERED
        store.authority.close("b", 3)
        with pytest.raises(StaleEpoch) as refused:
            owner.put_cell(row, "BASE", 3, "x")
        assert refused.value.is_of_authority

    assert half.waiting() == 1


def test_i1_a_shard_that_refuses_while_no_buffer_answers_is_unavailable_and_not_stale(
    half: Lame, server_engine: ServerEngine, stores: Stores
) -> None:
    """Its own refusal says that nothing was stored. Of a buffer that did not answer nothing is known: repeat it."""
    store = half.store
    (row, other) = rows_on(store, "b", 2)
    server = stores.clusters(server_engine)[1].primary
    states = f"{store.config.datastore}_meta.shard_state"
    server.query(f"UPDATE {states} SET state = 'RO'")  # as a promotion does
    with half.down():
        for put in (
            lambda: store.put_cell(row, "BASE", 1, "x"),
            lambda: store.put_cells([Cell(other, "BASE", 1, "x")]),
        ):
            with pytest.raises((Unavailable, BatchFailed)) as failed:
                put()
            (error,) = failed.value.results if isinstance(failed.value, BatchFailed) else [failed.value]
            assert isinstance(error, Unavailable)
            assert "it is RO and takes no writes" in error.message
            assert "no buffer answers" in error.message
            assert "Repeat the put" in str(error.hint)
        with pytest.raises(StaleEpoch):  # the control: what is never offered to a buffer is nowhere
            store.put_cell(row, "BASE", 1, "x", expect_latest=None)
    server.query(f"UPDATE {states} SET state = 'RW'")

    assert store.using(deadline=10.0).put_cell(row, "BASE", 1, "x").status in (CREATED, EXISTS)


class At(NamedTuple):
    """An authority row of a test's own."""

    value: int | OnHold

    def epoch(self) -> int | OnHold:
        return self.value


def test_i5_what_waits_is_carried_by_the_epoch_of_now_while_a_hand_over_closes_and_never_into_a_mirror(
    half: Lame,
) -> None:
    store = half.store
    (row,) = rows_on(store, "a", 1)
    with half.down():
        store.put_cell(row, "BASE", 1, "x")
    for cluster in ("a", "b"):
        _close_when_back(store, cluster)

    assert store.replayer(At(OnHold.HELD)).round().cells == 0
    assert store.replayer(At(0)).round().cells == 0  # its shard is younger
    assert store.replayer(At(1)).round().cells == 1
    assert store.get_cell(row, "BASE", 1) is not None


def _close_when_back(store: Datastore, cluster: str) -> None:
    give_up_at = time.monotonic() + 15
    while True:
        try:
            store.authority.close(cluster, 1)
            return
        except NodeUnavailable:
            assert time.monotonic() < give_up_at
            time.sleep(0.05)


@pytest.mark.parametrize("step", [step.name for step in steps.REPLAY])
def test_i5_a_replayer_that_dies_before_a_step_loses_and_doubles_nothing(half: Lame, tmp_path: Path, step: str) -> None:
    store = half.store
    rows = rows_on(store, "a", 3)
    with half.down():
        store.put_cells([Cell(row, "BASE", 1, "x") for row in rows])
    _put_when_back(store, Cell(rows[0], "BASE", 1, "x"))
    use_folder(tmp_path)
    try:
        (tmp_path / step).write_text("raise")
        with pytest.raises(FailpointReached):
            store.replayer().round()
    finally:
        use_folder(None)
    assert half.waiting() == 3

    half.drain()

    assert sorted(entry[0] for entry in half.log() if entry[1] == "BASE") == sorted(rows)


def test_i5_a_file_that_another_writer_holds_is_a_server_that_does_not_answer(stores: Stores) -> None:
    """The same contract on SQLite."""
    config = stores.config("sqlite", shards=4, deadlines={"put_seconds": 0.2}, buffer={})
    with Datastore.open(config) as store:
        store.create_schema()
        (row,) = rows_on(store, "a", 1)
        path = Path(config["clusters"]["a"]["primary"].removeprefix("sqlite:///")) / f"{config['datastore']}.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert store.put_cell(row, "BASE", 1, "x").status is BUFFERED
            assert store.get_cell_latest(row, "BASE") is None
            everywhere = store.using(include_buffered=True)
            assert everywhere.get_cell_latest(row, "BASE") == Cell(row, "BASE", 1, "x")
            assert everywhere.get_row(row) == {"BASE": Cell(row, "BASE", 1, "x")}
            assert everywhere.get_history(row, "BASE") == [Cell(row, "BASE", 1, "x")]
            assert everywhere.get_cells([CellKey(row, "BASE", 1), CellKey(row, "BASE", 2)]) == [
                Cell(row, "BASE", 1, "x"),
                None,
            ]
            other.execute("ROLLBACK")
        assert store.replayer().round().cells == 1
        assert store.get_cell_latest(row, "BASE") == Cell(row, "BASE", 1, "x")
