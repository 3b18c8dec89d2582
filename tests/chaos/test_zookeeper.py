"""Workers whose leases are in ZooKeeper, while it and they die, stop, forget and are cut off from each other (I7)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from schemaless_core import Datastore
from schemaless_core.errors import SchemalessError
from tests.chaos.actors import end, running, wait_until
from tests.chaos.test_trigger_workers import all_serve, cells_of, opened, owners, settings
from tests.chaos.trigger_actors import GROUP, deliveries, first_deliveries, server
from tests.crew import Notebook, noting, wait_until_caught_up, working
from tests.scale import scaled
from tests.stores import Stores
from tests.zookeepers import another_zookeeper
from tripstore.local.proxy import Proxy
from tripstore.local.servers import LocalServers
from tripstore.local.zookeeper import ZooKeeperServer

SHARDS = 12
WORKERS = 3
LEASE_SECONDS = settings()["lease_seconds"]
#: While something is amiss; put in bundles of ten.
CELLS = scaled(2_000, least=200)


@dataclass
class Watch:
    """Looks at all offsets again and again, and notes each that is behind where it was seen before."""

    store: Datastore
    went_back: list[str] = field(default_factory=list)
    looks: int = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        is_over = threading.Event()
        thread = threading.Thread(target=self._look_until, args=(is_over,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(30)

    def _look_until(self, is_over: threading.Event) -> None:
        highest: dict[int, tuple[int, int]] = {}
        while not is_over.wait(0.02):
            for shard, seen in self.store.triggers.offsets.find(GROUP).items():
                if isinstance(seen, SchemalessError) or seen.offset is None:
                    continue
                place = seen.offset[:2]
                if place < highest.get(shard, (0, 0)):
                    self.went_back.append(f"shard {shard} from {highest[shard]} to {place}")
                highest[shard] = place
            self.looks += 1


@dataclass
class Crew:
    """Worker processes, each with a way of its own to ZooKeeper, and what is put for them."""

    store: Datastore
    config: Mapping[str, Any]
    zookeeper: ZooKeeperServer
    folder: Path
    workers: list[BaseProcess] = field(default_factory=list)
    ways: list[Proxy] = field(default_factory=list)

    def add(self) -> None:
        way = self.zookeeper.proxy()
        worker = server(at(self.config, way.url), self.folder)
        worker.start()
        self.workers.append(worker)
        self.ways.append(way)

    def remove_first(self) -> None:
        end(self.workers.pop(0))
        self.ways.pop(0)

    def put(self) -> None:
        for _ in range(CELLS // 10):
            self.store.put_cells(cells_of(10))

    def put_and_see_it_saved(self) -> None:
        """Looks at the offsets alone: which worker has them, only ZooKeeper could say."""
        self.put()
        wait_until("all is delivered and saved", lambda: is_saved(self.store), 60)

    def wait_until_others_serve(self) -> None:
        wait_until("the others have all", lambda: len(set(owners(self.store).values())) == WORKERS - 1, 60)


def at(config: Mapping[str, Any], coordinator: str) -> Mapping[str, Any]:
    return {**config, "triggers": {**config["triggers"], "coordinator": coordinator}}


def is_saved(store: Datastore) -> bool:
    found = store.triggers.offsets.find(GROUP).values()
    return all(
        not isinstance(seen, SchemalessError) and seen.offset is not None and seen.offset.added_id == seen.head
        for seen in found
    )


def quietly(look: Callable[[], bool]) -> bool:
    """False while ZooKeeper does not answer."""
    try:
        return look()
    except SchemalessError:
        return False


def zookeeper_is_killed(crew: Crew) -> None:
    crew.zookeeper.kill()
    crew.put_and_see_it_saved()
    time.sleep(2 * LEASE_SECONDS)  # longer than any lease: no worker may lose its shards by it
    crew.put_and_see_it_saved()
    crew.zookeeper.start()


def zookeeper_is_stopped(crew: Crew) -> None:
    crew.zookeeper.pause()
    crew.put_and_see_it_saved()
    time.sleep(2 * LEASE_SECONDS)  # as above
    crew.put_and_see_it_saved()
    crew.zookeeper.resume()


def zookeeper_forgets(crew: Crew) -> None:
    crew.zookeeper.kill()
    crew.zookeeper.forget()
    crew.put_and_see_it_saved()
    crew.zookeeper.start()
    crew.put()


def a_worker_is_killed(crew: Crew) -> None:
    crew.remove_first()
    crew.put()
    crew.add()
    crew.put()


def a_worker_sleeps(crew: Crew) -> None:
    """Longer than its lease: it comes back to shards that are another worker's."""
    pid = crew.workers[0].pid
    assert pid is not None, "it runs"
    os.kill(pid, signal.SIGSTOP)
    try:
        crew.put()
        crew.wait_until_others_serve()
        crew.put_and_see_it_saved()
    finally:
        os.kill(pid, signal.SIGCONT)
    crew.put()


