"""Batches whose server refuses a part of them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from schemaless_core import BatchFailed, Cell, PutResult, SchemaMissing
from tests.chaos.actors import Tailer, check_log
from tests.stores import ServerEngine, Stores


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
