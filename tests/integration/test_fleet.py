"""`Fleet`: a killed worker comes back, one that is asked to end ends, and none outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schemaless_core import Datastore
from schemaless_core.process.child import Work
from schemaless_core.process.fleet import Fleet, Pauses
from schemaless_core.process.seat import Seat
from schemaless_core.process.share import Share
from schemaless_core.process.spares import Spares
from tests.chaos.actors import wait_until
from tests.crew import quick
from tests.stores import Stores

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def fleet() -> Iterator[Start]:
    """Starts fleets whose parent is a process of its own; none of their processes outlives the test."""
    parents: list[subprocess.Popen[bytes]] = []

    def start(kind: str, place: Path, workers: int = 2, **environment: str) -> subprocess.Popen[bytes]:
        arguments = [sys.executable, "-m", "tests.integration.fleets", kind, str(place), str(workers)]
        parents.append(subprocess.Popen(arguments, start_new_session=True, env=os.environ | environment))
        return parents[-1]

    yield start
    for parent in parents:
        # Its session is ours alone: the parent, and children that it may have left behind.
        for pid in [parent.pid] if parent.poll() is None else []:
            os.killpg(pid, signal.SIGKILL)
        for pid in members(parent.pid):
            os.kill(pid, signal.SIGKILL)
        parent.wait(20)


def members(session: int) -> list[int]:
    """The processes of a session that live."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if (found := stat(pid)) and found[0] != "Z" and int(found[3]) == session]


def stat(pid: int) -> list[str]:
    """State, parent, process group, session … of a process; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def running(folder: Path) -> dict[int, list[int]]:
    """The processes that began, by number."""
    found: dict[int, list[int]] = {}
    for path in folder.glob("*.running"):
        number, pid = path.stem.split("-")
        found.setdefault(int(number), []).append(int(pid))
    return found


def is_alive(pid: int) -> bool:
    return bool(found := stat(pid)) and found[0] != "Z"


def begun(folder: Path, workers: int = 2) -> list[int]:
    """The processes of all workers, once they have begun."""
    wait_until("all began", lambda: len(running(folder)) == workers, 20)
    return [pids[0] for pids in running(folder).values()]


def ended(folder: Path) -> set[int]:
    return {int(path.stem.split("-")[1]) for path in folder.glob("*.ended")}


def test_a_killed_process_is_replaced_and_the_others_go_on(fleet: Start, tmp_path: Path) -> None:
    fleet("waiting", tmp_path)
    victim, other = begun(tmp_path)

    os.kill(victim, signal.SIGKILL)

    wait_until("it came back", lambda: sum(map(len, running(tmp_path).values())) == 3, 20)
    assert is_alive(other)
    assert not is_alive(victim)


@pytest.mark.parametrize("killed", ["", "0", "0 1"])
def test_of_shared_work_the_parent_does_a_share_and_a_spare_that_was_killed_is_replaced(
    fleet: Start, tmp_path: Path, killed: str
) -> None:
    """The work of a spare that is gone is done by another, or by a process that is spawned."""
    parent = fleet("shared-finite", tmp_path, 3, KILLED_SPARES=killed)
    pids = begun(tmp_path, 3)

    (tmp_path / "done").touch()

    assert parent.wait(20) == 2  # two of the three say that they failed, the parent's own share among them
    assert parent.pid in pids
    assert len(set(pids)) == 3


def test_children_that_were_forked_end_with_their_parent_each_by_itself(fleet: Start, tmp_path: Path) -> None:
    """The later one is stubborn, and was forked with all that the parent held of the earlier one."""
    parent = fleet("shared-one-stubborn", tmp_path, 3)
    begun(tmp_path, 3)
    (patient,) = running(tmp_path)[1]

    parent.kill()

    wait_until("the patient one ended", lambda: not is_alive(patient), 20)
    assert ended(tmp_path) == {patient}


def test_control_one_that_keeps_what_it_inherited_lets_the_others_outlive_the_parent(
    fleet: Start, tmp_path: Path
) -> None:
    parent = fleet("shared-one-stubborn", tmp_path, 3, KEEPS_PIPES="1")
    begun(tmp_path, 3)
    (stubborn,), (patient,) = running(tmp_path)[0], running(tmp_path)[1]

    parent.kill()

    wait_until("the stubborn one was told", (tmp_path / "0.told").exists, 20)
    assert ended(tmp_path) == set()
    os.kill(stubborn, signal.SIGKILL)
    wait_until("the patient one ended", lambda: not is_alive(patient), 20)


def test_a_process_with_threads_is_not_forked() -> None:
    """They may hold a lock that no thread would give back in the child."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with Spares.forked(2) as spares:
            assert spares.pids == []
    finally:
        over.set()
        thread.join()


def test_of_finite_work_only_who_was_killed_is_replaced_and_the_fleet_ends_with_it(
    fleet: Start, tmp_path: Path
) -> None:
    parent = fleet("finite", tmp_path, 3)
    os.kill(begun(tmp_path, 3)[0], signal.SIGKILL)
    wait_until("it came back", lambda: sum(map(len, running(tmp_path).values())) == 4, 20)

    (tmp_path / "done").touch()

    assert parent.wait(20) == 2  # two of the three say that they failed
    assert sum(map(len, running(tmp_path).values())) == 4


