"""Beside a mirror that is slow, or does not answer: callers wait for the authority alone (I10), and what is late is not
told as wrong (I12)."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import pytest

from tests.facades import Migration, migration
from tests.mirrors import missing, relaying, wait_until_delivered
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.proxy import Proxy
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from validation.compare import DifferenceClass
from validation.verdicts import Outcome

POSTGRES = ("postgres", "postgres18")
SHADOW = {"share": 1.0, "per_second": 5_000.0, "queue_max": 20_000, "age_seconds_max": 60.0, "deadline_seconds": 2.0}
#: One way. A read that waited for the mirror would wait for two of them.
DELAY_SECONDS = 0.1
TRIPS, READS = 20, 60
UPDATE = "UPDATE trips SET status = %s WHERE trip_uuid = %s"


class Far:
    """A migration whose mirror is behind a network that the test makes slow."""

    def __init__(self, moving: Migration, proxies: list[Proxy]) -> None:
        self.moving = moving
        self.proxies = proxies
        moving.legacy.sql(f"INSERT INTO trips (status) SELECT '0' FROM generate_series(1, {TRIPS})")
        self.keys = [UUID(key) for (key,) in moving.legacy.sql("SELECT trip_uuid::text FROM trips ORDER BY id")]
        moving.carry()

    def read(self, count: int = READS) -> list[float]:
        """How long reads of rows took that services write meanwhile, a few at a time."""
        taken = []
        for n in range(count):
            begun = time.monotonic()
            cell = self.moving.store.get_cell_latest(self.keys[n % TRIPS], "BASE")
            taken.append(time.monotonic() - begun)
            assert cell is not None
        return taken

    @contextmanager
    def written(self) -> Iterator[None]:
        """A service that changes one row after the other, each about once a second."""
        stop = threading.Event()

        def write() -> None:
            with self.moving.legacy.connect() as service:
                n = 0
                while not stop.wait(1 / TRIPS):
                    n += 1
                    rows(service, UPDATE, (str(n), str(self.keys[n % TRIPS])))
                    service.commit()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                yield
            finally:
                stop.set()
                writing.result()

    def told(self) -> list[DifferenceClass]:
        assert self.moving.duo.shadow.drain(120)
        found = self.moving.duo.tally.mismatches()
        return [each.kind for mismatch in found for each in mismatch.verdict.differences]


@pytest.fixture(params=POSTGRES if SCALE >= 1 else POSTGRES[-1:])
def far(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Far]:
    proxies = {name: server.proxy() for name, server in stores.primaries("mariadb").items()}
    clusters = {name: {"primary": proxy.url} for name, proxy in proxies.items()}
    made = migration(servers, stores, postgres=request.param, engine="mariadb", clusters=clusters, shadow=SHADOW)
    try:
        with made as moving:
            moving.phase(Phase.SHADOW)
            yield Far(moving, list(proxies.values()))
    finally:
        for proxy in proxies.values():
            proxy.close()


def test_i10_i12_reads_beside_a_slow_mirror_are_as_quick_as_ever_and_no_mismatch(far: Far) -> None:
    """Every read is compared, while the relay is as slow as the comparison: what has not arrived is in flight."""
    for proxy in far.proxies:
        proxy.delay(DELAY_SECONDS)
    with relaying(far.moving), far.written():
        taken = far.read()

    assert statistics.median(taken) < DELAY_SECONDS / 2
    assert sum(seconds > 2 * DELAY_SECONDS for seconds in taken) < len(taken) / 20
    assert far.told() == []
    tally = far.moving.duo.tally
    assert tally.total(Outcome.EQUAL, Outcome.IN_FLIGHT, Outcome.NOT_COMPARED) >= READS
    assert tally.total(Outcome.EQUAL, Outcome.IN_FLIGHT) > READS / 4, tally.counts()


def test_i10_i12_reads_beside_a_mirror_that_does_not_answer_are_as_quick_and_told_as_unanswered(far: Far) -> None:
    """It is told as what it is: late, or not compared; never as other bytes or a missing cell. Later all is there."""
    with relaying(far.moving), far.written():
        before = far.read()
        for proxy in far.proxies:
            proxy.swallow()
        taken = far.read(3 * READS)
        for proxy in far.proxies:
            proxy.heal()

    assert statistics.median(taken) < max(5 * statistics.median(before), 0.02)
    assert max(taken) < SHADOW["deadline_seconds"] / 2
    assert set(far.told()) <= {DifferenceClass.TIMEOUT, DifferenceClass.ERROR}
    with relaying(far.moving):
        wait_until_delivered(far.moving, seconds=60)
    assert missing(far.moving) == []
