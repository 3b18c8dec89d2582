"""Leases in a real ZooKeeper that is killed, stopped, emptied and restarted, and what survives each of these."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing

import pytest
from kazoo.client import KazooClient

from schemaless_core import ControlUnavailable, CoordinatorUnavailable
from schemaless_core.control.database import ControlDatabase
from schemaless_core.failpoints import FailpointReached
from schemaless_core.triggers.leases.coordinator import Change, LeadershipLost, Lease
from schemaless_core.triggers.leases.leases import Leases
from schemaless_core.triggers.zookeeper import leases as zookeeper_leases
from schemaless_core.triggers.zookeeper.book import LeaseBook
from schemaless_core.triggers.zookeeper.ensemble import Ensemble
from schemaless_core.triggers.zookeeper.leases import ZooKeeperLeases
from tests.chaos.actors import wait_until
from tests.integration.leases.groups import GROUP, a_group, lead, opener, stored
from tests.stores import Stores
from tests.zookeepers import (
    CALL_SECONDS,
    SESSION_SECONDS,
    SHARDS,
    SHORT_SESSION_SECONDS,
    another_zookeeper,
    ensemble_at,
    leases_in,
    new_datastore,
)
from tripstore.local.servers import LocalServers
from tripstore.local.zookeeper import ZooKeeperServer

#: Opens a coordinator of the same datastore, as another process has it.
Opener = Callable[[], AbstractContextManager[ZooKeeperLeases]]

#: A call that is to fail in time, and that none but a stopped server may outlast on a busy machine.
BRIEF_SECONDS = 3.0


@pytest.fixture
def control(stores: Stores) -> Iterator[ControlDatabase]:
    with closing(opener("sqlite", stores)()) as opened:
        yield opened


@pytest.fixture
def own(servers: LocalServers) -> Iterator[ZooKeeperServer]:
    """One of this test's own, which it may kill."""
    with another_zookeeper(servers) as server:
        yield server


@pytest.fixture
def open_another(zookeeper: ZooKeeperServer, control: ControlDatabase) -> Opener:
    datastore = new_datastore()
    return lambda: leases_in(zookeeper, control, datastore)


def _survey_until_it_fails(coordinator: ZooKeeperLeases) -> None:
    """kazoo notices after a moment that its connection is gone."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        coordinator.survey()


def answers(coordinator: ZooKeeperLeases) -> bool:
    try:
        coordinator.survey()
    except CoordinatorUnavailable:
        return False
    return True


def test_processes_that_register_a_group_at_once_agree(open_another: Opener) -> None:
    def register(number: int) -> object:
        with open_another() as mine:
            return mine.register_group(GROUP, f"start {number}", 64, allowed=100, fence=7)

    with ThreadPoolExecutor(6) as executor:
        records = list(executor.map(register, range(6)))

    with open_another() as leases:
        assert len({(record.start, record.state) for record in records}) == 1  # type: ignore[attr-defined]  # of `map`
        assert stored(leases) == [Lease(GROUP, shard, None, None, 7) for shard in range(64)]


def test_of_many_that_take_the_leadership_at_once_one_has_it(open_another: Opener) -> None:
    def take(number: int) -> int | None:
        with open_another() as mine:
            return mine.take_lead(f"w{number}", seen)

    with open_another() as leases:
        for term in (1, 2):
            seen = leases.lead("", None)
            with ThreadPoolExecutor(6) as executor:
                terms = list(executor.map(take, range(6)))
            assert [taken for taken in terms if taken is not None] == [term]


@pytest.mark.parametrize("is_compared", [True, False], ids=["compared", "control"])
def test_of_two_changes_of_a_group_at_once_none_is_lost(
    open_another: Opener, is_compared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker has read the leases, and writes them after the leader has. The control writes over any version."""
    if not is_compared:
        put = Ensemble.put
        monkeypatch.setattr(Ensemble, "put", lambda self, path, data, version=-1: put(self, path, data))
    has_read, may_write, release = threading.Event(), threading.Event(), LeaseBook.release

    def release_slowly(self: LeaseBook, worker: str, leases: Collection[Lease]) -> int:
        count = release(self, worker, leases)
        if not has_read.is_set():
            has_read.set()
            may_write.wait(30)
        return count

    with open_another() as worker, open_another() as leader, ThreadPoolExecutor(1) as executor:
        a_group(leader, "a", "b")
        monkeypatch.setattr(LeaseBook, "release", release_slowly)
        released = executor.submit(worker.release, "a", [Lease(GROUP, 0, "a", None, 1)])
        assert has_read.wait(10)
        assert leader.assign("leader", lead(leader), [Change(GROUP, 1, "b", 1, None, "c")]) == 1
        may_write.set()
        released.result()

        owners = [lease.owner for lease in stored(leader)]
        assert owners == ([None, "c"] if is_compared else [None, "b"])


