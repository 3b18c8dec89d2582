"""`Workload`: the services of the company at work, one action at a time or many at once."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from random import Random
from types import TracebackType
from typing import Self

import psycopg2
from sqlalchemy.exc import SQLAlchemyError

from tripstore.demo.legacy.actions import ACTIONS, LegacyAction
from tripstore.demo.legacy.tally import WorkTally
from tripstore.demo.legacy.turns import ServiceHabits
from tripstore.demo.legacy.worker import CompanyWorker, Done, sqlstate
from tripstore.errors import TripstoreError

#: After an error that no retry mends: the gate may be closed, or Postgres down.
FAILURE_PAUSE_SECONDS = 0.05
WORKERS = 2


@dataclass(frozen=True)
class Shift:
    """What one worker of many has to do; goes to other processes."""

    url: str
    seed: str
    names: tuple[str, ...]
    habits: ServiceHabits
    actions: int | None
    seconds: float | None


class Workload:
    """Creates and changes trips the way services do. `only` are patterns of action names, such as "orm.*"."""

    def __init__(
        self, url: str, seed: int = 1, *, only: Sequence[str] = ("*",), habits: ServiceHabits | None = None
    ) -> None:
        self._url = url
        self._seed = seed
        self._habits = habits or ServiceHabits()
        self._names = tuple(name for name in ACTIONS if any(fnmatch(name, pattern) for pattern in only))
        if not self._names:
            raise TripstoreError(f"No action is called {', '.join(only)}.", hint=f"There are {', '.join(ACTIONS)}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def actions(self) -> list[LegacyAction]:
        """The actions that this workload chooses from."""
        return [ACTIONS[name] for name in self._names]

    def step(self, random: Random) -> Done:
        """Perform one action and say what it did. The same chance on the same database: the same step."""
        return self._worker.do(_chosen(self.actions, random), random)

    def perform(self, name: str, random: Random) -> Done:
        """Perform the action of this name."""
        return self._worker.do(ACTIONS[name], random)

    def run(
        self,
        *,
        actions: int | None = None,
        seconds: float | None = None,
        workers: int = WORKERS,
        processes: bool = False,
        stop: threading.Event | None = None,
    ) -> WorkTally:
        """Work until so many actions are done, so many seconds are over, or `stop` is set (threads only)."""
        if actions is None and seconds is None and (stop is None or processes):
            raise TripstoreError("A workload needs an end.", hint="Give `actions` or `seconds`.")
        shifts = self._shifts(workers, actions, seconds)
        tally = WorkTally()
        with _executor(workers, processes) as executor:
            running = [
                executor.submit(work, shift) if processes else executor.submit(work, shift, stop) for shift in shifts
            ]
            for done in running:
                tally.add(done.result())
        return tally

    @contextmanager
    def running(self, workers: int = WORKERS) -> Iterator[WorkTally]:
        """Threads work as long as the block lasts; the tally is filled when it has ended."""
        stop, tally = threading.Event(), WorkTally()
        with ThreadPoolExecutor(1) as executor:
            running = executor.submit(self.run, workers=workers, stop=stop)
            try:
                yield tally
            finally:
                stop.set()
            tally.add(running.result())

    def close(self) -> None:
        """End what `step` and `perform` keep open."""
        if "_worker" in self.__dict__:
            self._worker.close()
            del self._worker

    @cached_property
    def _worker(self) -> CompanyWorker:
        return CompanyWorker(self._url, self._habits)

    def _shifts(self, workers: int, actions: int | None, seconds: float | None) -> list[Shift]:
        shares = [None] * workers if actions is None else [len(range(n, actions, workers)) for n in range(workers)]
        return [
            Shift(self._url, f"{self._seed}/{number}", self._names, self._habits, share, seconds)
            for number, share in enumerate(shares)
        ]


def work(shift: Shift, stop: threading.Event | None = None) -> WorkTally:
    """Do what one worker has to do. An error that no retry mends is counted, and the next action begun."""
    random, tally, names = Random(shift.seed), WorkTally(), [ACTIONS[name] for name in shift.names]
    ends_at = None if shift.seconds is None else time.monotonic() + shift.seconds
    with CompanyWorker(shift.url, shift.habits) as worker:
        while not _is_over(shift, tally, ends_at, stop):
            action = _chosen(names, random)
            try:
                tally.count(worker.do(action, random))
            except (psycopg2.Error, SQLAlchemyError) as error:
                tally.count_failure(action.name, sqlstate(error) or type(error).__name__, str(error).strip())
                time.sleep(FAILURE_PAUSE_SECONDS)
    return tally


def _is_over(shift: Shift, tally: WorkTally, ends_at: float | None, stop: threading.Event | None) -> bool:
    if stop is not None and stop.is_set():
        return True
    if ends_at is not None and time.monotonic() >= ends_at:
        return True
    return shift.actions is not None and tally.actions >= shift.actions


def _chosen(actions: Sequence[LegacyAction], random: Random) -> LegacyAction:
    return random.choices(actions, [action.weight for action in actions])[0]


def _executor(workers: int, processes: bool) -> Executor:
    if processes:
        return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    return ThreadPoolExecutor(workers)
