"""Beside a mirror that is slow, or does not answer: callers wait for the authority alone (I10), and what is late is not
told as wrong (I12)."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from schemaless_core.store import CellStore
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.mirrors import missing, relaying, wait_until_delivered
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.backends.postgres.wire.connections import rows
from tripstore.engines.validation.compare import DifferenceClass
from tripstore.engines.validation.reads import NEARLY, Read
from tripstore.engines.validation.shadow.shadow import Shadow, _Sample
from tripstore.engines.validation.verdicts import Outcome, Reason
from tripstore.engines.validation.waiting import Waiting
from tripstore.facade.arrivals import Arrivals
from tripstore.local.proxy import Proxy
from tripstore.local.server import Server
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

POSTGRES = ("postgres", "postgres18")
#: For one question to the mirror. So long a read takes that waits for a silent one; a slow one has time enough.
DEADLINE_SECONDS = 0.5
PATIENT_SECONDS = 30.0
#: One way. A read that waited for the mirror would wait for two of them.
DELAY_SECONDS = 0.1
SHADOW = {"share": 1.0, "per_second": 5_000.0, "queue_max": 20_000, "age_seconds_max": 60.0, "threads": 4}
#: Half of the rows are written all the time, as fast as Postgres takes it. Each read is of the next one.
TRIPS, READS = 20, 40
WRITERS = 2
UPDATE = "UPDATE trips SET status = random()::text WHERE trip_uuid = %s"
#: All of them are given a while after the mirror is well again, however many were suspect.
VERDICT_SECONDS = 60.0


class Far:
    """A migration whose mirror is on servers that a test makes slow or silent."""

    def __init__(self, moving: Migration, proxies: Sequence[Proxy], servers: Sequence[Server]) -> None:
        self.moving = moving
        self._proxies = proxies
        self._servers = servers
        moving.legacy.sql(f"INSERT INTO trips (status) SELECT '0' FROM generate_series(1, {TRIPS})")
        self._keys = [UUID(key) for (key,) in moving.legacy.sql("SELECT trip_uuid::text FROM trips ORDER BY id")]
        moving.carry()

    def delay(self, seconds: float) -> None:
        for proxy in self._proxies:
            proxy.delay(seconds)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """The mirror's servers stand still: they take connections and bytes, and answer nothing."""
        with ExitStack() as resuming:
            for server in self._servers:
                resuming.callback(server.resume)
                server.pause()
            yield

    def read(self, count: int = READS) -> list[float]:
        """How long reads took: of rows that rest and of rows that services write, in turn."""
        taken = []
        for n in range(count):
            begun = time.monotonic()
            cell = self.moving.store.get_cell_latest(self._keys[n % TRIPS], "BASE")
            taken.append(time.monotonic() - begun)
            assert cell is not None
        return taken

    def write(self) -> None:
        """Each row of those that services write, once."""
        for key in self._keys[::2]:
            self.moving.legacy.sql(UPDATE, str(key))

    @contextmanager
    def written(self) -> Iterator[None]:
        """Services that change these rows without a pause."""
        stop = threading.Event()

        def write() -> None:
            with self.moving.legacy.connect() as service:
                while not stop.is_set():
                    for key in self._keys[::2]:
                        rows(service, UPDATE, (str(key),))
                        service.commit()

        with ThreadPoolExecutor(WRITERS) as pool:
            writing = [pool.submit(write) for _ in range(WRITERS)]
            try:
                yield
            finally:
                stop.set()
                for each in writing:
                    each.result()

    def told(self) -> list[DifferenceClass]:
        """What the mirror was told to have wrong, when every read has its verdict."""
        assert self.moving.duo.shadow.drain(VERDICT_SECONDS)
        found = self.moving.duo.tally.mismatches()
        return [each.kind for mismatch in found for each in mismatch.verdict.differences]

    def unanswered(self) -> int:
        """How many comparisons met the silence."""
        counts = self.moving.duo.tally.counts()
        met = {str(DifferenceClass.TIMEOUT), str(Reason.BREAKER_OPEN)}
        return sum(count for (_name, _outcome, label), count in counts.items() if str(label) in met)