def test_workers_and_leaders_that_change_leases_at_once_lose_no_change(open_another: Opener) -> None:
    """Every change of owner raises the fence by one, whichever worker makes it and in whatever order."""
    shards, is_over, changed = 40, threading.Event(), 0

    def work(name: str) -> None:
        with open_another() as mine:
            known = dict[str, int]()
            while not is_over.is_set():
                held = mine.beat(name, [GROUP], known)
                known = {group: record.version for group, record in held.groups.items()}
                mine.release(name, [lease for lease in held.leases if lease.owner == name])
            mine.leave(name)

    with open_another() as leader, ThreadPoolExecutor(4) as executor:
        leader.register_group(GROUP, "now", shards, allowed=100)
        term = lead(leader)
        workers = [executor.submit(work, name) for name in "abcd"]
        until = time.monotonic() + 2
        try:
            while time.monotonic() < until:
                homeless = [lease for lease in leader.survey().leases if lease.owner is None]
                give = [Change(*lease[:3], lease.fence, None, "abcd"[lease.shard % 4]) for lease in homeless]
                changed += leader.assign("leader", term, give)
        finally:
            is_over.set()
        for worker in workers:
            worker.result()
        leases = leader.survey().leases

    assert changed > shards
    assert [lease.owner for lease in leases] == [None] * shards
    assert sum(lease.fence for lease in leases) == 2 * changed  # each was given once and let go once


