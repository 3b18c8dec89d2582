"""A process that forks while its threads work: neither the child nor the parent waits for a lock of the other."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from prometheus_client.values import MutexValue

from schemaless_core import Datastore, metrics
from schemaless_core.deadline import Deadline
from schemaless_core.process import forks
from tests.scale import scaled
from tests.stores import Stores


def forked(work: Callable[[], object], seconds: float = 30) -> int:
    """The exit code of a child that does this; -1 for one that never ends."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  # a forked child must not run the tests of its parent
            traceback.print_exc()
            os._exit(2)
        os._exit(0)
    give_up = Deadline(seconds)
    while not give_up.is_over:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -1


def test_forks_in_the_midst_of_puts_lose_nothing(datastore: Datastore) -> None:
    stop, put, failures = threading.Event(), list[UUID](), list[Exception]()

    def keep_putting() -> None:
        while not stop.is_set():
            row = uuid4()
            try:
                datastore.put_cell(row, "BASE", 1, "parent")
                put.append(row)
            except Exception as error:  # noqa: BLE001  # the test looks at them
                failures.append(error)

    threads = [threading.Thread(target=keep_putting) for _ in range(3)]
    for thread in threads:
        thread.start()
    children = [uuid4() for _ in range(scaled(400, short=6))]
    try:
        codes = [forked(lambda row=row: datastore.put_cell(row, "BASE", 1, "child")) for row in children]  # type: ignore[misc]
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert codes == [0] * len(children)
    assert failures == []
    assert [row for row in put + children if datastore.get_cell(row, "BASE", 1) is None] == []


def test_a_child_goes_on_when_its_parent_has_closed_the_file(stores: Stores) -> None:
    """A child that believed in its parent's locks would write a log that the parent has deleted."""
    config = stores.config("sqlite", shards=1)
    parent = Datastore.open(config)
    parent.create_schema()
    parent.put_cell(uuid4(), "BASE", 1, 1)
    (told, hears), (begun, begins) = os.pipe(), os.pipe()
    row = uuid4()

    def put_before_and_after() -> None:
        parent.put_cell(row, "BASE", 1, "before")
        os.write(begins, b"x")
        os.read(told, 1)
        parent.put_cell(row, "BASE", 2, "after")
        assert parent.get_cell(row, "BASE", 1) is not None

    def close_and_tell() -> None:
        os.read(begun, 1)
        parent.close()
        os.write(hears, b"x")

    thread = threading.Thread(target=close_and_tell)
    thread.start()
    code = forked(put_before_and_after)
    thread.join()

    assert code == 0
    with Datastore.open(config) as again:
        assert [again.get_cell(row, "BASE", ref) is not None for ref in (1, 2)] == [True, True]


def test_a_child_counts_although_a_thread_of_its_parent_was_counting() -> None:
    counter = metrics.CELLS.labels("CREATED")
    value: MutexValue = counter._value
    with value._lock, metrics.CELLS._lock:
        code = forked(lambda: metrics.cells_written("CREATED"), seconds=5)

    assert code == 0


def test_a_fork_waits_for_the_transactions_of_other_threads() -> None:
    inside, leave, seen = threading.Event(), threading.Event(), list[bool]()

    def work() -> None:
        with forks.unforked():
            inside.set()
            leave.wait()
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    threading.Timer(0.05, leave.set).start()
    assert forked(lambda: seen[0]) == 0
    thread.join()


def test_a_fork_inside_a_block_of_its_own_thread_does_not_wait() -> None:
    with forks.unforked():
        assert forked(lambda: None) == 0


def test_a_fork_gives_up_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE_SECONDS", 0.05)
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with forks.unforked():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    assert forked(lambda: None) == 0
    leave.set()
    thread.join()
