"""The backfill against a script by hand with as many processes, and against dlt: cells a second, and memory.

A company with as many trips as wanted is made in the run. Both copy in turn a part of it that is not copied yet, each
into a datastore of its own on the same server. Ours is a job as `tripstore backfill start` runs it: leases, chunks that
learn their size, counters saved with each, a share of the rows read once more; the script does nothing of this. A
process lives as long as the benchmark and says at last how much memory it ever had.
"""

from __future__ import annotations

import itertools
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.bulk import company
from benchmarks.by_hand.copy_script import CopyScript
from benchmarks.cells import PATIENT, SPAWN, Config
from benchmarks.loader import load_with_dlt
from benchmarks.timing import Comparison, paired
from schemaless_core import Datastore, Json, ShardStatus
from tripstore.engines.backfill.runner import Ending
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.migration.backfill.backfill import EVERYTHING, KIND, Backfill, BackfillPlan
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.phase import Phase
from tripstore.wiring import connect

TRIPS = 2_000_000
SHARDS = 64
PROCESSES = (1, 2)
#: For each number of processes; each copies trips that are not copied yet.
ROUNDS = 5
MEGABYTES = 300.0
#: Of memory, from the first part of a job to the last.
GROWTH = 1.2

#: Of each of our jobs: so many that processes end at about the same time.
PARTS = 16

#: What is sent to a process: the id of a job, or a range of the company's ids.
Work = Any


class Done(NamedTuple):
    """What a process says of its work."""

    cells: int  #: Of a range, or of the whole job.
    megabytes: float  #: The most that it ever had.


