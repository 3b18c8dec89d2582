"""A stopped server and a network that swallows packets: its shards fail in time, the others keep their speed."""

from __future__ import annotations

import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID, uuid4

import pymysql
import pytest
from pymysql.constants import CLIENT, COMMAND

from schemaless_core import BatchFailed, Cell, Datastore, NodeUnavailable, PutResult, Unavailable
from tests.chaos.actors import wait_for_a_lock_wait, wait_until
from tests.scale import scaled
from tests.stores import ServerEngine, Stores
from tripstore.local.replication import LocalCluster

PUT_SECONDS, READ_SECONDS = 0.25, 0.4
#: Beyond the deadline: this machine's own delays.
SLACK_SECONDS = 0.35
CALLS = scaled(2_000, least=100)


@contextmanager
def stopped(cluster: LocalCluster) -> Iterator[None]:
    cluster.primary.pause()
    try:
        yield
    finally:
        cluster.primary.resume()


def rows_on(store: Datastore, cluster: str, count: int) -> list[UUID]:
    """New row keys whose shards are on a cluster."""
    shards = set(store.schema.plan().topology.shards_of(cluster))
    rows: list[UUID] = []
    while len(rows) < count:
        row_key = uuid4()
        if store.shard_of(row_key) in shards:
            rows.append(row_key)
    return rows


