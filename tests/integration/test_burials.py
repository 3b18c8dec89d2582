"""Burials beside puts and writers: one cell under each key (I2), and no writer waits long (I10)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core import CellKey
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.control.jobs.jobs import JobState
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.repairs import doing_at
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.mend import burials
from tripstore.backends.postgres.cells.put import unmapped as free
from tripstore.backends.postgres.cells.put.unmapped import LOCKS_PER_BATCH
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.translation import LockTimeout
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.migration.repair.job import RepairRunner, begin
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.targets import of_job, targets_of
from tripstore.phase import Phase

FLAVOURS = ("postgres", "postgres18")
NOTES = LOCKS_PER_BATCH + 30
FIRST = 1 << 20
ROWS = f"""
INSERT INTO trips (status) SELECT 'requested' FROM generate_series(1, {2 * NOTES});
INSERT INTO notes (trip_id, n, text) SELECT id, 1, 'a' FROM trips
"""

DEADLOCK_SECONDS = 1.0
_HAS_WAITED = """\
SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND waitstart < clock_timestamp() - interval '0.25 s'
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
#: The time of a statement is when its packet came.
_LOCKED = """\
LOCK TABLE notes IN ROW EXCLUSIVE MODE;
SELECT EXTRACT(epoch FROM clock_timestamp() - statement_timestamp())::float8"""


@pytest.fixture(params=FLAVOURS if SCALE >= 1 else FLAVOURS[-1:])
def moving(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param) as made:
        made.phase(Phase.SHADOW)
        made.legacy.sql(ROWS)
        made.carry()
        yield made


def lost(made: Migration) -> list[UUID]:
    """The parents of notes that went with their partition."""
    gone = [UUID(key) for (key,) in made.legacy.sql("SELECT trip_uuid::text FROM notes_0")]
    made.legacy.sql("DROP TABLE notes_0")
    return gone


def bury(made: Migration, keys: Sequence[UUID]) -> set[CellKey]:
    owner = made.duo.legacy.as_owner(made.duo.ports.control.authority().epoch)
    return owner.bury("NOTES", [CellKey(key, "NOTES", FIRST) for key in keys])


@pytest.mark.parametrize("locks", [False, True], ids=["control", "locks"])
def test_i2_a_put_that_saw_no_tombstone_is_not_overtaken_by_a_burial(
    moving: Migration, monkeypatch: pytest.MonkeyPatch, *, locks: bool
) -> None:
    """The put has looked and is about to store; the tombstone would take its key, and be carried before it."""
    if not locks:
        without = partial(free.locks_within, [])
        monkeypatch.setattr(burials, "locks_within", lambda _keys, *more, **limit: without(*more, **limit))
    key, given_way = lost(moving)[0], list[str]()
    moving.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(key))
    moving.carry()

    def overtake() -> None:
        try:
            bury(moving, [key])
        except LockTimeout as timeout:
            given_way.append(timeout.message)
        moving.carry()

    with doing_at("put.before_parent", overtake):
        moving.store.put_cell(key, "NOTES", FIRST + 1, {"text": "put"})

    assert bool(given_way) is locks
    assert bury(moving, [key]) == set()
    if locks:
        moving.carry()
        assert same(moving, key) == {"text": "put"}
    else:  # two bodies under one key: the change cannot be delivered
        with pytest.raises(AssertionError, match="cannot be delivered"):
            moving.carry()


def test_i2_a_put_that_comes_while_a_row_is_buried_sees_the_tombstone(moving: Migration) -> None:
    key = lost(moving)[0]
    moving.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(key))
    moving.carry()
    with ThreadPoolExecutor(1) as pool:
        put = []

        def come() -> None:
            put.append(pool.submit(moving.store.put_cell, key, "NOTES", FIRST + 1, {"text": "put"}))
            waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            wait_until("the put waits", lambda: bool(moving.legacy.sql(waits)), 20)

        with doing_at("burial.locked", come):
            assert bury(moving, [key]) == {CellKey(key, "NOTES", FIRST)}
        with pytest.raises(CellConflict):
            put[0].result()

    moving.carry()
    assert same(moving, key) is None


