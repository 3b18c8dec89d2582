"""Sessions that a call gave up: whatever the server tells of them, their places come back, once, and breakers hear."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial

import pymysql
import pytest
from pymysql.cursors import DictCursor

from schemaless_core import Datastore, Unavailable
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.node import MySQLNode
from schemaless_core.engine.mysql.wire.abandoned import Abandoned, AbandonedSession
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.pool import Pool
from schemaless_core.engine.mysql.wire.session_list import LIST, sessions_on
from tests.chaos.actors import wait_until
from tests.chaos.test_unresponsive_server import come_back, rows_on, stopped
from tests.stores import ServerEngine, Stores
from tripstore.local.binlog import BinlogServer

PLACES = {"size": 2, "overflow": 1, "reads": 1}
#: No text; the list of sessions shows the first bytes of each statement.
BYTES = b"SELECT SLEEP(30), _binary'\xff\xfe\xc3'"


def pool_of(store: Datastore) -> Pool:
    node = store.clusters["a"].primary.node
    assert isinstance(node, MySQLNode)
    return node._sessions._pool


def test_a_session_is_seen_to_end_beside_statements_that_are_no_text(
    server_engine: ServerEngine, stores: Stores
) -> None:
    server = stores.clusters(server_engine)[0].primary
    with stores.fresh(server_engine, shards=2, pool=PLACES) as store:
        pool = pool_of(store)
        lent = pool.lend(Deadline(5), 5)
        with closing(server.connect()) as busy:
            number = connection_id(busy)
            other = threading.Thread(target=partial(send_bytes, busy))
            other.start()
            wait_until("it runs", lambda: runs(server, number))

            pool.abandon(lent)

            wait_until("its place is free", lambda: pool.abandoned.count == 0)
            assert runs(server, number)
            server.query(f"KILL {number}")
            other.join()
        assert pool._permits._free == 3


def test_sessions_are_listed_beside_statements_that_are_no_text(server_engine: ServerEngine, stores: Stores) -> None:
    """The list is told the state of a replica's threads: a promotion ended in the midst, as a service put binary keys.

    Control: as text it cannot be read.
    """
    server = stores.clusters(server_engine)[0].primary
    with stores.fresh(server_engine, shards=2, pool=PLACES) as store:
        pool = pool_of(store)
        looks = pool.lend(Deadline(30), 5)
        looks.deadline = Deadline(30)
        with closing(server.connect()) as busy:
            number = connection_id(busy)
            other = threading.Thread(target=partial(send_bytes, busy))
            other.start()
            wait_until("it runs", lambda: runs(server, number))

            seen = {session.number: session.user for session in sessions_on(looks)}
            with pytest.raises(UnicodeDecodeError), looks.cursor() as cursor:
                cursor.execute(LIST)

            assert seen[number] == "root"
            server.query(f"KILL {number}")
            other.join()
        pool.drop(looks)


def connection_id(busy: pymysql.Connection[DictCursor]) -> int:
    with busy.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID() AS number")
        return int(cursor.fetchall()[0]["number"])


def send_bytes(busy: pymysql.Connection[DictCursor]) -> None:
    with suppress(pymysql.Error):
        busy.query(BYTES)


def runs(server: BinlogServer, number: int) -> bool:
    """Whether a session is at a statement."""
    with closing(server.connect()) as connection:
        connection.use_unicode = False
        with connection.cursor() as cursor:
            cursor.execute("SHOW PROCESSLIST")
            return any(int(row["Id"]) == number and row["Command"] == b"Query" for row in cursor.fetchall())


def test_one_thread_looks_and_what_comes_as_the_last_one_ends_is_another_threads(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """Two of them would give a place back twice, and the bound would be none."""
    with stores.fresh(server_engine, shards=2, pool=PLACES) as store:
        pool, ended = pool_of(store), list[AbandonedSession]()
        abandoned: Abandoned

        def counted(count: int) -> None:
            if count == 0 and len(ended) == 0:
                abandoned.add(given_up(pool._connect))

        abandoned = Abandoned(pool._connect, ended.append, counted)
        abandoned._is_watched = True  # by this thread
        abandoned.add(given_up(pool._connect))

        looks = iter(abandoned.look, False)
        for _ in looks:
            assert len(ended) == 0

        wait_until("both have ended", lambda: len(ended) == 2 and abandoned.count == 0)


def given_up(connect: Callable[[Deadline], DeadlineConnection]) -> AbandonedSession:
    connection = connect(Deadline(5))
    session = AbandonedSession(connection.server, connection.session_number, is_write=False, since=0.0)
    connection.forget()
    return session


def test_a_number_is_believed_only_on_the_server_that_gave_it(server_engine: ServerEngine, stores: Stores) -> None:
    """After a failover behind one address another server has a session of that number, which may stay for ever."""
    server = stores.clusters(server_engine)[0].primary
    with stores.fresh(server_engine, shards=2, pool=PLACES) as store, ExitStack() as stack:
        other = stack.enter_context(closing(server.connect()))
        pool, ended = pool_of(store), list[AbandonedSession]()
        lent = pool.lend(Deadline(5), 5)
        number, now = int(other.server_thread_id[0]), time.monotonic()  # type: ignore[attr-defined]  # the stubs leave it out
        foreign = AbandonedSession("another server", number, is_write=False, since=now)
        own = AbandonedSession(lent.server, number, is_write=False, since=now)
        pool.take_back(lent)
        abandoned = Abandoned(pool._connect, ended.append, lambda _: None)
        abandoned._is_watched = True  # by this thread
        abandoned.add(foreign)
        abandoned.add(own)

        wait_until("the one has ended", lambda: abandoned.look() and ended == [foreign], 20)
        assert abandoned.count == 1, "the control: the session of this server is there"

        stack.close()
        wait_until("the other has ended", lambda: not abandoned.look(), 20)
        assert ended == [foreign, own]


def test_servers_are_told_from_each_other(server_engine: ServerEngine, stores: Stores) -> None:
    with stores.fresh(server_engine, shards=2) as store:
        found = set[str]()
        for cluster in store.clusters.values():
            node = cluster.primary.node
            assert isinstance(node, MySQLNode)
            for _ in range(2):
                with closing(node._sessions._pool._connect(Deadline(5))) as connection:
                    found.add(connection.server)
    assert len(found) == len(store.clusters) > 1


def test_a_session_whose_rollback_is_not_answered_keeps_its_place(server_engine: ServerEngine, stores: Stores) -> None:
    """The server may be busy with it for as long as with any other that was given up."""
    with stores.fresh(server_engine, shards=2, pool=PLACES) as store, ExitStack() as stack:
        node = store.clusters["a"].primary.node
        assert isinstance(node, MySQLNode)

        def fall_silent(connection: DeadlineConnection) -> None:
            connection.ping(reconnect=False)
            stack.enter_context(stopped(stores.clusters(server_engine)[0]))
            raise pymysql.err.OperationalError(1205, "a lock was not free")

        with pytest.raises(Unavailable):
            node._sessions.run(fall_silent, Deadline(0.5))
        pool = pool_of(store)
        assert pool.abandoned.count == 1

        stack.close()
        wait_until("its place is free", lambda: pool.abandoned.count == 0 and pool._permits._free == 3, 20)


def test_i10_a_silent_server_whose_places_are_all_given_up_opens_the_breakers(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """No ping finds a place, and it must not need one."""
    config = stores.config(server_engine, shards=8) | {"pool": PLACES}
    for cluster in config["clusters"].values():
        cluster["replicas"] = []
    Datastore.open(config).create_schema()
    config["deadlines"] = {"put_seconds": 0.25, "read_seconds": 0.25, "pool_seconds": 0.1}
    with Datastore.open(config) as store:
        row = rows_on(store, "a", 1)[0]
        store.using(deadline=10.0).put_cell(row, "BASE", 1, "warm")
        pool = pool_of(store)
        said = set[str]()

        def read(_: int) -> None:
            try:
                store.get_cell_latest(row, "BASE")
            except Unavailable as refusal:
                said.add(str(refusal))

        held = [pool.lend(Deadline(5), 5) for _ in range(3)]
        with stopped(stores.clusters(server_engine)[0]), ThreadPoolExecutor(3) as threads:
            # All at once: a ping that came first would open the breakers by itself.
            for connection in held:
                pool.abandon(connection)

            def is_open() -> bool:
                list(threads.map(read, range(3)))
                return any("breaker for reads is open" in each for each in said)

            wait_until("the breaker is open", is_open, 20)
            assert any("have not ended there" in each for each in said)
        come_back(store, row)
        wait_until("all places are free", lambda: pool.abandoned.count == 0, 20)
