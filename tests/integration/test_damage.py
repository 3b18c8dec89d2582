"""Counters that are behind, clocks that step back, shards that are locked: nothing stored may suffer (I1, I2, I3)."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pymysql
import pytest
from pymysql.constants import CLIENT

from schemaless_core import ANY, BatchFailed, Cell, CellConflict, Datastore, NodeUnavailable, PutResult, StaleEpoch
from schemaless_core.cell.standing import Gate, Kind
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql import writes
from schemaless_core.engine.mysql.batches import CELLS_FOR_INSERT_ALL
from schemaless_core.engine.mysql.names import Names
from tests.chaos.actors import Tailer, check_log
from tests.factories import keys_in
from tests.stores import ServerEngine, Stores

BATCH = CELLS_FOR_INSERT_ALL + 10
#: Of one shard: each is inserted in a way of its own.
SIZES = (1, 3, BATCH)


def new_cells(count: int) -> list[Cell]:
    return [Cell(uuid4(), "BASE", 1, n) for n in range(count)]


def ids_of(store: Datastore) -> list[int | None]:
    return [cell.added_id for cell in store.get_cells_for_shard(0, 0, 10_000).cells]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("has_duplicate", [False, True])
def test_a_batch_behind_a_lagging_counter_takes_no_stored_cell_away(
    server_engine: ServerEngine, stores: Stores, has_duplicate: bool, size: int
) -> None:
    store = stores.fresh(server_engine, shards=1)
    stored = new_cells(300)
    store.put_cells(stored)
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    server.query(f"UPDATE {name}_meta.shard_state SET next_added_id = 1")

    more = new_cells(size) + (stored[:1] if has_duplicate else [])
    results = store.put_cells(more)

    assert store.get_cells([cell.key for cell in stored]) == stored
    assert [result.added_id for result in results[:size]] == list(range(301, 301 + size))
    assert ids_of(store) == list(range(1, 301 + size))


def test_a_batch_of_one_cell_that_is_there_moves_no_lagging_counter_too_far(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """I1, I3: it is answered as what it is, and the next cell has the next id."""
    store = stores.fresh(server_engine, shards=1)
    stored = new_cells(5)
    store.put_cells(stored)
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    server.query(f"UPDATE {name}_meta.shard_state SET next_added_id = 1")

    (repeated,) = store.put_cells(stored[:1])
    with pytest.raises(BatchFailed) as raised:
        store.put_cells([Cell(*stored[0].key, "another")])
    (added,) = store.put_cells(new_cells(1))

    assert (repeated.status, repeated.added_id) == ("EXISTS", 1)
    assert isinstance(raised.value.results[0], CellConflict)
    assert added.added_id == 6
    assert store.get_cells([cell.key for cell in stored]) == stored


def test_a_lost_counter_row_is_made_anew_behind_the_stored_cells(server_engine: ServerEngine, stores: Stores) -> None:
    store = stores.fresh(server_engine, shards=1)
    stored = new_cells(300)
    store.put_cells(stored)
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    server.query(f"DELETE FROM {name}_meta.shard_state")

    store.create_schema()
    store.put_cells(new_cells(BATCH))

    assert store.get_cells([cell.key for cell in stored]) == stored
    assert ids_of(store) == list(range(1, 301 + BATCH))


@pytest.mark.parametrize("size", SIZES)
def test_a_refused_batch_takes_no_stored_cell_away(server_engine: ServerEngine, stores: Stores, size: int) -> None:
    """A mover copies cells in before it moves the counter; a writer that still writes here is refused, and harmless."""
    store = stores.fresh(server_engine, shards=1)
    stored = new_cells(100)
    store.put_cells(stored)
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    server.query(f"UPDATE {name}_meta.shard_state SET next_added_id = 1, state = 'RO'")

    with pytest.raises(BatchFailed) as raised:
        store.using(deadline=0.5).put_cells(new_cells(size))

    assert all(isinstance(result, StaleEpoch) for result in raised.value.results)
    (row,) = server.query(f"SELECT COUNT(*) AS cells FROM {name}_0000.cell")
    assert row["cells"] == 100


@pytest.mark.parametrize("expected", [ANY, None], ids=["whatever is there", "expecting nothing"])
def test_i3_a_put_behind_a_lagging_counter_is_stored_behind_what_is_there(
    server_engine: ServerEngine, stores: Stores, expected: Any
) -> None:
    """I1, I3: its id is taken by another cell, which stays; the counter catches up with all that is stored."""
    store = stores.fresh(server_engine, shards=1)
    stored = new_cells(5)
    store.put_cells(stored)
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    server.query(f"UPDATE {name}_meta.shard_state SET next_added_id = 2")

    added = [store.put_cell(*cell.key, cell.body, expect_latest=expected) for cell in new_cells(2)]

    assert [result.added_id for result in added] == [6, 7]
    assert store.get_cells([cell.key for cell in stored]) == stored
    assert ids_of(store) == list(range(1, 8))


@pytest.mark.parametrize("advancing", [writes.STEP, writes.ADVANCE], ids=["one", "all"])
def test_times_never_fall_when_the_servers_clock_steps_back(
    server_engine: ServerEngine, stores: Stores, advancing: str
) -> None:
    """The clock steps back between two puts, and between the statements of one packet."""
    store = stores.fresh(server_engine, shards=1)
    server = stores.clusters(server_engine)[0].primary
    names, gate = Names(store.config.datastore), Gate(0, 1, Kind.OWNER, 0)
    connection = pymysql.connect(
        host="127.0.0.1",
        port=server.port,
        user="root",
        password=server.password,
        client_flag=CLIENT.MULTI_STATEMENTS,
        autocommit=True,
    )
    ahead = datetime(2031, 1, 1, tzinfo=UTC).timestamp()
    with connection, connection.cursor() as cursor:
        insert = writes.gated(names, f"BEGIN; {writes.INSERT}", gate)
        advance = writes.gated(names, f"{advancing}; COMMIT", gate)
        cursor.execute(f"SET time_zone = '+00:00', TIMESTAMP = {ahead}")
        cursor.execute(insert, (uuid4().bytes, b"BASE", 1, b"1", *gate.identity))
        while cursor.nextset():
            pass
        cursor.execute(f"SET TIMESTAMP = {ahead - 3600}")
        cursor.execute(advance, gate.identity)
        while cursor.nextset():
            pass
        writes.put(connection, names, gate, NewCell(uuid4().bytes, b"BASE", 1, b"2"), ANY)  # type: ignore[arg-type]  # a plain connection will do
    store.put_cells(new_cells(BATCH))
    store.put_cells(new_cells(3))

    tailer = Tailer(store)
    tailer.catch_up()
    assert check_log(tailer.delivered) == 2 + BATCH + 3


def test_a_locked_shard_does_not_close_its_server(server_engine: ServerEngine, stores: Stores) -> None:
    """Puts that wait for one counter row time out; that says nothing of the other shards of the server."""
    store = stores.fresh(server_engine, shards=4, deadlines={"put_seconds": 0.25})
    of_shard = {shard: [uuid4() for _ in range(400)] for shard in range(4)}
    rows = {shard: [row for row in rows if store.shard_of(row) == shard] for shard, rows in of_shard.items()}
    first, second = store.schema.plan().topology.shards_of("a")
    store.using(deadline=10.0).put_cell(rows[second].pop(), "BASE", 1, "warm")
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    with server.connect() as holder, holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {name}_meta.shard_state WHERE shard = {first} FOR UPDATE")
        for _ in range(4):
            with pytest.raises(NodeUnavailable, match="deadline"):
                store.put_cell(rows[first].pop(), "BASE", 1, "waits")

        assert store.using(deadline=10.0).put_cell(rows[second].pop(), "BASE", 1, "free").status == "CREATED"
        holder.rollback()
    assert store.using(deadline=10.0).put_cell(rows[first].pop(), "BASE", 1, "free again").status == "CREATED"


def test_a_busy_pool_does_not_turn_a_read_over_to_a_replica(server_engine: ServerEngine, stores: Stores) -> None:
    pool = {"size": 1, "overflow": 0}
    deadlines = {"pool_seconds": 0.05, "read_seconds": 5.0}
    store = stores.replicated.fresh(server_engine, shards=1, pool=pool, deadlines=deadlines)
    row_key = uuid4()
    store.put_cell(row_key, "BASE", 1, "old")
    stores.replicated.wait_for_replicas(server_engine)
    sessions = store.clusters["a"].primary.node._sessions  # type: ignore[attr-defined]  # the pool of this very node

    def read_beside(_connection: object) -> None:
        with pytest.raises(NodeUnavailable, match="in use"):
            store.get_cell_latest(row_key, "BASE")

    sessions.run(read_beside, Deadline(5))


def test_a_store_with_other_habits_survives_a_fork(datastore_engine: str, stores: Stores) -> None:
    cells = new_cells(40)
    store = Datastore.open(stores.config(datastore_engine, shards=8)).using(deadline=20.0)
    store.create_schema()
    store.put_cells(cells)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if store.get_cells([cell.key for cell in cells]) == cells else 1)
    watch = threading.Timer(30, lambda: os.kill(pid, 9))
    watch.start()

    _pid, status = os.waitpid(pid, 0)

    watch.cancel()
    assert status == 0
    store.close()


def test_sixteen_appenders_of_one_column_all_get_their_place(server_engine: ServerEngine, stores: Stores) -> None:
    store = stores.fresh(server_engine, shards=1)
    row_key = uuid4()

    with ThreadPoolExecutor(16) as threads:
        results = list(threads.map(lambda n: store.append_cell(row_key, "NOTES", {"event": n}), range(96)))

    assert sorted(result.ref_key for result in results) == list(range(1, 97))
    assert {result.status for result in results} == {"CREATED"}
    bodies = [cell.body for cell in store.get_history(row_key, "NOTES", limit=200)]
    assert sorted(str(body) for body in bodies) == sorted(str({"event": n}) for n in range(96))


def test_a_batch_waits_on_a_locked_shard_without_keeping_the_others_long(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """Its client is stopped by a lock wait's error in the middle; the shards it took are free again in 2 s."""
    store = stores.fresh(server_engine, shards=4)
    batch = store.using(deadline=8.0)
    cells = new_cells(60)
    first, second = store.schema.plan().topology.shards_of("a")
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    with server.connect() as holder, holder.cursor() as cursor, ThreadPoolExecutor(1) as threads:
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {name}_meta.shard_state WHERE shard = {second} FOR UPDATE")
        waiting = threads.submit(_try_batch, batch, cells)
        of_first = next(keys_in(store, first))
        started = time.monotonic()
        while not _is_put(store, Cell(of_first, "BASE", 1, "free")):
            assert time.monotonic() - started < 10
        held = time.monotonic() - started
        holder.rollback()
        results = waiting.result()

    assert held < 2.5
    stored = [cell for cell, result in zip(cells, results, strict=True) if isinstance(result, PutResult)]
    assert store.get_cells([cell.key for cell in stored]) == stored
    assert {result.status for result in store.put_cells(cells)} <= {"CREATED", "EXISTS"}


def _is_put(store: Datastore, cell: Cell) -> bool:
    try:
        store.put_cell(cell.row_key, "BASE", 1, cell.body)
    except NodeUnavailable:
        return False
    return True


def _try_batch(store: Datastore, cells: list[Cell]) -> list[object]:
    try:
        return list(store.put_cells(cells))
    except BatchFailed as failed:
        return list(failed.results)
