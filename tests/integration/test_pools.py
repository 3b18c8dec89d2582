"""Connections: they survive restarts of the server, forks of the process, and many threads."""

from __future__ import annotations

import gc
import os
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from schemaless_core import Cell, Datastore
from tests.chaos.actors import Tailer, check_log, clients_of, wait_until
from tests.stores import ServerEngine, Stores


def test_the_first_call_after_a_restart_succeeds(server_engine: ServerEngine, stores: Stores) -> None:
    store = stores.fresh(server_engine, shards=2)
    cells = [Cell(uuid4(), "BASE", 1, n) for n in range(40)]
    with ThreadPoolExecutor(6) as threads:  # so that the pool holds several connections, all dead afterwards
        list(threads.map(lambda cell: store.put_cell(cell.row_key, "BASE", 1, cell.body), cells))

    for cluster in stores.clusters(server_engine):
        cluster.primary.restart()

    assert store.get_cells([cell.key for cell in cells]) == cells
    assert [store.put_cell(*cell.key, cell.body).status for cell in cells[:8]] == ["EXISTS"] * 8
    assert store.put_cells(cells)[0].status == "EXISTS"


def test_a_forked_child_and_its_parent_do_not_share_connections(datastore: Datastore) -> None:
    datastore.put_cell(uuid4(), "BASE", 1, "before the fork")
    children = []
    for child in range(3):
        pid = os.fork()
        if pid == 0:
            os._exit(_work(datastore, child))
        children.append(pid)
    results = [datastore.put_cell(uuid4(), "BASE", 1, n).status for n in range(50)]

    statuses = [os.waitpid(pid, 0)[1] for pid in children]

    assert statuses == [0, 0, 0]
    assert results == ["CREATED"] * 50
    tailer = Tailer(datastore)
    tailer.catch_up()
    assert check_log(tailer.delivered) == 1 + 50 + 3 * 90


def _work(store: Datastore, child: int) -> int:
    """What a forked worker does; its exit code says how it went."""
    try:
        for n in range(50):
            cell = Cell(uuid4(), "BASE", 1, [child, n])
            store.put_cell(*cell.key, cell.body)
            if store.get_cell(*cell.key) != cell:
                return 1
        store.put_cells([Cell(uuid4(), "BASE", 1, n) for n in range(40)])
    except BaseException:  # noqa: BLE001  # a forked child must not run the tests of its parent
        traceback.print_exc()
        return 2
    return 0


def test_a_store_that_was_never_closed_is_collected_with_its_thread(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """A service that opens one per request is wrong, and does not take its server down."""
    index = {
        "table": "by_kind",
        "column_defs": [{"column_key": "BASE", "fields": [{"field": "kind", "type": "string"}]}],
    }
    config = stores.config(server_engine, shards=2, indexes=[index])
    with Datastore.open(config) as made:
        made.create_schema()

    def use() -> weakref.ref[Datastore]:
        store = Datastore.open(config)
        store.put_cell(uuid4(), "BASE", 1, {"kind": "x"})
        assert after_commit_threads() > before
        return weakref.ref(store)

    before = after_commit_threads()
    used = use()
    gc.collect()

    assert used() is None
    wait_until("its thread has ended", lambda: after_commit_threads() == before)


def after_commit_threads() -> int:
    return sum(thread.name == "schemaless-after-commit" for thread in threading.enumerate())


def test_many_threads_share_a_datastore(datastore: Datastore) -> None:
    cells = [Cell(uuid4(), "BASE", 1, n) for n in range(300)]

    with ThreadPoolExecutor(16) as threads:
        put = list(threads.map(lambda cell: datastore.put_cell(cell.row_key, "BASE", 1, cell.body).status, cells))
        got = list(threads.map(lambda cell: datastore.get_cell(*cell.key), cells))

    assert put == ["CREATED"] * 300
    assert got == cells


def test_more_threads_than_connections_wait_for_one(server_engine: ServerEngine, stores: Stores) -> None:
    store = stores.fresh(server_engine, shards=2, pool={"size": 2, "overflow": 0})

    with ThreadPoolExecutor(12) as threads:
        results = list(threads.map(lambda n: store.put_cell(uuid4(), "BASE", 1, n).status, range(100)))

    assert results == ["CREATED"] * 100


def test_a_connection_idle_for_longer_than_the_server_keeps_it_is_replaced(
    server_engine: ServerEngine, stores: Stores
) -> None:
    store = stores.fresh(server_engine, shards=1)
    store.put_cell(uuid4(), "BASE", 1, "opens a connection")
    for cluster in stores.clusters(server_engine):
        for number, command in clients_of(cluster.primary):
            if command == "Sleep":
                cluster.primary.query(f"KILL {number}")

    assert store.put_cell(uuid4(), "BASE", 1, "on a new one").status == "CREATED"