def a_worker_is_cut_off(crew: Crew) -> None:
    """From ZooKeeper alone: it goes on with shards that another worker gets."""
    crew.ways[0].swallow()
    crew.put()
    crew.wait_until_others_serve()
    crew.put_and_see_it_saved()
    crew.ways[0].heal()
    crew.put()


#: What befalls them, and whether a shard may change hands by it.
ACCIDENTS: Mapping[str, tuple[Callable[[Crew], None], str]] = {
    "zookeeper killed": (zookeeper_is_killed, "none moves"),
    "zookeeper stopped": (zookeeper_is_stopped, "none moves"),
    "zookeeper forgets": (zookeeper_forgets, "all are given anew"),
    "worker killed": (a_worker_is_killed, "some move"),
    "worker sleeps": (a_worker_sleeps, "some move"),
    "worker cut off": (a_worker_is_cut_off, "some move"),
}


@pytest.mark.parametrize("accident", list(ACCIDENTS))
def test_i7_every_cell_is_delivered_and_no_offset_goes_back(
    accident: str, stores: Stores, servers: LocalServers, tmp_path: Path
) -> None:
    """How often a cell may come again is bounded: by none where no shard moves, else by once for each of its owners."""
    befall, hands = ACCIDENTS[accident]
    config = stores.config("mariadb", shards=SHARDS, triggers=settings())
    with another_zookeeper(servers) as zookeeper, opened(at(config, zookeeper.url)) as store:
        watch, crew = Watch(store), Crew(store, config, zookeeper, tmp_path)
        with running(crew.workers):
            for _ in range(WORKERS):
                crew.add()
            wait_until("all serve", lambda: all_serve(store, WORKERS), 60)
            before = owners(store)
            with watch.watching():
                crew.put_and_see_it_saved()
                befall(crew)
                wait_until("all serve again", lambda: quietly(lambda: all_serve(store, WORKERS)), 60)
                crew.put_and_see_it_saved()
            after = owners(store)
        heads = {shard: store.get_cells_for_shard(shard, 0, 1).head for shard in range(SHARDS)}

    firsts = first_deliveries(tmp_path)
    assert {s: head for s, head in heads.items() if set(firsts.get(s, {})) != set(range(1, head + 1))} == {}
    for of_shard in firsts.values():
        times = [of_shard[added_id] for added_id in sorted(of_shard)]
        assert times == sorted(times)
    assert watch.went_back == []
    assert watch.looks > 10
    calls = Counter((each.shard, each.added_id) for each in deliveries(tmp_path))
    of_worker = Counter((each.pid, each.shard, each.added_id) for each in deliveries(tmp_path))
    moved = sum(before[shard] != after[shard] for shard in range(SHARDS))
    twice = calls.total() - len(calls)
    print(f"{accident}: {len(calls):,} cells, {moved} of {SHARDS} shards moved, {twice:,} calls too many")
    if hands == "none moves":
        assert (moved, twice) == (0, 0)
    elif hands == "some move":
        assert moved > 0
        assert max(of_worker.values()) == 1
    else:
        assert max(of_worker.values()) <= 2


def test_i7_workers_of_both_coordinators_at_once_skip_nothing(
    stores: Stores, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """As while the configuration of a fleet is changed: both halves believe that they own all shards."""
    config = stores.config("mariadb", shards=SHARDS, triggers=settings())
    both = at(config, zookeeper.url)
    with opened(config) as store, Datastore.open(both) as other:
        watch = Watch(store)
        workers = [server(each, tmp_path) for each in (config, both)]
        with running(workers), watch.watching():
            wait_until("each has all", lambda: quietly(lambda: all_serve(store, 1) and all_serve(other, 1)), 60)
            assert set(owners(store).values()) != set(owners(other).values())
            facts = {fact.name: fact for fact in other.coordination.facts()}
            assert "1 use the control database instead" in facts["workers"].value
            crew = Crew(store, config, zookeeper, tmp_path)
            crew.put_and_see_it_saved()
            end(workers[0])
            crew.put_and_see_it_saved()
        heads = {shard: store.get_cells_for_shard(shard, 0, 1).head for shard in range(SHARDS)}

    firsts = first_deliveries(tmp_path)
    assert {s: head for s, head in heads.items() if set(firsts.get(s, {})) != set(range(1, head + 1))} == {}
    assert watch.went_back == []
    calls = Counter((each.shard, each.added_id) for each in deliveries(tmp_path))
    print(f"{len(calls):,} cells, {calls.total() - len(calls):,} calls too many")


def test_the_watch_sees_an_offset_that_goes_back(stores: Stores) -> None:
    """The control of the watch: a person sets an offset back."""
    store = stores.fresh("sqlite", shards=1)
    store.put_cells(cells_of(10))
    with working(store, [noting(Notebook(), name=GROUP)]):
        wait_until_caught_up(store, GROUP)
    watch = Watch(store)
    with watch.watching():
        wait_until("it has looked", lambda: watch.looks > 1)
        store.triggers.offsets.reset(GROUP, {0: (1, 4)})
        wait_until("it has seen it", lambda: bool(watch.went_back))

    assert watch.went_back == ["shard 0 from (1, 10) to (1, 4)"]
