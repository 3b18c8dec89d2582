"""A signal handler may raise between any two steps of the main thread: Ctrl-C in a shell, a time-out by SIGALRM.

No other thread waits for ever because of it, no acknowledged cell is lost (I1), and logs stay dense (I3).
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import BatchFailed, Cell, Datastore, Unavailable
from schemaless_core.process import forks
from tests.forking import FORK_SERVER
from tests.scale import scaled
from tests.stores import DATASTORE_ENGINES, Stores

#: A thread that gets nothing done for so long waits for ever.
STUCK_SECONDS = 6
#: The longest time from one interrupt to the next; a server's connection that was cut short is made anew.
PAUSE_SECONDS = {"sqlite": 0.004, "mariadb": 0.02, "mysql": 0.04}


class _Interrupt(Exception):
    """What the handler raises."""


def _raise(*_: object) -> None:
    raise _Interrupt


class _PythonLock:
    """As the lock of a `Condition` is: taken and given back by Python code, whose steps are drawn out here."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()
        for _ in range(500):
            pass

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _PythonGate(forks._Gate):
    """The control: a gate whose lock is taken by Python code, between whose steps an exception may arrive."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = _PythonLock()

    def enter(self, block: forks.Block) -> None:
        with self._changed:
            self._inside[block] = threading.get_ident()

    def leave(self, block: forks.Block) -> None:
        with self._changed:
            self._inside.pop(block, None)


def _interrupted_writer(
    config: Mapping[str, Any], interrupts: int, pause_seconds: float, is_control: bool, tell: Connection
) -> None:
    """Put cells in the main thread under interrupts, beside threads that read and that write batches."""
    if is_control:
        forks._gate = _PythonGate()
    with Datastore.open(config) as store:
        stop, beats, acknowledged = threading.Event(), [0, 0, 0], list[UUID]()
        row = uuid4()
        store.put_cell(row, "BASE", 1, "read")

        def keep(n: int, work: Callable[[], object]) -> None:
            while not stop.is_set():
                # A put that was cut short may hold the file until its connection is closed.
                with suppress(Unavailable, BatchFailed):
                    work()
                beats[n] += 1

        def batch() -> None:
            store.put_cells([Cell(uuid4(), "NOTES", 1, "n") for _ in range(5)])

        works: list[Callable[[], object]] = [
            lambda: store.get_cell_latest(row, "BASE"),
            batch,
            lambda: store.get_row(row),
        ]
        threads = [threading.Thread(target=keep, args=(n, work), daemon=True) for n, work in enumerate(works)]
        for thread in threads:
            thread.start()
        watch = threading.Thread(target=_end_when_stuck, args=(beats, tell), daemon=True)
        watch.start()
        _put_under_interrupts(store, interrupts, pause_seconds, acknowledged)
        stop.set()
        for thread in threads:
            thread.join(STUCK_SECONDS)
        assert not any(thread.is_alive() for thread in threads)
        tell.send((list(beats), acknowledged))


def _put_under_interrupts(store: Datastore, interrupts: int, pause_seconds: float, acknowledged: list[UUID]) -> None:
    choose = random.Random(5)
    signal.signal(signal.SIGALRM, _raise)
    survived = 0
    while survived < interrupts:
        try:
            try:
                # A second one follows: what arrives in a finalizer is swallowed by Python.
                signal.setitimer(signal.ITIMER_REAL, choose.uniform(0.00005, pause_seconds), 10 * pause_seconds)
                _keep_putting(store, acknowledged)
            except _Interrupt:
                survived += 1
        except _Interrupt:  # the second, where a busy machine came to the first so late
            pass
    signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _keep_putting(store: Datastore, acknowledged: list[UUID]) -> None:
    while True:
        row = uuid4()
        with suppress(Unavailable):
            store.put_cell(row, "BASE", 1, "main")
            acknowledged.append(row)
        time.sleep(0.0002)  # SQLite is unfair: a writer that comes back at once keeps the others out


def _end_when_stuck(beats: list[int], tell: Connection) -> None:
    seen, since = list(beats), time.monotonic()
    while time.monotonic() - since < STUCK_SECONDS:
        time.sleep(0.1)
        if all(now > before for now, before in zip(beats, seen, strict=True)):
            seen, since = list(beats), time.monotonic()
    faulthandler.dump_traceback()
    tell.send(None)
    os._exit(3)


def _run(
    config: Mapping[str, Any], interrupts: int, pause_seconds: float, *, is_control: bool = False
) -> tuple[list[int], list[UUID]] | None:
    hear, tell = FORK_SERVER.Pipe(duplex=False)
    process = FORK_SERVER.Process(
        target=_interrupted_writer, args=(config, interrupts, pause_seconds, is_control, tell)
    )
    process.start()
    tell.close()
    try:
        answer: tuple[list[int], list[UUID]] | None = hear.recv()
        return answer
    finally:
        process.join(STUCK_SECONDS)
        process.kill()


@pytest.mark.parametrize("engine", DATASTORE_ENGINES)
def test_i1_i3_interrupts_of_the_main_thread_stop_no_other_thread(engine: str, stores: Stores) -> None:
    config = stores.config(engine, shards=2)
    with Datastore.open(config) as store:
        store.create_schema()

        answer = _run(config, scaled(6000), PAUSE_SECONDS[engine])

        assert answer is not None, "a thread got nothing done any more"
        beats, acknowledged = answer
        print(f"{engine}: {scaled(6000)} interrupts, {len(acknowledged)} puts, calls of the other threads {beats}")
        assert [row for row in acknowledged if store.get_cell(row, "BASE", 1) is None] == []
        for shard in range(2):
            assert store.end_of_log(shard).added_id == sum(bucket.count for bucket in store.checksum(shard))


def test_control_a_lock_that_is_taken_by_python_code_is_left_locked(stores: Stores) -> None:
    config = stores.config("sqlite", shards=2)
    with Datastore.open(config) as store:
        store.create_schema()

        assert _run(config, 6000, PAUSE_SECONDS["sqlite"], is_control=True) is None
