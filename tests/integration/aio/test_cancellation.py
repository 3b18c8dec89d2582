"""Tasks that are cancelled at any moment: no connection is lost, and none answers another's question."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from schemaless_core import Cell, Unavailable
from schemaless_core.aio import AsyncCellStore, CallThreads, ThreadLimits
from schemaless_core.aio import Datastore as AsyncDatastore
from schemaless_core.deadline import Deadline
from schemaless_core.engine.mysql.wire.pool import Pool
from tests.chaos.actors import wait_until
from tests.integration.aio.storm import Ask, HastyDriver, Weather, storm
from tests.scale import scaled
from tests.stores import ServerEngine, Stores
from tripstore.aio import AsyncTripStore
from tripstore.store import TripStore

CONNECTIONS, WRITERS = 8, 6
POOL = {"size": CONNECTIONS, "overflow": 0, "reads": CONNECTIONS - WRITERS}
SECONDS = scaled(60, short=1)
ASKERS = 60
ROWS = [uuid4() for _ in range(50)]


def opened(engine: ServerEngine, stores: Stores) -> AsyncDatastore:
    """A datastore with its schema, on one server."""
    server = stores.clusters(engine)[0].primary
    config = stores.config(engine, shards=2, clusters={"a": {"primary": server.url}}, pool=POOL)
    store = AsyncDatastore.open(config, wait_seconds=20)
    asyncio.run(store.create_schema())
    return store


def pool_of(store: AsyncDatastore) -> Pool:
    pool: Pool = store.sync.clusters["a"].primary.node._sessions._pool  # type: ignore[attr-defined]  # a MySQLNode
    return pool


def unlike(pool: Pool) -> list[int]:
    """Once all places are free: the sessions of connections that do not answer what they are asked."""
    wait_until("calls have ended", lambda: (pool._permits._free, pool._write_permits._free) == (CONNECTIONS, WRITERS))
    found = []
    for connection in pool._idle:
        connection.deadline = Deadline(5)
        with connection.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            if int(cursor.fetchall()[0][0]) != connection.session_number:
                found.append(connection.session_number)
    return found


def asking(store: AsyncCellStore[Any], chance: random.Random) -> Ask:
    """Gets of what was put before, and now and then a put, whose result has its own ref key."""

    async def ask(row: UUID) -> UUID:
        if chance.random() < 0.1:
            ref_key = chance.randrange(2, 2**40)
            result = await store.put_cell(row, "NOTES", ref_key, {"of": str(row)})
            return row if result.ref_key == ref_key else UUID(int=0)
        cell = await store.get_cell_latest(row, "BASE")
        return UUID(int=0) if cell is None else UUID(str(cell.body))

    return ask


def weather_over(store: AsyncCellStore[Any]) -> Weather:
    store.sync.put_cells([Cell(row, "BASE", 1, str(row)) for row in ROWS])
    return asyncio.run(storm(asking(store, random.Random(7)), ROWS, SECONDS, ASKERS))


def test_a_thousand_gets_at_once_go_by_eight_connections(server_engine: ServerEngine, stores: Stores) -> None:
    rows = [uuid4() for _ in range(1_000)]

    async def bodies(store: AsyncDatastore) -> Sequence[object]:
        cells = await asyncio.gather(*(store.get_cell(row, "BASE", 1) for row in rows))
        return [cell and cell.body for cell in cells]

    store = opened(server_engine, stores)
    store.sync.put_cells([Cell(row, "BASE", 1, str(row)) for row in rows])

    assert asyncio.run(bodies(store)) == [str(row) for row in rows]
    assert unlike(pool_of(store)) == []
    assert len(pool_of(store)._idle) == CONNECTIONS
    asyncio.run(store.close())


def test_questions_cancelled_at_random_lose_no_connection_and_get_no_answer_of_anothers(
    server_engine: ServerEngine, stores: Stores, record_property: Any
) -> None:
    store = opened(server_engine, stores)

    weather = weather_over(store)

    record_property("counts", f"{weather.answered} answered, {weather.cancelled} cancelled")
    assert weather.crossed == []
    assert min(weather.answered, weather.cancelled) > 20 * SECONDS
    assert unlike(pool_of(store)) == []
    assert pool_of(store).abandoned.count == 0
    asyncio.run(store.close())


def test_nor_do_those_that_postgres_answers(stores: Stores, record_property: Any) -> None:
    with stores.lent("facade off") as below:
        assert isinstance(below, TripStore)
        store = AsyncTripStore(below, CallThreads(ThreadLimits(CONNECTIONS, WRITERS)))

        weather = weather_over(store)

        record_property("counts", f"{weather.answered} answered, {weather.cancelled} cancelled")
        assert weather.crossed == []
        assert min(weather.answered, weather.cancelled) > 20 * SECONDS
        duo = below.facade.duo
        assert duo is not None
        permits, pool = duo.legacy.database._permits, duo.legacy.database.settings.pool
        wait_until("calls have ended", lambda: permits._free == pool.places)
        assert [below.get_cell(row, "BASE", 1) for row in ROWS] == [Cell(row, "BASE", 1, str(row)) for row in ROWS]


def hasty(store: AsyncDatastore, *, gives_back: bool) -> tuple[Weather, int]:
    """The weather over such a driver, and how many connections it has afterwards."""
    connections = [pool_of(store)._connect(Deadline(5)) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.deadline = Deadline(60)
    driver = HastyDriver(connections, gives_back=gives_back)
    weather = asyncio.run(storm(driver.ask, ROWS, 0.5, CONNECTIONS))
    for connection in connections:
        connection.forget()
    return weather, len(driver.idle)


def test_control_a_connection_that_is_back_before_its_answer_is_caught(
    server_engine: ServerEngine, stores: Stores
) -> None:
    store = opened(server_engine, stores)

    weather, left = hasty(store, gives_back=True)

    assert len(weather.crossed) > 0
    assert left == CONNECTIONS
    asyncio.run(store.close())


def test_control_a_connection_that_does_not_come_back_is_caught(server_engine: ServerEngine, stores: Stores) -> None:
    store = opened(server_engine, stores)

    _weather, left = hasty(store, gives_back=False)

    assert left < CONNECTIONS
    asyncio.run(store.close())


def test_a_put_that_is_cancelled_ends_within_its_deadline_and_stops_no_reads(
    server_engine: ServerEngine, stores: Stores
) -> None:
    """Its row is locked: the server would not answer for longer than the deadline."""
    store = opened(server_engine, stores)
    server = stores.clusters(server_engine)[0].primary
    row = ROWS[0]
    store.sync.put_cell(row, "BASE", 1, "there")
    counter = f"{store.sync.config.datastore}_meta.shard_state"

    async def cancel_puts() -> float:
        impatient = store.using(deadline=2.0)
        puts = [asyncio.ensure_future(impatient.put_cell(row, "BASE", n, "late")) for n in range(2, 2 + 2 * WRITERS)]
        await asyncio.sleep(0.1)  # they are on their way; a task that is cancelled earlier sends nothing
        for put in puts:
            put.cancel()
        began = time.monotonic()
        assert [type(each) for each in await asyncio.gather(*puts, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * len(puts)
        assert await store.get_cell(row, "BASE", 1) == Cell(row, "BASE", 1, "there")
        return time.monotonic() - began

    with server.connect() as locking:
        locking.begin()
        with locking.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {counter} FOR UPDATE")
        seconds = asyncio.run(cancel_puts())
        pool = pool_of(store)
        wait_until("the puts have ended", lambda: pool._write_permits._free + pool.abandoned.count == WRITERS)
        locking.rollback()

    assert seconds < 1.5  # the puts have two
    assert unlike(pool) == []
    # Of what was sent no task knows whether it happened. What waited for a thread was never sent.
    assert {cell.ref_key for cell in store.sync.get_history(row, "BASE")} <= set(range(1, 2 + WRITERS))
    asyncio.run(store.close())


def test_a_server_that_is_away_is_told_as_without_asyncio(server_engine: ServerEngine, stores: Stores) -> None:
    config = stores.config(server_engine, shards=2, clusters={"a": {"primary": "mysql://u:p@127.0.0.1:1"}})

    async def ask() -> list[Any]:
        async with AsyncDatastore.open(config) as store:
            asked = (store.using(deadline=2.0).get_cell(row, "BASE", 1) for row in ROWS)
            return await asyncio.gather(*asked, return_exceptions=True)

    errors = asyncio.run(ask())

    assert {isinstance(error, Unavailable) for error in errors} == {True}