class Took(NamedTuple):
    """What all processes of a crew say, and how long it was until the last one did."""

    done: list[Done]
    seconds: float


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """Everything of the backfill; at scale 1 with two million trips."""
    trips = max(round(TRIPS * scale), 4_000)
    ours = _company(postgres, mirror, trips)
    scripted = {**ours, "datastore": "scripted"}
    with Datastore.open(_core(scripted)) as store, Datastore.open(_core(ours)) as other:
        for datastore in (store, other):
            datastore.create_schema(status=ShardStatus.COPY)
    rounds = ROUNDS if scale >= 0.2 else 2
    jobs, by_id = _jobs(ours, len(PROCESSES) * rounds), _id_ranges(trips, len(PROCESSES) * rounds)
    memory: list[float] = []
    unparted: list[float] = []
    for processes in PROCESSES:
        with _crew(_copy, ours, processes) as copiers, _crew(_script, scripted, processes) as scripts:
            speeds: list[tuple[float, float]] = []
            for number in range(rounds):
                teams = [(copiers, [jobs.pop()] * processes), (scripts, _halves(by_id.pop(), processes))]
                took = {crew: crew.copy(work) for crew, work in teams[:: 1 if number % 2 else -1]}
                memory += [each.megabytes for each in took[copiers].done]
                (ours_speed,) = {each.cells / took[copiers].seconds for each in took[copiers].done}  # of the whole job
                speeds.append((ours_speed, sum(each.cells for each in took[scripts].done) / took[scripts].seconds))
            unparted += [ours for ours, _theirs in speeds] if processes == 1 else []
        yield _speed(f"backfill, {processes} process{'es' if processes > 1 else ''} (cells)", speeds, (">=", 0.8))
    yield _memory("peak memory of a process (MB)", max(memory), MEGABYTES, 1.0)
    yield _memory("  the same, against after its first part (MB)", max(memory), memory[0], GROWTH)
    yield from _with_dlt(ours, mirror, trips // 10, statistics.median(unparted))


def _with_dlt(config: Config, mirror: BinlogServer, trips: int, ours: float) -> Iterator[Comparison]:
    """Rows of the same tables into tables of their own: it knows no cells."""
    started = time.perf_counter()
    loaded = load_with_dlt(config["legacy"]["postgres"], mirror, trips)
    speed = loaded / (time.perf_counter() - started)
    yield Comparison("  dlt, a tenth of the trips (rows)", ours, speed, ours / speed, (ours / speed,) * 2, "/s")


def _speed(name: str, speeds: Sequence[tuple[float, float]], bound: tuple[str, float] | None) -> Comparison:
    ours, theirs = zip(*speeds, strict=True)
    return paired(name, ours, theirs, unit="/s", bound=bound)


def _memory(name: str, megabytes: float, limit: float, bound: float | None) -> Comparison:
    ratio = megabytes / limit
    return Comparison(name, megabytes, limit, ratio, (ratio, ratio), "", None if bound is None else ("<=", bound))


# ------------------------------------------------------------------------------------------------------- the company


def _company(postgres: PostgresServer, mirror: BinlogServer, trips: int) -> Config:
    url, layout = company(postgres, "copied", trips)
    return {
        "datastore": "copied",
        "shards": SHARDS,
        "clusters": {"a": {"primary": mirror.url}},
        "deadlines": PATIENT,
        "legacy": {"postgres": url, "layout": layout.to_document()},
    }


def _core(config: Config) -> Config:
    return {key: value for key, value in config.items() if key != "legacy"}


def _jobs(config: Config, number: int) -> list[str]:
    """Jobs that copy everything together, each as many parts of it."""
    with connect({**config, "backfill": {"parts": PARTS * number}}) as store:
        register_reverse(store.facade.store)
        store.facade.flags.change(lambda flags: flags.with_phase(Phase.DUALWRITE), "benchmark")
        backfill = Backfill(store.facade)
        whole = backfill.plan(EVERYTHING)
        slices: list[list[Json]] = [whole.parts[first::number] for first in range(number)]
        return [backfill.begin(BackfillPlan(whole.spec, parts, whole.estimate // number)).id for parts in slices]


def _id_ranges(trips: int, slices: int) -> list[Work]:
    ends = [trips * number // slices for number in range(slices + 1)]
    return [(first + 1, last) for first, last in itertools.pairwise(ends)]


def _halves(part: Work, processes: int) -> list[Work]:
    first, last = part
    ends = [first - 1 + (last - first + 1) * number // processes for number in range(processes + 1)]
    return [(low + 1, high) for low, high in itertools.pairwise(ends)]


# ------------------------------------------------------------------------------------------------------ the processes


class Crew:
    """Processes that copy at the same time."""

    def __init__(self, members: Sequence[Connection[Any, Any]]) -> None:
        self._members = members

    def copy(self, work: Sequence[Work]) -> Took:
        started = time.perf_counter()
        for member, each in zip(self._members, work, strict=True):
            member.send(each)
        done: list[Done] = [member.recv() for member in self._members]
        return Took(done, time.perf_counter() - started)


@contextmanager
def _crew(work: Callable[[Config, Connection[Any, Any]], None], config: Config, processes: int) -> Iterator[Crew]:
    with ExitStack() as exits:
        members = []
        for _ in range(processes):
            here, there = SPAWN.Pipe()
            process = SPAWN.Process(target=work, args=(config, there), daemon=True)
            process.start()
            there.close()  # or `here.recv()` would not notice that the process has ended
            exits.callback(process.join)
            exits.callback(partial(here.send, None))
            assert here.recv() == "ready"
            members.append(here)
        yield Crew(members)


def _copy(config: Config, pipe: Connection[Any, Any]) -> None:
    """Ours: a worker of the job."""
    with connect(config) as store:
        backfill, worker = Backfill(store.facade), f"worker {os.getpid()}"

        def copy(job_id: str) -> int:
            job = backfill.jobs.find(KIND, job_id)
            assert backfill.runner(job, worker).run() is Ending.DONE
            counts = backfill.jobs.progress(job_id).counts
            assert counts.get("conflicts", 0) + counts.get("quarantined", 0) == 0, counts
            return counts["equal"]

        _serve(pipe, copy)


def _script(config: Config, pipe: Connection[Any, Any]) -> None:
    script = CopyScript(config)
    _serve(pipe, lambda part: script.run(*part))
    script.close()


def _serve(pipe: Connection[Any, Any], copy: Callable[[Work], int]) -> None:
    pipe.send("ready")
    while (work := pipe.recv()) is not None:
        cells = copy(work)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        pipe.send(Done(cells, peak))