def seconds_of(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def put_p50(store: Datastore, rows: list[UUID]) -> float:
    return statistics.median(seconds_of(lambda row=row: store.put_cell(row, "BASE", 1, "x")) for row in rows)  # type: ignore[misc]  # a default in a lambda


@pytest.fixture(scope="session")
def stores(stores: Stores) -> Stores:
    """On servers with replicas."""
    return stores.replicated


@pytest.fixture
def impatient(server_engine: ServerEngine, stores: Stores) -> Iterator[Datastore]:
    """Default deadlines, and no replicas to flee to."""
    config = stores.config(server_engine, shards=8)
    for cluster in config["clusters"].values():
        cluster["replicas"] = []
    Datastore.open(config).create_schema()
    config["deadlines"] = {"put_seconds": PUT_SECONDS, "read_seconds": READ_SECONDS}
    with Datastore.open(config) as store:
        for row_key in rows_on(store, "a", 3) + rows_on(store, "b", 3):
            store.using(deadline=10.0).put_cell(row_key, "BASE", 1, "warm")
        yield store


def test_calls_to_a_stopped_servers_shards_fail_within_the_deadline_and_others_keep_their_speed(
    server_engine: ServerEngine, stores: Stores, impatient: Datastore
) -> None:
    on_a, on_b = rows_on(impatient, "a", 12), rows_on(impatient, "b", 4 * CALLS)
    patient_b = impatient.using(deadline=10.0)
    put_p50(patient_b, on_b[:CALLS])
    before = put_p50(patient_b, on_b[CALLS : 2 * CALLS])

    with stopped(stores.clusters(server_engine)[0]):
        puts = [seconds_of(lambda: refuse(lambda: impatient.put_cell(row, "BASE", 1, "x"))) for row in on_a[:6]]  # noqa: B023
        gets = [seconds_of(lambda: refuse(lambda: impatient.get_cell_latest(row, "BASE"))) for row in on_a[6:]]  # noqa: B023
        during = put_p50(patient_b, on_b[2 * CALLS : 3 * CALLS])

    after = put_p50(patient_b, on_b[3 * CALLS :])
    speed = f"p50 elsewhere {before * 1e6:.0f} → {during * 1e6:.0f} → {after * 1e6:.0f} µs"
    print(f"{server_engine}: slowest refused put {max(puts):.3f} s, get {max(gets):.3f} s, {speed}")
    assert max(gets) < READ_SECONDS + SLACK_SECONDS
    assert max(puts) < PUT_SECONDS + SLACK_SECONDS
    assert during < max(before, after) * 2 + 0.0005  # other work on the machine comes and goes
    come_back(impatient, on_a[0])


def refuse(call: Callable[[], Any]) -> None:
    with pytest.raises(NodeUnavailable):
        call()


def come_back(store: Datastore, row_key: UUID) -> None:
    """After the accident calls succeed again by themselves, once the breaker has let a probe through."""
    give_up_at = time.monotonic() + 15
    while True:
        try:
            store.put_cell(row_key, "BASE", 9, "back")
            return
        except NodeUnavailable:
            assert time.monotonic() < give_up_at


def test_a_network_that_swallows_packets_holds_no_caller_past_the_deadline(
    server_engine: ServerEngine, stores: Stores
) -> None:
    config = stores.config(server_engine, shards=4)
    Datastore.open(config).create_schema()
    proxy = stores.clusters(server_engine)[0].primary.proxy()
    config["clusters"] = {"a": {"primary": proxy.url}, "b": config["clusters"]["b"]}
    config["deadlines"] = {"put_seconds": PUT_SECONDS, "read_seconds": READ_SECONDS}
    with Datastore.open(config) as store:
        on_a, on_b = rows_on(store, "a", 4), rows_on(store, "b", 4)
        for row_key in on_a + on_b:
            store.using(deadline=10.0).put_cell(row_key, "BASE", 1, "warm")

        proxy.swallow()
        failures = [seconds_of(lambda: refuse(lambda: store.put_cell(row, "BASE", 2, "x"))) for row in on_a]  # noqa: B023
        for row_key in on_b:
            assert store.using(deadline=10.0).put_cell(row_key, "BASE", 2, "x").status == "CREATED"

        assert max(failures) < PUT_SECONDS + SLACK_SECONDS
        proxy.heal()
        come_back(store, on_a[0])


def test_a_batch_over_a_stopped_and_a_running_server_stores_what_it_can(
    server_engine: ServerEngine, stores: Stores, impatient: Datastore
) -> None:
    on_a, on_b = rows_on(impatient, "a", 5), rows_on(impatient, "b", 5)
    cells = [Cell(row, "BASE", 1, "x") for pair in zip(on_a, on_b, strict=True) for row in pair]

    with stopped(stores.clusters(server_engine)[0]):
        started = time.perf_counter()
        with pytest.raises(BatchFailed) as raised:
            impatient.using(deadline=1.0).put_cells(cells)
        took = time.perf_counter() - started

    assert took < 1.0 + SLACK_SECONDS
    assert all(isinstance(result, NodeUnavailable) for result in raised.value.results[::2])
    assert [result.status for result in raised.value.results[1::2] if isinstance(result, PutResult)] == ["CREATED"] * 5
    come_back(impatient, on_a[0])
    assert {result.status for result in impatient.using(deadline=10.0).put_cells(cells)} <= {"CREATED", "EXISTS"}


def test_reads_go_on_from_the_replica_while_the_primary_is_stopped(server_engine: ServerEngine, stores: Stores) -> None:
    store = stores.fresh(server_engine, shards=4, deadlines={"read_seconds": READ_SECONDS, "put_seconds": 5.0})
    cells = [Cell(row, "BASE", 1, "x") for row in rows_on(store, "a", 5)]
    store.put_cells(cells)
    cluster = stores.clusters(server_engine)[0]
    cluster.wait_for_replicas()

    with stopped(cluster):
        answered = 0
        for _ in range(8):
            for cell in cells:
                try:
                    assert store.get_cell(*cell.key) == cell
                    answered += 1
                except NodeUnavailable:
                    pass
        page = store.get_cells_for_shard(store.shard_of(cells[0].row_key), 0, 100)

    # Only the calls before the breaker opened, and its probes, may have failed.
    assert answered >= 30
    assert cells[0] in page.cells


def test_reads_are_asked_of_a_replica_on_request(server_engine: ServerEngine, stores: Stores) -> None:
    store = stores.fresh(server_engine, shards=1)
    cells = [Cell(uuid4(), "BASE", 1, n) for n in range(20)]
    store.put_cells(cells)
    cluster = stores.clusters(server_engine)[0]
    cluster.wait_for_replicas()
    from_replica = store.using(read="replica")
    assert from_replica.get_cells([cell.key for cell in cells]) == cells

    # A body that only the replica has tells who answered.
    change_on_replica(cluster, server_engine, f"UPDATE {store.config.datastore}_0000.cell SET body = '99'")

    assert {cell.body for cell in from_replica.get_cells([cell.key for cell in cells]) if cell} == {99}
    assert store.get_cells([cell.key for cell in cells]) == cells


def change_on_replica(cluster: LocalCluster, engine: ServerEngine, statement: str) -> None:
    """What no client of ours can do: write to a replica."""
    flag = "super_read_only" if engine == "mysql" else "read_only"
    with cluster.replicas[0].connect() as connection, connection.cursor() as cursor:
        # Not into its binlog: its own transactions would come between the primary's.
        for line in (f"SET GLOBAL {flag} = 0", "SET SESSION sql_log_bin = 0", statement, f"SET GLOBAL {flag} = 1"):
            cursor.execute(line)
        connection.commit()


def test_a_hole_in_a_replicas_log_is_read_from_the_primary(server_engine: ServerEngine, stores: Stores) -> None:
    """A replica that applies out of order shows holes (I3): density lets the reader see it."""
    store = stores.fresh(server_engine, shards=1)
    row_key = uuid4()
    store.put_cells([Cell(row_key, "BASE", n, n) for n in range(1, 11)])
    cluster = stores.clusters(server_engine)[0]
    cluster.wait_for_replicas()
    holes = f"DELETE FROM {store.config.datastore}_0000.cell WHERE added_id IN (4, 9, 10)"
    change_on_replica(cluster, server_engine, holes)

    page = store.using(read="replica").get_cells_for_shard(0, 0, 100)

    assert [cell.added_id for cell in page.cells] == list(range(1, 11))
    last = store.using(read="replica").get_cells_for_shard(0, 8, 100)
    assert [cell.added_id for cell in last.cells] == [9, 10]


def test_a_new_process_is_not_held_up_by_a_silent_server(server_engine: ServerEngine, stores: Stores) -> None:
    """The silent one even holds the control database: the servers themselves say what they hold."""
    config = stores.config(server_engine, shards=8)
    with Datastore.open(config) as first:
        first.create_schema()
        on_a, on_b = rows_on(first, "a", 4), rows_on(first, "b", 4)
        first.put_cells([Cell(row, "BASE", 1, "x") for row in on_a + on_b])
    cluster = stores.clusters(server_engine)[0]
    cluster.wait_for_replicas()
    config["deadlines"] = {"put_seconds": PUT_SECONDS, "read_seconds": 2.0, "connect_seconds": 1.0}

    with stopped(cluster), Datastore.open(config) as new:
        first_call = seconds_of(lambda: new.put_cell(on_b[0], "BASE", 2, "x"))
        later = [seconds_of(lambda: refuse(lambda: new.put_cell(row, "BASE", 2, "x"))) for row in on_a[:3]]  # noqa: B023
        from_replica = [new.using(read="replica").get_cell(row, "BASE", 1) for row in on_a]

    assert first_call < 1.0 + PUT_SECONDS + SLACK_SECONDS
    assert max(later) < PUT_SECONDS + SLACK_SECONDS
    assert all(from_replica)


def test_a_new_process_that_no_server_answers_waits_once_and_not_for_every_shard(
    server_engine: ServerEngine, stores: Stores, impatient: Datastore
) -> None:
    cells = [Cell(row, "BASE", 1, "x") for cluster in "ab" for row in rows_on(impatient, cluster, 8)]
    assert len({impatient.shard_of(cell.row_key) for cell in cells}) > 4
    first, second = stores.clusters(server_engine)

    with stopped(first), stopped(second), Datastore(impatient.config) as new:
        started = time.perf_counter()
        with pytest.raises(BatchFailed) as raised:
            new.put_cells(cells)
        took = time.perf_counter() - started

    assert all(isinstance(result, Unavailable) for result in raised.value.results)
    assert took < impatient.config.deadlines.connect_seconds + PUT_SECONDS + SLACK_SECONDS


def test_packets_of_clients_that_are_gone_leave_the_log_dense(server_engine: ServerEngine, stores: Stores) -> None:
    """Clients give up while their packets wait in a stopped server, which runs them when they are gone (I3)."""
    store = stores.fresh(server_engine, shards=2, deadlines={"put_seconds": PUT_SECONDS})
    patient = store.using(deadline=20.0)
    for attempt in range(scaled(40, least=2)):
        rows = rows_on(store, "a", 6)
        patient.put_cells([Cell(row, "BEFORE", 1, attempt) for row in rows])
        with stopped(stores.clusters(server_engine)[0]):
            give_up_on(store, rows)
        for row in rows:
            come_back(patient, row)

    shard = store.shard_of(rows[0])
    head = store.get_cells_for_shard(shard, 0, 1).head
    page = store.using(deadline=20.0).get_cells_for_shard(shard, 0, head)
    assert [cell.added_id for cell in page.cells] == list(range(1, head + 1))


def give_up_on(store: Datastore, rows: list[UUID]) -> None:
    """Put from many threads, as long as connections are left whose packets the stopped server will find."""

    def put(row: UUID) -> None:
        for ref in (1, 2):
            with suppress(NodeUnavailable):
                store.put_cell(row, "BASE", ref, "x")
            with suppress(NodeUnavailable, BatchFailed):
                store.put_cells([Cell(row, "BATCH", ref, "x"), Cell(row, "BATCH", ref + 10, "y")])

    with ThreadPoolExecutor(len(rows)) as threads:
        list(threads.map(put, rows))


def test_row_count_is_wrong_for_a_client_that_is_gone(server_engine: ServerEngine, stores: Stores) -> None:
    """The control: advance the counter by ROW_COUNT() and it falls behind the ids that were given."""
    store = stores.fresh(server_engine, shards=1)
    cluster, name = stores.clusters(server_engine)[0], store.config.datastore
    naive = (
        f"BEGIN; INSERT INTO {name}_0000.cell SELECT next_added_id, %s, 'BASE', 1, '1', last_created_at"
        f" FROM {name}_meta.shard_state FOR UPDATE;"
        f"UPDATE {name}_meta.shard_state SET next_added_id = next_added_id + ROW_COUNT(); COMMIT"
    )
    blocker, gone = cluster.primary.connect(), raw_connection(cluster)
    with blocker, blocker.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT next_added_id FROM {name}_meta.shard_state FOR UPDATE")
        send_and_reset(gone, cluster, naive.replace("%s", f"x'{uuid4().hex}'"))
        blocker.rollback()
    head = f"SELECT COALESCE(MAX(added_id), 0) AS n FROM {name}_0000.cell"
    wait_until("the insert of the client that is gone has committed", lambda: cluster.primary.query(head)[0]["n"] == 1)

    (counter,) = cluster.primary.query(f"SELECT next_added_id AS n FROM {name}_meta.shard_state")
    print(f"{server_engine}: with ROW_COUNT() the counter says {counter['n']} after id 1 was given")
    assert counter["n"] != 2


def raw_connection(cluster: LocalCluster) -> Any:
    return pymysql.connect(
        host="127.0.0.1",
        port=cluster.primary.port,
        user="root",
        password=cluster.primary.password,
        client_flag=CLIENT.MULTI_STATEMENTS,
    )


def send_and_reset(connection: Any, cluster: LocalCluster, packet: str) -> None:
    """Send a packet, and vanish while the server waits for a lock on its behalf."""
    connection._execute_command(COMMAND.COM_QUERY, packet)
    wait_for_a_lock_wait(cluster.primary)
    connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection._force_close()
