"""Clients of a facade in processes of their own: at a steady rate, or as fast as they can."""

from __future__ import annotations

import gc
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Literal, NamedTuple
from uuid import UUID

from benchmarks.cells import SPAWN, Config
from benchmarks.cores import Part, stay
from benchmarks.legacy import People
from benchmarks.migration import Migration, duo_of, wait
from schemaless_core import Cell
from tripstore.engines.validation.compare import DifferenceClass
from tripstore.engines.validation.verdicts import Outcome
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import connect

CLIENTS = 4
#: Who answers reads: the facade, or `laboratory` around both stores, for every read or for every tenth.
Reader = Literal["facade", "laboratory", "laboratory, every tenth"]
_TENTH = 0.1
#: What a mirror that is stopped leaves of comparisons.
_UNANSWERED = (DifferenceClass.ERROR, DifferenceClass.TIMEOUT)

Read = Callable[[UUID], Cell | None]


class Work(NamedTuple):
    """What all clients are to do together."""

    seconds: float
    #: Calls of all clients; infinite: each goes on when it is answered.
    per_second: float
    #: Of the calls; the others are reads.
    put_share: float
    reader: Reader = "facade"
    #: Before it is measured.
    lead_seconds: float = 1.0


class Done(NamedTuple):
    """How long calls took, in seconds, and how many reads were compared."""

    puts: list[float]
    reads: list[float]
    compared: int


class Clients:
    """Each has its own trips, so that none ever waits for another's row."""

    def __init__(self, channels: Sequence[Connection]) -> None:
        self._channels = channels

    def see(self, phase: Phase) -> None:
        """Return when all of them go by this phase."""
        for channel in self._channels:
            channel.send(phase)
        assert all(channel.recv() is phase for channel in self._channels)

    def run(self, work: Work) -> Done:
        """Let all of them work at the same time; what they did together."""
        of_each = work._replace(per_second=work.per_second / len(self._channels))
        for channel in self._channels:
            channel.send(of_each)
        done: list[Done] = [channel.recv() for channel in self._channels]
        puts = [duration for each in done for duration in each.puts]
        reads = [duration for each in done for duration in each.reads]
        return Done(puts, reads, sum(each.compared for each in done))


@contextmanager
def clients(migration: Migration, part: Part = "all", count: int = CLIENTS) -> Iterator[Clients]:
    """So many processes. Which cores are theirs depends on what is measured."""
    pipes = [SPAWN.Pipe() for _ in range(count)]
    keys = [migration.row_keys[number::count] for number in range(count)]
    processes = [
        SPAWN.Process(target=_serve, args=(migration.config, own, migration.people, theirs, part), daemon=True)
        for (_ours, theirs), own in zip(pipes, keys, strict=True)
    ]
    for process in processes:
        process.start()
    for _ours, theirs in pipes:
        theirs.close()  # one that dies is heard of
    try:
        yield Clients([ours for ours, _theirs in pipes])
    finally:
        for (ours, _theirs), process in zip(pipes, processes, strict=True):
            ours.close()
            process.join()


class _Client:
    def __init__(self, store: TripStore, row_keys: Sequence[UUID], people: People) -> None:
        self._store = store
        self._row_keys = row_keys
        self._people = people
        self._random = random.Random(time.time_ns())
        self._versions = itertools.count(time.time_ns() // 1000)  # above those of all clients before
        self._readers: dict[Reader, Read] = {"facade": self._read}

    def see(self, phase: Phase) -> Phase:
        known = duo_of(self._store).known
        wait(lambda: known.sight is not None and known.sight.phase is phase)
        return phase

    def work(self, work: Work) -> Done:
        before, reads, puts = _compared(self._store), list[float](), list[float]()
        read = self._reader(work.reader)
        gc.collect()
        gc.freeze()
        started = time.perf_counter()
        measured_from, ends_at, due = started + work.lead_seconds, started + work.lead_seconds + work.seconds, started
        while (now := time.perf_counter()) < ends_at:
            if now < due:
                time.sleep(due - now)
            due += self._random.expovariate(work.per_second) if work.per_second < math.inf else 0.0
            row_key = self._random.choice(self._row_keys)
            is_put = self._random.random() < work.put_share
            body = self._people.body(self._random) if is_put else None
            begun = time.perf_counter()
            if is_put:
                self._store.put_cell(row_key, "BASE", next(self._versions), body)
            else:
                found = read(row_key)
            ended = time.perf_counter()
            assert is_put or found is not None
            if begun >= measured_from:
                (puts if is_put else reads).append(ended - begun)
        return Done(puts, reads, _compared(self._store) - before)

    def _reader(self, reader: Reader) -> Read:
        """A peer is imported when it is measured: not every benchmark has one."""
        if reader not in self._readers:
            self._readers[reader] = _experimental(self._store, reader)
        return self._readers[reader]

    def _read(self, row_key: UUID) -> Cell | None:
        return self._store.get_cell_latest(row_key, "BASE")


def _experimental(store: TripStore, reader: Reader) -> Read:
    """The same comparison by GitHub Scientist's port: Postgres is the control, Schemaless the candidate, inline."""
    laboratory = import_module("laboratory")
    control, candidate = duo_of(store).legacy, store.facade.store.as_copier()

    class Experiment(laboratory.Experiment):  # type: ignore[misc, name-defined]  # it has no types
        def enabled(self) -> bool:
            return reader == "laboratory" or random.random() < _TENTH

    def read(row_key: UUID) -> Cell | None:
        experiment = Experiment()
        experiment.control(control.get_cell_latest, args=[row_key, "BASE"])
        experiment.candidate(candidate.get_cell_latest, args=[row_key, "BASE"])
        answer: Cell | None = experiment.conduct()
        return answer

    return read


def _compared(store: TripStore) -> int:
    tally = duo_of(store).tally
    wrong = [found for found in tally.mismatches() if found.verdict.label not in _UNANSWERED]
    assert not wrong, wrong[-1]
    return tally.total(Outcome.EQUAL, Outcome.IN_FLIGHT)


def _serve(config: Config, row_keys: Sequence[UUID], people: People, channel: Connection, part: Part) -> None:
    stay(part)
    with connect(config) as store:
        store.get_cell_latest(row_keys[0], "BASE")
        client = _Client(store, row_keys, people)
        while True:
            try:
                asked: Work | Phase = channel.recv()
            except EOFError:
                return
            channel.send(client.work(asked) if isinstance(asked, Work) else client.see(asked))
