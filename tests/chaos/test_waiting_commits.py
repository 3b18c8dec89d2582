"""Commits that wait for a replica: what a process leaves on the server is bounded, and reads go on.

Real semi-synchronous replication, with no replica that takes part in it. The control gives the place of an abandoned
session back at once, as it was before.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from schemaless_core import Datastore, Unavailable
from schemaless_core.engine.mysql.wire.abandoned import Abandoned, AbandonedSession
from tests.chaos.test_unresponsive_server import rows_on
from tests.scale import SCALE, scaled
from tests.stores import ServerEngine, Stores
from tripstore.local.binlog import BinlogServer

SPAWN = multiprocessing.get_context("spawn")
PROCESSES = scaled(8, least=2)
WRITERS, READERS = 16, 2
SECONDS = max(2.0, 10 * SCALE)
POOL = {"size": 4, "overflow": 8, "reads": 4}
PLACES = POOL["size"] + POOL["overflow"]

_VARIABLES = {"mariadb": "rpl_semi_sync_master", "mysql": "rpl_semi_sync_source"}
_SESSIONS = "SELECT COUNT(*) AS n FROM information_schema.processlist WHERE user = 'waiter'"


@contextmanager
def waiting(server: BinlogServer) -> Iterator[Counter[str]]:
    """Commits of this server wait for a replica's acknowledgement, and none gives one. Counts the users' sessions."""
    variable, seen = _VARIABLES[server.engine], Counter[str]()
    with server.connect() as root, root.cursor() as cursor:  # open before: later the server may have no room
        if server.engine == "mysql":
            cursor.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
        cursor.execute(f"SET GLOBAL {variable}_timeout = 3600000")
        cursor.execute(f"SET GLOBAL {variable}_enabled = 1")
        stop = threading.Event()

        def count() -> None:
            while not stop.wait(0.02):
                cursor.execute(_SESSIONS)
                (row,) = cursor.fetchall()
                seen["sessions"] = max(seen["sessions"], int(row["n"]))

        counter = threading.Thread(target=count)
        counter.start()
        try:
            yield seen
        finally:
            stop.set()
            counter.join()
            cursor.execute(f"SET GLOBAL {variable}_enabled = 0")
            if server.engine == "mysql":
                cursor.execute("UNINSTALL PLUGIN rpl_semi_sync_source")


@pytest.fixture
def config(server_engine: ServerEngine, stores: Stores) -> dict[str, Any]:
    """A datastore of 32 shards with small pools and a user of its own; no replica answers in the primary's place."""
    config = stores.config(server_engine, shards=32)
    Datastore.open(config).create_schema()
    for cluster, server in stores.primaries(server_engine).items():
        assert isinstance(server, BinlogServer)
        server.query("CREATE USER IF NOT EXISTS waiter@'%%' IDENTIFIED BY 'waiter'")
        server.query("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO waiter@'%%'")
        _, _, address = server.url.partition("@")
        config["clusters"][cluster] = {"primary": f"mysql://waiter:waiter@{address}"}
    return config | {"pool": POOL, "deadlines": {"put_seconds": 0.2, "read_seconds": 5.0, "pool_seconds": 0.2}}


@pytest.fixture
def primary(server_engine: ServerEngine, stores: Stores) -> BinlogServer:
    return stores.clusters(server_engine)[0].primary


