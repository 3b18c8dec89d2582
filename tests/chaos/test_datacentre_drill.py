"""A second datacentre over 200 ms: cuts, kills, a forced promotion, the return, and back (I1, I2, I3, I9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import quantiles
from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core import Datastore
from schemaless_core.errors import SchemalessError
from tests.backups import logs_of
from tests.chaos.actors import wait_until
from tests.following import Follower, begun, copied_logs, promoted, wait_until_whole
from tests.forking import FORK_SERVER
from tests.fscks import kinds_in, row_of
from tests.scale import scaled
from tests.stores import ServerEngine, Stores
from tripstore.local.proxy import Proxy

SHARDS = scaled(16, short=4)
#: There and back, over each proxy.
DELAY_SECONDS = 0.2
PUT_SECONDS = 0.02
CUTS = scaled(20, short=2)
CUT_SECONDS = scaled(10, short=1)
KILLS = scaled(20, short=2)
#: Between two accidents.
CALM_SECONDS = scaled(20, short=2)
#: Of puts at the old side that go on while the new one leads.
UNAWARE_CELLS = scaled(1_000, short=40)


class Acknowledged(NamedTuple):
    """A put that was acknowledged."""

    row_key: UUID
    shard: int
    added_id: int
    at: float


class Caller:
    """A thread that puts into whichever datastore leads, as its service knows."""

    def __init__(self, store: Datastore) -> None:
        self.store = store
        self.acknowledged: list[Acknowledged] = []
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="caller")

    def _run(self) -> None:
        number = 0
        while not self._is_ended.wait(PUT_SECONDS):
            row, number = row_of(self.store, number % SHARDS), number + 1
            try:
                result = self.store.put_cell(row, "BASE", 1, {"number": number})
            except SchemalessError:
                continue  # it was closed: the caller is told, and nothing was acknowledged
            added_id = result.added_id or 0
            self.acknowledged.append(Acknowledged(row, result.shard, added_id, time.monotonic()))

    def __enter__(self) -> Caller:
        self._thread.start()
        return self

    def end(self) -> None:
        self._is_ended.set()
        self._thread.join()

    def __exit__(self, *_error: object) -> None:
        self.end()


class Watch:
    """A thread that notes when each copy came to which added id."""

    def __init__(self, standby: Datastore) -> None:
        self._standby = standby
        self.seen: list[tuple[float, dict[int, int]]] = []
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")

    def _run(self) -> None:
        replication = self._standby.replication(self._standby)
        while not self._is_ended.wait(0.02):
            heads = {shard: each.head for shard, each in replication.own_ends().items()}
            self.seen.append((time.monotonic(), heads))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_ended.set()
        self._thread.join()

    def lags(self, acknowledged: list[Acknowledged]) -> list[float]:
        """Of each put how long its cell was not on the standby."""
        found, looks = list[float](), iter(self.seen)
        look = next(looks)
        for each in sorted(acknowledged, key=lambda one: one.at):
            while look[0] < each.at:
                look = next(looks, (float("inf"), look[1]))
            later = next((at for at, heads in self._from(look[0]) if heads.get(each.shard, 0) >= each.added_id), None)
            if later is not None:
                found.append(later - each.at)
        return found

    def has(self, cell: Acknowledged) -> bool:
        """Whether a put's cell is on the standby."""
        return bool(self.seen) and self.seen[-1][1].get(cell.shard, 0) >= cell.added_id

    def _from(self, at: float) -> Iterator[tuple[float, dict[int, int]]]:
        return (each for each in self.seen if each[0] >= at)


def follow_until_killed(own: Mapping[str, Any], other: Mapping[str, Any], job: str) -> None:
    """Follow in a process of its own."""
    with Datastore.open(own) as standby, Datastore.open(other) as store:
        replication = standby.replication(store)
        replication.runner(replication.jobs.find("replicate", job), "killed").run()


@contextmanager
def far(config: dict[str, Any], stores: Stores, engine: ServerEngine) -> Iterator[tuple[dict[str, Any], list[Proxy]]]:
    """The configuration of a datastore as it is seen from far away, and what lies between."""
    proxies = {name: server.proxy() for name, server in stores.primaries(engine).items()}
    for proxy in proxies.values():
        proxy.delay(DELAY_SECONDS / 2)
    clusters = {name: {"primary": proxies[name].url} for name in config["clusters"]}
    try:
        yield config | {"clusters": clusters}, list(proxies.values())
    finally:
        for proxy in proxies.values():
            proxy.heal()


