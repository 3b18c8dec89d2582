"""Batches whose server refuses a part of them."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

import pytest
from pymysql.cursors import DictCursor

from schemaless_core import BatchFailed, Cell, Datastore, PutResult, SchemaMissing
from schemaless_core.cell.standing import Gate, Kind
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql import batches
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from tests.chaos.actors import Tailer, check_log
from tests.factories import keys_in
from tests.stores import ServerEngine, Stores
from tripstore.local.server import Server


def test_one_damaged_shard_of_a_batch_keeps_no_other_shard_from_being_stored(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """They share a transaction, which the server refuses as a whole: each shard is then tried alone."""
    store = stores.fresh(server_engine, shards=8)
    server = stores.clusters(server_engine)[0].primary
    damaged = store.schema.plan().topology.shards_of("a")[1]
    server.query(f"DROP TABLE {store.config.datastore}_{damaged:04d}.cell")
    cells = [Cell(uuid4(), "BASE", 1, n) for n in range(100)]

    with pytest.raises(BatchFailed) as raised:
        store.put_cells(cells)

    for cell, result in zip(cells, raised.value.results, strict=True):
        expected = SchemaMissing if store.shard_of(cell.row_key) == damaged else PutResult
        assert isinstance(result, expected)
    logs = {shard: store.get_cells_for_shard(shard, 0, 100).cells for shard in range(8) if shard != damaged}
    assert check_log(logs) == sum(isinstance(result, PutResult) for result in raised.value.results)


def test_i1_i2_what_a_refused_transaction_had_begun_is_not_committed_by_the_next(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """Its first shard has its cells when the second refuses; then each is stored alone, as if for the first time."""
    store = stores.fresh(server_engine, shards=4)
    server, name = stores.clusters(server_engine)[0].primary, store.config.datastore
    first, second = store.schema.plan().topology.shards_of("a")
    refuse = "FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no room'"
    server.query(f"CREATE TRIGGER {name}_{second:04d}.refuse BEFORE INSERT ON {name}_{second:04d}.cell {refuse}")
    rows = {shard: next(keys_in(store, shard)) for shard in (first, second)}

    with pytest.raises(BatchFailed) as raised:
        store.put_cells([Cell(rows[shard], "BASE", n, n) for shard in (first, second) for n in range(3)])

    stored = raised.value.results[:3]
    assert [(result.status, result.added_id) for result in stored if isinstance(result, PutResult)] == [
        ("CREATED", n) for n in (1, 2, 3)
    ]


def test_batches_in_opposite_orders_do_not_lock_each_other_out(server_engine: ServerEngine, stores: Stores) -> None:
    from concurrent.futures import ThreadPoolExecutor

    store = stores.fresh(server_engine, shards=8)

    def put(seed: int) -> int:
        cells = [Cell(uuid4(), "BASE", 1, n) for n in range(60)]
        return len(store.put_cells(cells if seed % 2 else cells[::-1]))

    with ThreadPoolExecutor(6) as threads:
        stored = sum(threads.map(put, range(60)))

    tailer = Tailer(store)
    tailer.catch_up()
    assert check_log(tailer.delivered) == stored == 3_600


@pytest.mark.parametrize("is_hinted", [True, False])
def test_a_batch_waits_for_no_counter_but_its_own(
    server_engine: ServerEngine, stores: Stores, monkeypatch: pytest.MonkeyPatch, is_hinted: bool
) -> None:
    """Or two batches wait for each other in a circle. Control: without the hint a server goes through all counters.

    MariaDB mostly passes over those that others hold; MySQL waits for them.
    """
    if not is_hinted:
        for name in ("CATCH_UP", "TAKE_COUNTERS", "ADVANCE_COUNTERS"):
            monkeypatch.setattr(batches, name, getattr(batches, name).replace("FORCE INDEX (PRIMARY)", ""))
    config = stores.config(server_engine, shards=32)
    config["clusters"] = {"a": config["clusters"]["a"]}
    with Datastore.open(config) as store:
        store.create_schema()
        server, node = stores.clusters(server_engine)[0].primary, store.clusters["a"].primary.node
        assert isinstance(node, MySQLNode)
        rows = {store.shard_of(key): key for key in (uuid4() for _ in range(2_000))}
        cells = [Cell(rows[shard], "BASE", 1, "a body") for shard in range(12, 28)]
        store.put_cells(cells)

        with closing(node._sessions._pool._connect(Deadline(5))) as other, other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"SELECT 1 FROM {store.config.datastore}_meta.shard_state WHERE shard = 10 FOR UPDATE")
            before = lock_waits(server)
            store.put_cells([Cell(cell.row_key, cell.column_name, 2, cell.body) for cell in cells])
            waits = lock_waits(server) - before
            other.rollback()
            plan = plan_of_counters(other, Names(store.config.datastore), range(12, 28))

    assert (plan == "range") is is_hinted
    if is_hinted or server_engine == "mysql":
        assert (waits == 0) is is_hinted


def plan_of_counters(connection: DeadlineConnection, names: Names, shards: range) -> str:
    """How the server finds the counters of a batch."""
    gates = [Gate(shard, 1, Kind.OWNER, 0) for shard in shards]
    with connection.cursor(DictCursor) as cursor:
        cursor.execute(
            "EXPLAIN FORMAT=TRADITIONAL " + batches._counters(connection, names, batches.CATCH_UP, gates).decode()
        )
        (found,) = [row["type"] for row in cursor.fetchall() if row["table"] == "shard_state"]
    return str(found)


def lock_waits(server: Server) -> int:
    (row,) = server.query("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'")  # type: ignore[attr-defined]  # both engines have it
    return int(list(row.values())[1])