@pytest.mark.parametrize("bounded", [False, True], ids=["control", "bounded"])
def test_i10_a_burial_waits_for_all_its_locks_together_no_longer_than_for_one(
    moving: Migration, monkeypatch: pytest.MonkeyPatch, *, bounded: bool
) -> None:
    """Puts hold one row after the other, each for less than a burial waits, which holds the first rows meanwhile.

    Ten times as long as in earnest, and each put lets go when Postgres says how long the burial has waited for it: a
    busy machine does not decide.
    """
    monkeypatch.setattr(burials, "GIVE_WAY_MILLISECONDS", 1000)
    if not bounded:
        each = "SET LOCAL lock_timeout = '20s'; "
        monkeypatch.setattr(
            burials, "locks_within", lambda keys, *more, **_: each + "; ".join([*free.locks_sql(keys), *more])
        )
    keys = sorted(lost(moving)[:6], key=lambda key: free._lock_key(key, ""))
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        puts = [stack.enter_context(closing(moving.legacy.connect())) for _ in keys]
        for put, lock in zip(puts, free.locks_sql(keys), strict=True):
            rows(put, lock)

        def let_go() -> None:
            for put in puts:
                while not moving.legacy.sql(_HAS_WAITED) and not ended.is_set():
                    ended.wait(0.01)
                put.rollback()

        ended = threading.Event()
        released = pool.submit(let_go)
        try:
            found = len(bury(moving, keys))
        except LockTimeout:
            found = 0
        ended.set()
        released.result()

    assert found == (0 if bounded else len(keys))
    if bounded:
        assert len(bury(moving, keys)) == len(keys)


def test_i10_a_burial_gives_way_to_writers_and_gets_its_turn_later(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service's transaction holds the table. Others' writes go on, and the job says what was busy, and why.

    Control: a burial that would wait longer holds them up for that long.
    """
    gone = lost(moving)
    assert len(gone) > LOCKS_PER_BATCH
    diff = compared(moving)
    tried = list[int]()
    bury = PostgresBackend.bury

    def counting(self: PostgresBackend, column_name: str, keys: Sequence[CellKey]) -> set[CellKey]:
        tried.append(len(keys))
        return bury(self, column_name, keys)

    monkeypatch.setattr(PostgresBackend, "bury", counting)
    service = moving.legacy.connect()
    rows(service, "INSERT INTO notes (trip_id, n, text) SELECT max(trip_id), 9, 'held' FROM notes_1")
    with patch.object(burials, "GIVE_WAY_MILLISECONDS", 1500), writing(moving) as waited, pytest.raises(LockTimeout):
        moving.duo.legacy.as_owner(moving.duo.ports.control.authority().epoch).bury(
            "NOTES", [CellKey(gone[0], "NOTES", FIRST)]
        )
    assert max(waited) > DEADLOCK_SECONDS
    with writing(moving) as waited:
        counts, findings = repaired(moving, diff)

    assert counts["not_compared"] == len(gone), counts
    assert {kind for kind, _why in findings} == {"busy"}
    assert all('"notes" is busy: Postgres did not give a lock in time' in why for _kind, why in findings)
    assert len(tried) < 10, "one try a look, not one a batch"
    assert max(waited) < DEADLOCK_SECONDS, "and so shorter than what a service bears"

    service.rollback()
    service.close()
    counts, findings = repaired(moving, diff)
    assert (counts["equal"], findings) == (len(gone), [])
    for key in gone:
        assert same(moving, key) is None


@contextmanager
def writing(made: Migration) -> Iterator[list[float]]:
    """A service that writes notes all the time, and how long Postgres had it wait for the table: no disk, no client."""
    stop, waited = threading.Event(), list[float]()

    def write() -> None:
        with made.legacy.connect() as writer:
            while not stop.is_set():
                waited.append(rows(writer, _LOCKED)[0][0])
                rows(writer, "UPDATE notes SET text = 'b' WHERE trip_id = (SELECT min(trip_id) FROM notes_1)")
                writer.commit()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            wait_until("the service writes", lambda: len(waited) > 1)
            yield waited
        finally:
            stop.set()
            writer.result()


def same(made: Migration, key: UUID) -> object:
    """The latest note of both stores."""
    found = made.duo.legacy.get_cell_latest(key, "NOTES")
    assert found is not None
    assert found == made.facade.store.get_cell_latest(key, "NOTES")
    return found.body


def compared(made: Migration) -> str:
    diffing = Diffing(made.facade)
    job = diffing.begin(diffing.plan(Order(indexes=False, decoded=0)))
    assert diffing.runner(job, "test").run() is JobState.DONE
    return job.id


def repaired(made: Migration, diff: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """What a job of repair counted, and the kinds and reasons of what it could not mend."""
    repairs = Repairs(made.facade)
    job = begin(repairs.jobs, targets_of(of_job(repairs.jobs, diff)), authority=Backend.LEGACY, source=diff)
    assert RepairRunner(repairs.jobs, job.id, repairs.of_job(job), repairs.ending(job)).run(threading.Event())
    found = repairs.jobs.findings(job.id)
    return dict(repairs.jobs.progress(job.id).counts), [(each.kind, str(each.body["why"])) for each in found]