@pytest.fixture(params=POSTGRES if SCALE >= 1 else POSTGRES[-1:])
def far(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Callable[[float], Far]]:
    """One whose mirror is given so long for an answer."""
    primaries = stores.primaries("mariadb")
    with ExitStack() as exits:
        proxies = {name: server.proxy() for name, server in primaries.items()}
        for proxy in proxies.values():
            exits.callback(proxy.close)
        clusters = {name: {"primary": proxy.url} for name, proxy in proxies.items()}

        def make(deadline_seconds: float) -> Far:
            shadow = SHADOW | {"deadline_seconds": deadline_seconds}
            options: dict[str, Any] = {"postgres": request.param, "engine": "mariadb", "shadow": shadow}
            moving = exits.enter_context(migration(servers, stores, clusters=clusters, **options))
            moving.phase(Phase.SHADOW)
            made = Far(moving, list(proxies.values()), list(primaries.values()))
            exits.callback(made.delay, 0)  # closing is not what takes long here
            return made

        yield make


def is_quick(taken: Sequence[float], answer_seconds: float) -> bool:
    """Whether these reads waited for no answer that takes so long; a busy machine may hold up one of twenty."""
    late = sum(seconds >= answer_seconds for seconds in taken)
    return statistics.median(taken) < answer_seconds / 4 and late <= len(taken) / 20


def in_the_callers_way(
    shadow: Shadow, read: Read, answer: Any, authority: CellStore, other: CellStore, *, is_of_other: bool = False
) -> None:
    """In the place of `Shadow.offer`: the caller waits for the comparison."""
    shadow._compare(_Sample(read, answer, authority, other, is_of_other, time.monotonic()))


def at_once(_arrivals: Arrivals, _read: Read) -> Waiting[bool]:
    """In the place of `Arrivals.arriving`: whatever there is has arrived."""
    yield from ()
    return True


def test_i10_i12_reads_beside_a_slow_mirror_are_as_quick_as_ever_and_no_mismatch(far: Callable[[float], Far]) -> None:
    """The relay is as slow as each comparison, so that rows which are written are hardly ever the same in both stores.

    Controls: a read that waits for its comparison is late; and without the look at what is on its way, the first row
    that a held relay has not carried is told as a mismatch.
    """
    slow = far(PATIENT_SECONDS)
    tally = slow.moving.duo.tally
    slow.delay(DELAY_SECONDS)
    with relaying(slow.moving), slow.written():
        taken = slow.read()

    assert slow.told() == []
    assert is_quick(taken, 2 * DELAY_SECONDS), taken
    assert tally.total(Outcome.EQUAL) >= READS / 2, "rows that rest are compared and equal"
    assert tally.total() == READS

    slow.moving.carry()  # what the relay left behind; none runs any more
    with patch.object(Shadow, "offer", in_the_callers_way):
        assert not is_quick(slow.read(2), 2 * DELAY_SECONDS)
    slow.write()
    with patch.object(Arrivals, "arriving", at_once):
        slow.read(1)
        assert slow.told() == [DifferenceClass.FIELD]


def test_i10_i12_reads_beside_a_mirror_that_does_not_answer_are_as_quick_and_told_as_unanswered(
    far: Callable[[float], Far],
) -> None:
    """It is told as what it is: late, or not compared; never as other bytes or a missing cell. Later all is there.

    Control: a read that waits for its comparison waits as long as the silent server is given for an answer.
    """
    silent, taken = far(DEADLINE_SECONDS), list[float]()

    def is_noticed() -> bool:
        taken.extend(silent.read(TRIPS))
        return silent.unanswered() > 1

    with relaying(silent.moving), silent.written():
        silent.read()
        with silent.silent():
            with patch.object(Shadow, "offer", in_the_callers_way):
                assert not is_quick(silent.read(1), NEARLY * DEADLINE_SECONDS)
            wait_until("comparisons meet the silence", is_noticed)

    assert is_quick(taken, NEARLY * DEADLINE_SECONDS), sorted(taken)[-len(taken) // 20 :]
    assert set(silent.told()) <= {DifferenceClass.TIMEOUT, DifferenceClass.ERROR}
    with relaying(silent.moving):
        wait_until_delivered(silent.moving, seconds=60)
    assert missing(silent.moving) == []
