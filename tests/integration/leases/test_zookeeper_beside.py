"""Leases in a ZooKeeper beside what goes on elsewhere: a control database that is down, and nodes of other programs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from schemaless_core import CoordinatorUnavailable, Datastore
from schemaless_core.control.database import ControlDatabase
from schemaless_core.triggers.leases.coordinator import Change, GroupRecord, GroupState, Lease
from schemaless_core.triggers.leases.leases import Leases
from schemaless_core.triggers.zookeeper.leases import ZooKeeperLeases
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, quick, working
from tests.integration.leases.groups import GROUP, a_group, lead, opener, stored
from tests.integration.test_triggers import new_cells
from tests.stores import Stores
from tests.zookeepers import ensemble_at, leases_in, new_datastore
from tripstore.local.zookeeper import ZooKeeperServer

#: A book whose shard belongs to the seventh of no workers.
UNKNOWN_OWNER = b'{"version":1,"fence":1,"workers":[],"owners":[7],"heirs":{},"fences":[0]}'


@pytest.fixture
def control(stores: Stores) -> Iterator[ControlDatabase]:
    with closing(opener("sqlite", stores)()) as opened:
        yield opened


def test_a_worker_whose_halt_is_not_heard_beats_on(zookeeper: ZooKeeperServer, stores: Stores) -> None:
    """Its halt is for the control database, which is down. Its leases are in ZooKeeper, which is not."""
    notebook = Notebook()
    notebook.failing = lambda _cell: True
    with closing(stores.primaries("mariadb")["a"].proxy()) as way:
        triggers = quick(coordinator=zookeeper.url, halt_after=1, attempts=1)
        store = stores.fresh("mariadb", shards=2, control=way.url, triggers=triggers)
        with (
            working(store, [noting(notebook, name=GROUP)]) as (worker,),
            closing(ensemble_at(zookeeper.url, store.config.datastore)) as ensemble,
        ):

            def beats() -> int:
                found = ensemble.find(f"/workers/{worker.name}")
                return 0 if found is None else found.version

            wait_until("it serves", lambda: bool(store.triggers.status(GROUP)[0].shards[0].owner))
            way.refuse()
            store.put_cells(new_cells(4))
            wait_until("it has halted the group", lambda: GROUP in worker._halts)
            halted_at = beats()
            wait_until("it goes on to beat", lambda: beats() > halted_at + 3)
            way.heal()
            wait_until("the halt is heard", lambda: _state(store) is GroupState.HALTED)


def _state(store: Datastore) -> GroupState | None:
    found = store.triggers.coordinator.find_group(GROUP)
    return None if found is None else found.state


def test_a_process_that_slept_while_it_registered_a_group_takes_no_lease(
    zookeeper: ZooKeeperServer, control: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found no group; before it goes on, another one has registered it, and a worker has a lease."""
    datastore, find_group = new_datastore(), Leases.find_group
    with leases_in(zookeeper, control, datastore) as sleeper, leases_in(zookeeper, control, datastore) as other:

        def sleep(self: Leases, name: str) -> GroupRecord | None:
            found = find_group(self, name)
            monkeypatch.undo()
            a_group(other, "a")
            return found

        monkeypatch.setattr(Leases, "find_group", sleep)
        sleeper.register_group(GROUP, "now", 1, allowed=100, fence=50)

        assert stored(other) == [Lease(GROUP, 0, "a", None, 1)]


@pytest.mark.parametrize("content", [b"", b"written by a person", b"{}", UNKNOWN_OWNER])
def test_a_node_that_another_program_wrote_is_named_and_ends_no_worker(
    zookeeper: ZooKeeperServer, control: ControlDatabase, content: bytes
) -> None:
    with closing(ensemble_at(zookeeper.url)) as ensemble:
        leases = ZooKeeperLeases(ensemble, Leases(control), 2)
        a_group(leases, "a", "b")
        leases.beat("w", [GROUP], {})
        term = lead(leases)
        for path, call in (
            (f"/leases/{GROUP}", lambda: leases.beat("w", [GROUP], {})),
            (f"/leases/{GROUP}", lambda: leases.release("a", [Lease(GROUP, 0, "a", None, 1)])),
            (f"/leases/{GROUP}", lambda: leases.assign("leader", term, [Change(GROUP, 0, "a", 1, None, "b")])),
            ("/leader", lambda: leases.lead("leader", term)),
            ("/workers/w", leases.survey),
        ):
            ours = ensemble.find(path)
            assert ours is not None
            ensemble.put(path, content)
            with pytest.raises(CoordinatorUnavailable, match=f"{path} is not ours") as refused:
                call()
            assert "zkCli.sh" in (refused.value.hint or "")
            ensemble.put(path, ours.data)
        for path in (f"/leases/{GROUP}", "/leader", "/workers/w"):
            ensemble.remove(path)

        leases.beat("w", [GROUP], {})
        lead(leases)
        assert [lease.owner for lease in stored(leases)] == [None, None]


def test_a_group_that_one_thread_sees_first_while_another_surveys_disturbs_neither(
    zookeeper: ZooKeeperServer, control: ControlDatabase
) -> None:
    """As a worker beats while the console of the same process looks."""
    with leases_in(zookeeper, control) as leases, ThreadPoolExecutor(1) as executor:
        a_group(leases, "a")
        leases.survey()
        is_going_through, may_go_on = threading.Event(), threading.Event()

        class Slow(dict[str, object]):
            """What it remembers: a thread that goes through it in place is overtaken."""

            def items(self) -> Iterator[tuple[str, object]]:  # type: ignore[override]  # the same pairs, slowly
                for item in super().items():
                    is_going_through.set()
                    may_go_on.wait(10)
                    yield item

        leases._read = Slow(leases._read)  # type: ignore[assignment]  # of the same pairs
        look = executor.submit(leases.survey)
        wait_until("it looks", lambda: is_going_through.is_set() or look.done())
        leases.register_group("another", "now", 1, allowed=100)
        may_go_on.set()

        assert Lease(GROUP, 0, "a", None, 1) in look.result().leases
