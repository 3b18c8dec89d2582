"""The backfill against a script by hand with as many processes, and against dlt: cells a second, and memory.

A company with as many trips as wanted is made in the run. Both copy the same parts of it in turn, each into a datastore
of its own on the same server; a process lives as long as the benchmark and says at last how much memory it ever had.
"""

from __future__ import annotations

import itertools
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple
from uuid import UUID

import click

from benchmarks.bulk import plant
from benchmarks.cells import PATIENT, SPAWN, Config
from benchmarks.copy_script import CopyScript
from benchmarks.loader import load_with_dlt
from benchmarks.timing import Comparison, paired
from schemaless_core import Datastore, ShardStatus
from tripstore.backends.postgres.cells.past_plan import cuts
from tripstore.backends.postgres.ddl.steps import apply_all
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.schema_steps import schema_steps
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.demo import legacy
from tripstore.facade.facade import Duo
from tripstore.handover.backfill import copy_chunk
from tripstore.handover.ports import Chunk
from tripstore.handover.steps import run
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.wiring import connect

TRIPS = 2_000_000
SHARDS = 64
ROWS_PER_CHUNK = 2_000
PROCESSES = (1, 2)
#: For each number of processes; each copies a part of the trips that nobody has copied.
ROUNDS = 5
MEGABYTES = 300.0

#: Of ours a range of row keys, of the script's one of ids.
Part = tuple[Any, Any]


class Done(NamedTuple):
    """What a process says of a part."""

    cells: int
    seconds: float
    megabytes: float  #: The most that it ever had.


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """Everything of the backfill; at scale 1 with two million trips."""
    trips = max(round(TRIPS * scale), 4_000)
    ours = _company(postgres, mirror, trips)
    scripted = {**ours, "datastore": "scripted"}
    with Datastore.open(_core(scripted)) as store, Datastore.open(_core(ours)) as other:
        for datastore in (store, other):
            datastore.create_schema(status=ShardStatus.COPY)
    rounds = ROUNDS if scale >= 0.2 else 2
    slices = len(PROCESSES) * rounds
    by_key, by_id = _key_ranges(ours, slices), _id_ranges(trips, slices)
    memory: list[float] = []
    unparted: list[float] = []
    for processes in PROCESSES:
        with _crew(_copy, ours, processes) as copiers, _crew(_script, scripted, processes) as scripts:
            speeds: list[tuple[float, float]] = []
            for number in range(rounds):
                part = by_key.pop(), by_id.pop()
                teams = [(copiers, _halves_of_keys), (scripts, _halves_of_ids)]
                figures = [0.0, 0.0]
                for who in (0, 1) if number % 2 else (1, 0):
                    crew, halves = teams[who]
                    done, figures[who] = crew.copy(halves(part[who], processes))
                    if who == 0:
                        memory += [each.megabytes for each in done]
                speeds.append((figures[0], figures[1]))
            unparted += [ours for ours, _theirs in speeds] if processes == 1 else []
        yield _speed(f"backfill, {processes} process{'es' if processes > 1 else ''} (cells)", speeds, (">=", 0.8))
    yield _memory("peak memory of a process (MB)", max(memory), MEGABYTES, 1.0)
    yield _memory("  the same after its first part", memory[0], MEGABYTES, None)
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
    started = time.perf_counter()
    postgres.query("CREATE DATABASE bulk")
    url = f"{postgres.url}/bulk"
    plant(url, trips)
    known = load_layout(legacy.LAYOUT)
    layout = Layout("copied", known.row_key, known.columns)
    with connected(url, "benchmark") as connection:
        for _ in apply_all(schema_steps(layout), connection, lambda _step: lambda _done, _all: None):
            pass
        rows(connection, "VACUUM ANALYZE")
    click.echo(f"  {trips:,} trips with their children: {time.perf_counter() - started:.0f} s")
    return {
        "datastore": "copied",
        "shards": SHARDS,
        "clusters": {"a": {"primary": mirror.url}},
        "deadlines": PATIENT,
        "legacy": {"postgres": url, "layout": layout.to_document()},
    }