def traffic(config: Mapping[str, Any], row: UUID, new: Sequence[UUID], seconds: float) -> dict[str, int]:
    """What became of the calls of one process, whose threads write to, and read from, the server of a row."""
    counted: Counter[str] = Counter()
    with Datastore.open(config) as store:
        stop = time.monotonic() + seconds

        def write(number: int) -> None:
            for row_key in new[number::WRITERS]:
                if time.monotonic() > stop:
                    return
                try:
                    store.put_cell(row_key, "BASE", 1, "w")
                    counted["written"] += 1
                except Unavailable as refusal:
                    counted["refused by name" if "have not ended there" in str(refusal) else "waited"] += 1
                    time.sleep(0.005)  # a service that is refused does not come back at once

        def read(_number: int) -> None:
            while time.monotonic() < stop:
                try:
                    assert store.get_cell_latest(row, "BASE") is not None
                    counted["read"] += 1
                except Unavailable as refusal:
                    counted[f"not read: {refusal}"] += 1
                    time.sleep(0.05)  # nor does a reader
                time.sleep(0.002)  # else two readers take a core of the two

        with ThreadPoolExecutor(WRITERS + READERS) as threads:
            writers = [threads.submit(write, number) for number in range(WRITERS)]
            readers = [threads.submit(read, number) for number in range(READERS)]
            for each in writers + readers:
                each.result()
    return dict(counted)


def new_rows(config: Mapping[str, Any]) -> list[UUID]:
    """What a process writes; looked up before, since a busy server answers no plan in time."""
    with Datastore.open(config) as store:
        return rows_on(store, "a", 4000)


def warm_row(config: Mapping[str, Any]) -> UUID:
    with Datastore.open(config) as store:
        row = rows_on(store, "a", 1)[0]
        store.using(deadline=10.0).put_cell(row, "BASE", 1, "warm")
        return row


def test_processes_leave_no_more_sessions_than_their_pools_have_and_reads_are_answered(
    config: dict[str, Any], primary: BinlogServer
) -> None:
    row, new = warm_row(config), [new_rows(config) for _ in range(PROCESSES)]
    with waiting(primary) as seen, SPAWN.Pool(PROCESSES) as processes:
        outcomes = processes.starmap(traffic, [(config, row, of_one, SECONDS) for of_one in new])

    print(f"{primary.engine}: {PROCESSES} x {WRITERS} writers: at most {seen['sessions']} sessions; {outcomes}")
    for counted in outcomes:
        assert counted["refused by name"] > 0
        assert "written" not in counted
    # Not all: 16 writers on a busy machine may keep a process from hearing the ping's answer in time.
    read = sum(counted["read"] for counted in outcomes)
    calls = sum(count for counted in outcomes for name, count in counted.items() if "read" in name)
    assert read > 50 * PROCESSES
    assert read / calls >= 0.99
    # Each process may look after the abandoned on one connection beside its pool.
    assert PROCESSES < seen["sessions"] <= PROCESSES * (PLACES + 1)


def test_control_places_given_back_at_once_are_no_bound(
    config: dict[str, Any], primary: BinlogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(self: Abandoned, session: AbandonedSession) -> None:
        self._ended(session)

    monkeypatch.setattr(Abandoned, "add", forget)
    row, new = warm_row(config), new_rows(config)
    with waiting(primary) as seen:
        traffic(config, row, new, 1.0)

    assert seen["sessions"] > PLACES + 1


def test_writes_go_on_by_themselves_when_commits_do(config: dict[str, Any], primary: BinlogServer) -> None:
    row = warm_row(config)
    with Datastore.open(config) as store:
        with waiting(primary):
            until_refused(store)
        give_up = time.monotonic() + 20
        while True:
            try:
                assert store.put_cell(row, "BASE", 2, "back").status == "CREATED"
                break
            except Unavailable:
                assert time.monotonic() < give_up
        pool = store.clusters["a"].primary.node._sessions._pool  # type: ignore[attr-defined]  # a MySQLNode
        # Places are given back after the sessions have left the list: the places are waited for, each of them once.
        while (pool._permits._free, pool._write_permits._free) != (PLACES, PLACES - POOL["reads"]):
            assert time.monotonic() < give_up
        assert pool.abandoned.count == 0


def until_refused(store: Datastore) -> None:
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        try:
            store.put_cell(rows_on(store, "a", 1)[0], "BASE", 1, "w")
        except Unavailable as refusal:
            if "have not ended there" in str(refusal):
                return
    raise AssertionError("every write was sent")