@pytest.mark.parametrize("is_checked", [True, False], ids=["checked", "control"])
def test_i7_a_leader_that_slept_assigns_nothing(
    open_another: Opener, is_checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read that it leads; before it writes another one leads. The control leaves the leader's version out."""
    with open_another() as sleeper, open_another() as other:
        a_group(sleeper, "a")
        term, sleeps, wakes = lead(sleeper), threading.Event(), threading.Event()

        def sleep_once(point: str) -> None:
            if point == "leases.lead_locked" and not sleeps.is_set():
                sleeps.set()
                wakes.wait(30)

        monkeypatch.setattr(zookeeper_leases, "reach", sleep_once)
        if not is_checked:
            whole = Ensemble.write_together
            monkeypatch.setattr(
                Ensemble, "write_together", lambda self, path, version, writes: whole(self, path, -1, writes)
            )
        with ThreadPoolExecutor(1) as executor:
            slept = executor.submit(sleeper.assign, "leader", term, [Change(GROUP, 0, "a", 1, None, "b")])
            assert sleeps.wait(10)
            assert other.take_lead("c", other.lead("c", None)) == term + 1
            wakes.set()
            if is_checked:
                with pytest.raises(LeadershipLost):
                    slept.result()
            else:
                assert slept.result() == 1
        assert stored(other)[0].owner == ("a" if is_checked else "b")


def test_a_leader_that_renews_while_it_assigns_still_assigns(
    open_another: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_another() as leader:
        a_group(leader, "a")
        term, renewed = lead(leader), list[object]()

        def renew(point: str) -> None:
            if point == "leases.lead_locked" and not renewed:
                renewed.append(leader.lead("leader", term))

        monkeypatch.setattr(zookeeper_leases, "reach", renew)
        assert leader.assign("leader", term, [Change(GROUP, 0, "a", 1, None, "b")]) == 1
        assert stored(leader) == [Lease(GROUP, 0, "b", None, 2)]


def test_a_session_that_expires_costs_nothing(zookeeper: ZooKeeperServer, control: ControlDatabase) -> None:
    with leases_in(zookeeper, control) as leases:
        a_group(leases, "a")
        leases.beat("a", [GROUP], {})
        link = leases._ensemble._link
        assert link is not None
        # A second client with the same session ends it, as its server does when it has run out.
        thief = KazooClient(f"127.0.0.1:{zookeeper.port}", SESSION_SECONDS, client_id=link.client.client_id)
        thief.start(CALL_SECONDS)
        thief.stop()
        thief.close()

        wait_until("it answers again", lambda: answers(leases))
        wait_until("in another session", lambda: link.client.client_id != thief.client_id)
        leases.beat("a", [GROUP], {})
        assert [worker.counter for worker in leases.survey().workers] == [2]
        assert stored(leases) == [Lease(GROUP, 0, "a", None, 1)]


def test_leases_outlive_a_zookeeper_that_was_killed(own: ZooKeeperServer, control: ControlDatabase) -> None:
    with (
        leases_in(own, control) as leases,
        closing(ensemble_at(own.url, "brief", call_seconds=BRIEF_SECONDS)) as ensemble,
    ):
        a_group(leases, "a", "b")
        leases.beat("a", [GROUP], {})
        brief = ZooKeeperLeases(ensemble, Leases(control), SHARDS)
        brief.beat("a", [], {})

        own.kill()
        started = time.monotonic()
        with pytest.raises(CoordinatorUnavailable, match="no connection within 3 s"):
            _survey_until_it_fails(brief)
        assert time.monotonic() - started < BRIEF_SECONDS + 2  # kazoo notices, and then a call waits
        own.start()

        wait_until("it answers again", lambda: answers(leases))
        assert [(lease.owner, lease.fence) for lease in stored(leases)] == [("a", 1), ("b", 1)]
        leases.beat("a", [GROUP], {})
        assert [worker.counter for worker in leases.survey().workers] == [2]


def test_a_zookeeper_that_is_stopped_holds_no_call_for_longer_than_it_may_take(
    own: ZooKeeperServer, control: ControlDatabase
) -> None:
    with closing(ensemble_at(own.url, call_seconds=BRIEF_SECONDS)) as ensemble:
        leases = ZooKeeperLeases(ensemble, Leases(control), SHARDS)
        a_group(leases, "a")
        own.pause()
        try:
            started = time.monotonic()
            with pytest.raises(CoordinatorUnavailable):
                leases.beat("a", [GROUP], {})
            assert time.monotonic() - started < BRIEF_SECONDS + 1
        finally:
            own.resume()
        wait_until("it answers again", lambda: answers(leases))
        assert stored(leases) == [Lease(GROUP, 0, "a", None, 1)]


def test_i7_leases_that_were_lost_are_made_anew_under_higher_fences(
    own: ZooKeeperServer, control: ControlDatabase
) -> None:
    """A fence is by the clock when a group is registered, and by the clock when its leases are made anew."""
    with leases_in(own, control, session_seconds=SHORT_SESSION_SECONDS) as leases:
        fence = time.time_ns() // 1_000_000
        leases.register_group(GROUP, "now", SHARDS, allowed=100, fence=fence)
        give = [Change(GROUP, shard, None, fence, None, "a") for shard in range(SHARDS)]
        leases.assign("leader", term := lead(leases), give)
        known = leases.beat("a", [GROUP], {}).groups[GROUP].version
        own.kill()
        own.forget()
        own.start()
        wait_until("it answers again", lambda: answers(leases))

        held = leases.beat("a", [GROUP], {GROUP: known})

        assert held.leases == ()
        assert held.groups[GROUP].version > known
        lost = stored(leases)
        assert [lease.owner for lease in lost] == [None] * SHARDS
        assert min(lease.fence for lease in lost) > fence + 1
        with pytest.raises(LeadershipLost):
            leases.assign("leader", term, [])
        assert leases.lead("a", None) is None
        assert [worker.worker for worker in leases.survey().workers] == ["a"]


def test_a_registration_that_died_half_way_is_made_up_for(
    open_another: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(point: str) -> None:
        if point == "zookeeper.leases_begun":
            raise FailpointReached

    with open_another() as leases:
        monkeypatch.setattr(zookeeper_leases, "reach", die)
        with pytest.raises(FailpointReached):
            leases.register_group(GROUP, "now", SHARDS, allowed=100, fence=3)
        monkeypatch.undo()

        assert leases.beat("a", [GROUP], {}) == ((), {})
        leases.register_group(GROUP, "now", SHARDS, allowed=100, fence=4)
        assert stored(leases) == [Lease(GROUP, shard, None, None, 4) for shard in range(SHARDS)]


def test_a_group_that_comes_back_over_leases_that_are_left_has_none_of_their_owners(open_another: Opener) -> None:
    """The removal died between the two places."""
    with open_another() as leases:
        a_group(leases, "a", "a")
        leases._groups.remove_group(GROUP)

        leases.register_group(GROUP, "now", 2, allowed=100, fence=50)

        assert stored(leases) == [Lease(GROUP, shard, None, None, 50) for shard in range(2)]


def test_leases_move_while_the_control_database_is_down(open_another: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_another() as leases, open_another() as newcomer:
        a_group(leases, "a", "b")
        for worker in "ab":
            leases.beat(worker, [GROUP], {})

        def down(_self: Leases) -> None:
            raise ControlUnavailable("The control database is down.")

        monkeypatch.setattr(Leases, "groups", down)
        survey = leases.survey()
        dead = [worker for worker in survey.workers if worker.worker == "b"]
        assert leases.assign("leader", lead(leases), [Change(GROUP, 1, "b", 1, None, "a")], dead) == 1
        assert leases.beat("a", [GROUP], {}).leases == (Lease(GROUP, 0, "a", None, 1), Lease(GROUP, 1, "a", None, 2))
        with pytest.raises(ControlUnavailable):
            newcomer.beat("c", [GROUP], {})


def test_what_one_user_made_another_one_may_not_change(zookeeper: ZooKeeperServer) -> None:
    """A path of its own: the first user of a path owns it as well, and all other tests would be refused."""
    address = f"127.0.0.1:{zookeeper.port}/owned"
    one, other = (f"zookeeper://{user}:s%40crets@{address}" for user in ("one", "other"))
    with closing(ensemble_at(one, "guarded")) as mine, closing(ensemble_at(other, "guarded")) as theirs:
        assert mine.create("/leader", b"1")
        assert mine.put("/leader", b"2") == 1
        with pytest.raises(CoordinatorUnavailable, match="no right to /owned/guarded") as refused:
            theirs.put("/leader", b"3")
        assert "triggers.coordinator" in (refused.value.hint or "")
        assert "s@cret" not in str(refused.value)


def test_the_leases_of_as_many_shards_as_there_may_be_fit(open_another: Opener) -> None:
    with open_another() as leases:
        leases.register_group(GROUP, "now", 65_536, allowed=100, fence=time.time_ns() // 1_000_000)
        term = lead(leases)
        found = leases.survey().leases
        give = [Change(*lease[:3], lease.fence, None, f"a-host-of-a-company-{lease.shard % 64:03}") for lease in found]
        assert leases.assign("leader", term, give) == 65_536
        moves = [Change(GROUP, lease.shard, give[lease.shard].new_owner, lease.fence + 1, "x", None) for lease in found]
        assert leases.assign("leader", term, moves[::2]) == 32_768
        book = LeaseBook(GROUP, 1, stored(leases))
        print(f"{len(book.encode()):,} bytes for {len(stored(leases)):,} leases")


def test_a_fork_connects_by_itself(zookeeper: ZooKeeperServer) -> None:
    with closing(ensemble_at(zookeeper.url, "forked")) as ensemble:
        ensemble.create("/leader", b"parent")
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            ensemble.after_fork()
            os._exit(0 if ensemble.put("/leader", b"child") == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        found = ensemble.find("/leader")
        assert found is not None
        assert found.data == b"child"