def test_a_signal_that_comes_while_the_own_share_begins_ends_it_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    has_ended = threading.Event()

    class Signalled(Share):
        def __init__(self, work: Work, number: int, ended: Callable[[], object]) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until("the signal is heard", lambda: whole._end_by is not None)
            super().__init__(work, number, ended)

    def share(seat: Seat) -> None:
        seat.at_end(has_ended.set)
        asked.append(has_ended.wait(5))

    monkeypatch.setattr("schemaless_core.process.fleet.Share", Signalled)
    whole = Fleet(share, 1, here=share)

    assert whole.run()
    assert asked == [True]


@pytest.mark.parametrize("kind", ["waiting", "shared-waiting"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_everybody_finish(fleet: Start, tmp_path: Path, number: signal.Signals, kind: str) -> None:
    parent = fleet(kind, tmp_path)
    pids = begun(tmp_path)

    # As Ctrl-C at a terminal, or a service manager: every process of the session gets it, the parent among them.
    os.killpg(parent.pid, number)

    assert parent.wait(20) == 0
    assert ended(tmp_path) == set(pids)


def test_a_single_worker_works_in_the_process_itself(fleet: Start, tmp_path: Path) -> None:
    parent = fleet("waiting", tmp_path, 1)
    assert begun(tmp_path, 1) == [parent.pid]

    parent.send_signal(signal.SIGTERM)

    assert parent.wait(20) == 0


@pytest.mark.parametrize(("kind", "workers"), [("stubborn", 1), ("stubborn", 2), ("shared-stubborn", 2)])
def test_a_second_signal_ends_those_that_do_not_finish(fleet: Start, tmp_path: Path, kind: str, workers: int) -> None:
    parent = fleet(kind, tmp_path, workers)
    pids = begun(tmp_path, workers)

    parent.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert parent.poll() is None
    parent.send_signal(signal.SIGTERM)

    assert parent.wait(20) == 5
    assert not any(map(is_alive, pids))


def test_children_end_gracefully_when_their_parent_is_killed(fleet: Start, tmp_path: Path) -> None:
    parent = fleet("waiting", tmp_path)
    pids = begun(tmp_path)

    parent.kill()
    parent.wait(20)

    wait_until("they ended", lambda: not any(map(is_alive, pids)), 20)
    assert ended(tmp_path) == set(pids)


@pytest.fixture
def served(stores: Stores, tmp_path: Path) -> tuple[Datastore, Path]:
    """A datastore whose leases last longer than a test looks, and its configuration as a file."""
    return served_for(stores, tmp_path, lease_seconds=3.0)


def served_for(stores: Stores, tmp_path: Path, **options: float) -> tuple[Datastore, Path]:
    config = stores.config("sqlite", shards=8, triggers=quick(**options))
    path = tmp_path / "tripstore.yaml"
    path.write_text(json.dumps(config))
    datastore = Datastore.open(config)
    datastore.create_schema()
    return datastore, path


def owners(datastore: Datastore) -> set[str | None]:
    if datastore.triggers.coordinator.find_group("noted") is None:
        return set()
    return {shard.owner for shard in datastore.triggers.status("noted")[0].shards}


def test_who_is_asked_to_end_gives_its_leases_back_at_once(fleet: Start, served: tuple[Datastore, Path]) -> None:
    datastore, path = served
    with datastore:
        parent = fleet("serving", path)
        wait_until("both serve", lambda: len(owners(datastore) - {None}) == 2, 30)

        parent.send_signal(signal.SIGTERM)
        assert parent.wait(20) == 0

        # No worker had to wait for a lease to run out.
        assert owners(datastore) == {None}
        assert datastore.triggers.coordinator.survey().workers == ()


def test_leases_are_given_back_when_the_parent_is_killed(fleet: Start, served: tuple[Datastore, Path]) -> None:
    datastore, path = served
    with datastore:
        parent = fleet("serving", path)
        wait_until("both serve", lambda: len(owners(datastore) - {None}) == 2, 30)

        parent.kill()

        wait_until("they gave back", lambda: owners(datastore) == {None}, 20)


def test_a_failpoint_kills_a_child_and_its_successor_serves(
    fleet: Start, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    datastore, path = served_for(stores, tmp_path)
    (failpoints / "triggers.beaten").write_text("kill after=3")
    with datastore:
        fleet("serving", path, TRIPSTORE_FAILPOINTS=str(failpoints))
        wait_until("a child was killed", (failpoints / "triggers.beaten.hit").exists, 30)

        wait_until("two serve again", lambda: len(serving_well(datastore)) == 2, 30)


def serving_well(datastore: Datastore) -> set[str]:
    """The workers that hold all shards; none of them while one shard is free or a dead worker's."""
    leases = datastore.triggers.coordinator.survey()
    living = {record.worker for record in leases.workers}
    holding = {lease.owner for lease in leases.leases}
    return {owner for owner in holding if owner is not None} if holding <= living and len(living) == 2 else set()


def test_pauses_grow_up_to_the_longest_and_begin_anew_after_a_long_life() -> None:
    pauses, seen, pause = Pauses(), [], 0.0
    for lived_seconds in (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 61.0):
        pause = pauses.after(pause, lived_seconds)
        seen.append(pause)

    assert seen == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 1.0]