def test_i1_i3_i9_a_second_datacentre_leads_and_the_first_one_comes_back(
    server_engine: ServerEngine, stores: Stores
) -> None:
    config, own = (stores.config(server_engine, shards=SHARDS) for _ in range(2))
    with (
        Datastore.open(config) as store,
        Datastore.open(own) as standby,
        far(config, stores, server_engine) as (seen_from_far, between),
        Datastore.open(seen_from_far) as store_from_far,
        far(own, stores, server_engine) as (own_from_far, _between),
        Datastore.open(own_from_far) as standby_from_far,
    ):
        store.create_schema()
        job = begun(standby, store_from_far)
        with Caller(store) as caller, Watch(standby) as watch:
            accidents(standby, own, seen_from_far, between, job.id)
            with Follower(standby.replication(store_from_far), job):
                newest = caller.acknowledged[-1]
                wait_until("it has caught up", lambda: watch.has(newest), 120)
                calm_at = time.monotonic()
                time.sleep(2 * CALM_SECONDS)  # the lag without accidents
                caller.end()
                wait_until_whole(standby, store)
        everything = caller.acknowledged
        calm = [each for each in everything if each.at > calm_at]
        print(f"\n{server_engine}: {len(everything):,} puts, {CUTS} cuts of {CUT_SECONDS} s, {KILLS} kills")
        print(f"in all {said(watch.lags(everything))}; without accidents {said(watch.lags(calm))}")

        unaware = lost(standby, store, store_from_far, between)
        returned(store, standby, standby_from_far, [*caller.acknowledged, *unaware])


def accidents(
    standby: Datastore, own: Mapping[str, Any], seen_from_far: Mapping[str, Any], between: list[Proxy], job: str
) -> None:
    """The way is cut, and the process that follows is killed, again and again."""
    for number in range(max(CUTS, KILLS)):
        process = FORK_SERVER.Process(target=follow_until_killed, args=(own, seen_from_far, job))
        before = cells_of(standby)
        process.start()
        wait_until("it follows", lambda before=before: cells_of(standby) > before, 120)
        time.sleep(CALM_SECONDS)  # it goes on for a while
        if number < CUTS:
            cut(between)
        process.kill()
        process.join()


def cells_of(standby: Datastore) -> int:
    return sum(each.head for each in standby.replication(standby).own_ends().values())


def cut(between: list[Proxy]) -> None:
    for proxy in between:
        proxy.refuse()
    time.sleep(CUT_SECONDS)  # for as long as the way is cut
    for proxy in between:
        proxy.heal()
        proxy.delay(DELAY_SECONDS / 2)


def lost(standby: Datastore, store: Datastore, store_from_far: Datastore, between: list[Proxy]) -> list[Acknowledged]:
    """The first one cannot be reached, and the standby leads. What was acknowledged by services that do not know."""
    for proxy in between:
        proxy.refuse()
    begun_at = time.monotonic()
    assert promoted(standby, store_from_far, is_forced=True) == 1000
    print(f"promoted in {time.monotonic() - begun_at:.1f} s, while the first one could not be reached")
    with Caller(store) as unaware, Caller(standby) as aware:
        wait_until("services that do not know have put", lambda: len(unaware.acknowledged) > UNAWARE_CELLS, 120)
    for proxy in between:
        proxy.heal()
        proxy.delay(DELAY_SECONDS / 2)
    return [*unaware.acknowledged, *aware.acknowledged]


def returned(
    store: Datastore, standby: Datastore, standby_from_far: Datastore, acknowledged: list[Acknowledged]
) -> None:
    """The first one follows, and leads again; nothing is missing."""
    job = begun(store, standby_from_far)
    with Caller(standby) as caller, Follower(store.replication(standby_from_far), job) as follower:
        time.sleep(CALM_SECONDS)  # services go on meanwhile
        caller.end()
        wait_until_whole(store, standby)
    assert not isinstance(follower.ended, BaseException), follower.ended
    everything = [*acknowledged, *caller.acknowledged]
    counts = store.replication(standby).jobs.progress(job.id).counts
    print(f"{counts.get('brought', 0):,} cells were brought, {counts.get('conflicts', 0)} of them met another body")
    assert copied_logs(store) == logs_of(standby)
    assert not store.replication(standby).compare().differs
    missing = [each for each in everything if standby.get_cell(each.row_key, "BASE", 1) is None]
    assert missing == [], f"{len(missing)} acknowledged cells are missing"
    assert promoted(store, standby_from_far) == 2000
    assert all(store.get_cell(each.row_key, "BASE", 1) is not None for each in everything)
    assert kinds_in(store) == []


def said(lags: list[float]) -> str:
    cuts = quantiles(lags, n=100)
    return f"lag p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, most {max(lags):.2f} s"