def _core(config: Config) -> Config:
    return {key: value for key, value in config.items() if key != "legacy"}


def _key_ranges(config: Config, slices: int) -> list[Part]:
    """As the backfill cuts them."""
    with connect(config) as store:
        duo = _duo(store)
        found = duo.legacy.database.run(lambda connection: cuts(connection, duo.legacy.layout, slices), _patient())
    ends: list[UUID | None] = [None, *found, None]
    return list(itertools.pairwise(ends))


def _id_ranges(trips: int, slices: int) -> list[Part]:
    ends = [trips * number // slices for number in range(slices + 1)]
    return [(first + 1, last) for first, last in itertools.pairwise(ends)]


def _halves_of_ids(part: Part, processes: int) -> list[Part]:
    first, last = part
    ends = [first - 1 + (last - first + 1) * number // processes for number in range(processes + 1)]
    return [(low + 1, high) for low, high in itertools.pairwise(ends)]


def _halves_of_keys(part: Part, processes: int) -> list[Part]:
    """Row keys are made by a hash here: of a range the middle is in the middle."""
    after, upto = part
    low, high = 0 if after is None else after.int, 2**128 - 1 if upto is None else upto.int
    middles = [UUID(int=low + (high - low) * number // processes) for number in range(1, processes)]
    ends = [after, *middles, upto]
    return list(itertools.pairwise(ends))


# ------------------------------------------------------------------------------------------------------ the processes


class Crew:
    """Processes that copy parts at the same time."""

    def __init__(self, members: Sequence[Connection[Any, Any]]) -> None:
        self._members = members

    def copy(self, parts: Sequence[Part]) -> tuple[list[Done], float]:
        """What each of them says, and how many cells a second they copied together."""
        started = time.perf_counter()
        for member, part in zip(self._members, parts, strict=True):
            member.send(part)
        done: list[Done] = [member.recv() for member in self._members]
        return done, sum(each.cells for each in done) / (time.perf_counter() - started)


@contextmanager
def _crew(work: Callable[[Config, Connection[Any, Any]], None], config: Config, processes: int) -> Iterator[Crew]:
    with ExitStack() as exits:
        members = []
        for _ in range(processes):
            here, there = SPAWN.Pipe()
            process = SPAWN.Process(target=work, args=(config, there), daemon=True)
            process.start()
            there.close()  # or nobody would notice when it ends
            exits.callback(process.join)
            exits.callback(partial(here.send, None))
            assert here.recv() == "ready"
            members.append(here)
        yield Crew(members)


def _copy(config: Config, pipe: Connection[Any, Any]) -> None:
    """Ours: the steps of the backfill with their real ports."""
    with connect(config) as store:
        ports = _duo(store).ports

        def copy(after: UUID | None, upto: UUID | None) -> int:
            cells = 0
            while True:
                copied = run(copy_chunk(ports, Chunk(after, upto, ROWS_PER_CHUNK)))
                assert copied.is_whole
                assert not copied.outcome.problems
                cells, after = cells + copied.outcome.equal, copied.past.after
                if after is None:
                    return cells

        _serve(pipe, copy)


def _script(config: Config, pipe: Connection[Any, Any]) -> None:
    script = CopyScript(config)
    _serve(pipe, script.run)
    script.close()


def _serve(pipe: Connection[Any, Any], copy: Callable[[Any, Any], int]) -> None:
    pipe.send("ready")
    while (part := pipe.recv()) is not None:
        started = time.perf_counter()
        cells = copy(*part)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        pipe.send(Done(cells, time.perf_counter() - started, peak))


def _duo(store: Any) -> Duo:
    duo: Duo = store.facade.duo
    assert duo is not None
    return duo


def _patient() -> Any:
    from schemaless_core.deadline import Deadline

    return Deadline(60.0)
