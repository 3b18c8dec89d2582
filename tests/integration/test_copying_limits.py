"""What a backfill goes easy on, measured on real servers: sessions of others, the mirror's lag, a replica's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from uuid import uuid4

import pytest
from psycopg2.errors import QueryCanceled

from schemaless_core import Cell, Datastore
from schemaless_core.control.paces import SharedPace
from schemaless_core.deadline import Deadline
from tests.chaos.actors import wait_until
from tests.facades import Migration, as_other_role, migration
from tests.stores import ServerEngine, Stores
from tripstore.backends.postgres.handover.queue import _OLDEST, Queue
from tripstore.config import BackfillConfig
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.backfill.limits import at_work, mirror_lag, replica_lag, throttles
from tripstore.phase import Phase

_ACTIVE = """\
SELECT count(*) FROM pg_stat_activity
WHERE state = 'active' AND backend_type = 'client backend' AND datname = current_database()
AND pid <> pg_backend_pid()"""


_EXPLAINED = _OLDEST.replace("SELECT", "EXPLAIN SELECT", 1)


@pytest.fixture(scope="module")
def made(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores) as opened:
        yield opened


def test_sessions_of_others_are_at_work_while_they_run_or_wait(made: Migration) -> None:
    """One that rests, as a copier's does, is not."""
    database, sql = made.duo.legacy.database, made.legacy.sql
    assert at_work(database) == 0
    idle, locked, runs = made.legacy.connect(), made.legacy.connect(), made.legacy.connect()
    locked.cursor().execute("LOCK TABLE notes")

    with ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(sql, "SELECT count(*) FROM notes") for _ in range(2)]
        rests = pool.submit(sql, "SELECT pg_sleep(3)")
        running = pool.submit(runs.cursor().execute, "SELECT count(*) FROM generate_series(1, 1000000000000)")
        try:
            wait_until("four sessions are active", lambda: sql(_ACTIVE)[0][0] == 4)
            assert at_work(database) == 3
            assert not rests.done()
        finally:
            runs.cancel()
            locked.rollback()
        for each in (*waits, rests):
            each.result()
        with pytest.raises(QueryCanceled):
            running.result()
    wait_until("no session is", lambda: at_work(database) == 0)
    for session in (idle, locked, runs):
        session.close()


def test_a_load_that_the_role_may_not_see_is_unknown_and_refused(made: Migration) -> None:
    """I12 for throttles. Control: with the right the very same sessions are counted."""
    made.legacy.sql("CREATE TABLE contended ()")
    made.phase(Phase.DUALWRITE)
    with (
        as_other_role(made) as (store, role),
        closing(made.legacy.connect()) as locked,
        ThreadPoolExecutor(1) as pool,
    ):
        assert store.facade.duo is not None
        database, backfill = store.facade.duo.legacy.database, Backfill(store.facade)
        locked.cursor().execute("LOCK TABLE contended")
        waits = pool.submit(made.legacy.sql, "SELECT count(*) FROM contended")
        try:
            with pytest.raises(CannotCopy, match=f"{role} may not see") as refused:
                at_work(database)
            with pytest.raises(CannotCopy, match="cannot be measured"):
                backfill.plan(Wanted(postgres_load_max=2.0))
            assert backfill.plan(Wanted()).parts, "without a limit nothing is measured"
            made.legacy.sql(str(refused.value.hint).partition(";")[0])
            wait_until("it sees who waits", lambda: at_work(database) == 1)
            assert backfill.plan(Wanted(postgres_load_max=2.0)).parts
        finally:
            locked.rollback()
        waits.result()


def test_the_mirrors_lag_is_the_age_of_what_it_has_not(made: Migration) -> None:
    database, queue = made.duo.legacy.database, Queue(made.duo.legacy.layout)
    assert mirror_lag(database, queue) == 0

    made.legacy.trip()
    made.legacy.sql("UPDATE tripstore.queue SET at = at - interval '7 s'")

    assert 7 <= mirror_lag(database, queue) < 60
    plan = "\n".join(str(line) for line in database.run(lambda c: c.rows(_EXPLAINED), Deadline(5)))
    assert "Index Scan using queue_id" in plan, plan
    limits = BackfillConfig(mirror_lag_seconds_max=5.0)
    pause = throttles(limits, database, queue, made.facade.store, pace(made)).pause()
    assert pause is not None
    assert pause.reason.startswith("the mirror's lag is 7.")
    made.carry()
    assert throttles(limits, database, queue, made.facade.store, pace(made)).pause() is None


def test_a_limit_of_zero_is_none(made: Migration) -> None:
    database, queue = made.duo.legacy.database, Queue(made.duo.legacy.layout)
    made.legacy.trip()
    made.legacy.sql("UPDATE tripstore.queue SET at = at - interval '7 s'")

    limits = BackfillConfig(mirror_lag_seconds_max=0.0, replica_lag_cells_max=0)

    assert throttles(limits, database, queue, made.facade.store, pace(made)).pause() is None
    made.carry()


def pace(made: Migration) -> SharedPace:
    """Of a job of its own."""
    return SharedPace(made.facade.store.control, uuid4().hex)


def test_workers_of_a_job_share_its_rate_from_the_first_chunk_on(made: Migration) -> None:
    """However many there are, and from whichever shell: one begins, and pays for all."""
    made.phase(Phase.DUALWRITE)
    backfill = Backfill(made.facade)
    job = backfill.begin(backfill.plan(Wanted(rate=1_000)), is_detached=True)
    runners = [backfill.runner(job, worker) for worker in ("one", "two", "three")]

    pauses = [runner._throttle.take(100_000) for runner in runners]

    assert pauses[0] is None
    assert [pause.reason for pause in pauses[1:] if pause] == ["rate limit of 1,000 rows/s"] * 2
    assert all(99 < pause.seconds <= 100 for pause in pauses[1:] if pause)
    assert {runner._chunks.rows for runner in runners} == {200}
    for runner in runners:
        runner._chunks.copied(200, 0.001)
    assert {runner._chunks.rows for runner in runners} == {500}, "half a second of the rate, however fast it is"
    backfill.jobs.cancel("backfill", job.id)


def test_a_replicas_lag_is_the_cells_that_it_lacks(server_engine: ServerEngine, stores: Stores) -> None:
    datastore = stores.replicated.fresh(server_engine)
    with stores.replicated.not_applying(server_engine):
        put(datastore, 5)
        assert replica_lag(datastore) == 5
    wait_until("the replicas have the cells", lambda: replica_lag(datastore) == 0, 60)


def put(datastore: Datastore, count: int) -> None:
    """Cells of one row: one shard, one cluster."""
    row_key = uuid4()
    datastore.put_cells([Cell(row_key, "BASE", ref_key, {}) for ref_key in range(1, count + 1)])
