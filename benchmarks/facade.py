"""The facade: how far the mirror is behind, what mirroring and comparing cost callers, what the facade itself costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import count
from random import Random
from typing import NamedTuple

from benchmarks.cells import config_of
from benchmarks.cores import let_stay
from benchmarks.load import Clients, Reader, Work, clients
from benchmarks.migration import SHARDS, Migration, migrated
from benchmarks.stolen import STOLEN_MAX, Stolen, calm_or_all
from benchmarks.timing import Comparison, compare, paired
from benchmarks.triggers import PUTS_PER_SECOND
from schemaless_core import Cell, CellStore, Datastore
from tripstore.handover.relay import drain
from tripstore.handover.steps import run
from tripstore.handover.switch import switch
from tripstore.local.postgres import PostgresServer
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import Engine
from tripstore.phase import Phase

MIRRORS: tuple[Engine, ...] = ("mariadb", "mysql")
TRIPS = 2_000
LAG_SECONDS = 0.05
#: Of what clients without pauses reach in phase off.
LOAD = 0.2
PUT_SHARE = 0.2
BLOCK_SECONDS = 30.0
#: Of blocks while the machine was ours, fewer say nothing; and with those that were disturbed.
ROUNDS, ROUNDS_MAX = 10, 13
#: The same of the runs whose lag is measured.
RUNS, RUNS_MAX = 5, 9

# From the change, which is before its commit, to the mark, which is after the mirror's: no reader waits for longer.
_LAGS = """
SELECT extract(epoch FROM delivered_at - at)::float8 FROM tripstore.log
WHERE at > (SELECT max(at) FROM tripstore.log) - {seconds} * interval '1 s' ORDER BY 1
"""


class Arm(NamedTuple):
    """One way in which the same load is served."""

    phase: Phase
    reader: Reader = "facade"
    is_stopped: bool = False  #: The mirror, dead.
    share: float = 1.0  #: Of a block's seconds.


OFF = Arm(Phase.OFF)
DUALWRITE = Arm(Phase.DUALWRITE)
SHADOW = Arm(Phase.SHADOW)
STOPPED = Arm(Phase.SHADOW, is_stopped=True)
TENTH = Arm(Phase.DUALWRITE, "laboratory, every tenth", share=0.3)
LABORATORY = Arm(Phase.DUALWRITE, "laboratory", share=0.3)
PEERS = (TENTH, LABORATORY)
#: They have no bound, and so are measured in fewer rounds: one of so many.
PEERS_EVERY = 3

#: What is told of an arm against off: the operation, and the bounds of its median and its 99th percentile.
_LINES = (
    ("put in dualwrite / off", DUALWRITE, "put", (1.15, 1.5)),
    ("read in shadow, a tenth compared / off", SHADOW, "read", (1.05, 1.3)),
    ("read in shadow, mirror stopped dead / off", STOPPED, "read", (1.05, 1.3)),
    ("  laboratory, a tenth compared / off", TENTH, "read", None),
    ("  laboratory, all compared / off", LABORATORY, "read", None),
)

BOUND_ARMS = tuple(arm for _name, arm, _operation, bounds in _LINES if bounds is not None)

#: By operation and percentile, in microseconds.
Figures = dict[tuple[str, int], float]


class Run(NamedTuple):
    """How late changes were, the quickest first, and how much of the cores the host took."""

    lags: Sequence[float]
    stolen: float


class Block(NamedTuple):
    """What one took, and how much of the cores the host took from it."""

    figures: Figures
    stolen: float


#: A block, and the two of off around it.
Flanked = tuple[Block, Block, Block]


def measure(
    postgres: PostgresServer,
    mirrors: Sequence[LocalCluster],
    company: PostgresServer,
    apart: LocalCluster,
    *,
    scale: float,
) -> Iterator[Comparison]:
    """A migration to each of the mirrors; the load in all phases with two servers apart."""
    for mirror in mirrors:
        with migrated(postgres, mirror.primary, mirror.name, TRIPS) as migration:
            yield from mirror_lag(migration, max(20 * scale, 1.0), is_whole=scale >= 1)
            with Datastore.open(config_of("plain", SHARDS, [mirror])) as plain:
                yield from single_calls(migration, plain, *((100, 101) if scale >= 1 else (40, 3)))
    with migrated(company, apart.primary, apart.name, TRIPS) as migration:
        seconds, rounds = max(BLOCK_SECONDS * scale, 1.0), max(round(ROUNDS * scale), 2)
        let_stay(company, "measured")
        with clients(migration, "measured") as all_clients, migration.mirrored("elsewhere"):
            yield from under_load(migration, all_clients, seconds, rounds)


def mirror_lag(migration: Migration, seconds: float, *, is_whole: bool) -> Iterator[Comparison]:
    """Puts at a steady rate in dualwrite: the middle one of several runs. All share the cores."""
    runs: list[Run] = []
    calm: list[Run] = []
    least = RUNS if is_whole else 1
    with clients(migration) as all_clients, migration.mirrored():
        _enter(migration, all_clients, Phase.DUALWRITE)
        while len(calm) < least and len(runs) < RUNS_MAX:
            runs.append(_run(migration, all_clients, seconds))
            calm = [run for run in runs if run.stolen <= STOLEN_MAX] if is_whole else runs
    middle = _middle(runs)
    yield _lag_line(f"  the middle of all runs, the host took {middle.stolen:.1%}: p99 (ms)", middle.lags, 99, None)
    lags = _middle(calm_or_all(runs, calm, least)).lags
    reached = len(lags) / seconds / PUTS_PER_SECOND
    yield Comparison(
        "puts in dualwrite, of those wanted",
        len(lags) / seconds,
        PUTS_PER_SECOND,
        reached,
        (reached, reached),
        "/s",
        (">=", 0.95),
    )
    yield _lag_line("mirror lag p50 (ms)", lags, 50, None)
    yield _lag_line("mirror lag p99 (ms)", lags, 99, ("<=", 1.0))


def under_load(migration: Migration, all_clients: Clients, seconds: float, rounds: int) -> Iterator[Comparison]:
    """The same load in every phase, in alternating blocks: what is bound stands between two of off.

    A host may be half as fast for a minute: a block is held against those right before and after it.
    """
    per_second = LOAD * (saturation := _saturation(migration, all_clients, seconds))
    blocks: list[tuple[Arm, Block]] = []
    is_whole = rounds >= ROUNDS

    def run_block(arm: Arm) -> None:
        blocks.append((arm, _block(migration, all_clients, arm, seconds, per_second)))

    run_block(OFF)
    for number in range(ROUNDS_MAX if is_whole else rounds):
        if not number % PEERS_EVERY:
            for arm in PEERS:
                run_block(arm)
            run_block(OFF)
        for arm in BOUND_ARMS if number % 2 else BOUND_ARMS[::-1]:
            run_block(arm)
            run_block(OFF)
        if is_whole and number + 1 >= ROUNDS and min(len(_calm(_flanked(blocks, arm))) for arm in BOUND_ARMS) >= ROUNDS:
            break
    name = f"load, {LOAD:.0%} of off's saturation (calls/s)"
    yield Comparison(name, per_second, saturation, LOAD, (LOAD, LOAD), "/s")
    for name, arm, operation, bounds in _LINES:
        flanked = _flanked(blocks, arm)
        yield from _paired(f"  in all rounds: {name.strip()}", operation, flanked)
        calm = _calm(flanked) if is_whole else flanked
        least = ROUNDS if is_whole and bounds is not None else 1
        yield from _paired(name, operation, calm_or_all(flanked, calm, least), bounds)


def _flanked(blocks: Sequence[tuple[Arm, Block]], wanted: Arm) -> list[Flanked]:
    """Each block of an arm, with the last one of off before it and the first one after it."""
    found: list[Flanked] = []
    for n, (arm, block) in enumerate(blocks):
        if arm is wanted:
            before = next(each for other, each in reversed(blocks[:n]) if other is OFF)
            after = next(each for other, each in blocks[n:] if other is OFF)
            found.append((block, before, after))
    return found


def _paired(
    name: str, operation: str, flanked: Sequence[Flanked], bounds: tuple[float, float] | None = None
) -> Iterator[Comparison]:
    """An arm's blocks against each of the two of off: the median, and the 99th percentile."""
    for percent, limit in zip((50, 99), bounds or (None, None), strict=True):
        ours, before, after = (
            [each.figures[operation, percent] for each in blocks] for blocks in zip(*flanked, strict=True)
        )
        bound = None if limit is None else ("<=", limit)
        yield paired(f"{name}, p{percent}", ours + ours, before + after, bound=bound)


def _calm(flanked: Sequence[Flanked]) -> list[Flanked]:
    """Those in which all three had the machine."""
    return [blocks for blocks in flanked if max(block.stolen for block in blocks) <= STOLEN_MAX]


def single_calls(migration: Migration, plain: Datastore, calls: int, pairs: int) -> Iterator[Comparison]:
    """A call through the facade against the same call of the backend that answers it, and what of it is the fence."""
    duo, random = migration.duo, Random(3)
    migration.phase(Phase.OFF)
    owner = duo.legacy.as_owner(duo.ports.control.authority().epoch)
    yield from _calls(migration, "off: {}, facade / PostgresBackend", migration.store, duo.legacy, calls, pairs)
    yield from _calls(migration, "  {}, the fence / none", owner, duo.legacy, calls, pairs, is_bound=False)
    assert run(drain(duo.ports))  # a hand-over may not take so long
    outcome = run(switch(duo.ports, "bench"))
    assert outcome.is_decided, outcome.reason
    migration.phase(Phase.LIVE, share=0.0)
    plain.create_schema()
    plain.put_cells([Cell(key, "BASE", 1, migration.people.body(random)) for key in migration.row_keys])
    yield from _calls(migration, "live: {}, facade / Datastore", migration.store, plain, calls, pairs)


def _calls(
    migration: Migration,
    name: str,
    ours: CellStore,
    theirs: CellStore,
    calls: int,
    pairs: int,
    *,
    is_bound: bool = True,
) -> Iterator[Comparison]:
    random, versions = Random(11), count(time.time_ns() // 1000)
    bodies = [migration.people.body(random) for _ in range(100)]

    def read(store: CellStore) -> Callable[[], object]:
        return lambda: store.get_cell_latest(random.choice(migration.row_keys), "BASE")

    def put(store: CellStore) -> Callable[[], object]:
        return lambda: store.put_cell(random.choice(migration.row_keys), "BASE", next(versions), random.choice(bodies))

    for operation, call, limit in (("get_cell_latest", read, 1.1), ("put_cell", put, 1.05)):
        yield compare(
            name.format(operation),
            call(ours),
            call(theirs),
            calls=calls,
            pairs=pairs,
            bound=("<=", limit) if is_bound else None,
        )


def _enter(migration: Migration, all_clients: Clients, phase: Phase) -> None:
    migration.phase(phase)
    all_clients.see(phase)
    if phase is not Phase.OFF:
        migration.drained()  # of what was put in phase off


def _run(migration: Migration, all_clients: Clients, seconds: float) -> Run:
    stolen = Stolen()
    all_clients.run(Work(seconds, PUTS_PER_SECOND, put_share=1.0))
    share = stolen.share
    migration.drained()
    return Run([lag for (lag,) in migration.ask(_LAGS.format(seconds=seconds))], share)


def _middle(runs: Sequence[Run]) -> Run:
    return sorted(runs, key=lambda run: _percentile(run.lags, 99))[len(runs) // 2]


def _lag_line(name: str, lags: Sequence[float], percent: int, bound: tuple[str, float] | None) -> Comparison:
    """Against the limit; the spread is that of the median and the longest."""
    lag, middle, longest = (_percentile(lags, each) / LAG_SECONDS for each in (percent, 50, 100))
    return Comparison(name, lag * LAG_SECONDS * 1e3, LAG_SECONDS * 1e3, lag, (middle, longest), "ms", bound)


def _saturation(migration: Migration, all_clients: Clients, seconds: float) -> float:
    """Calls a second in phase off, of clients that never pause."""
    _enter(migration, all_clients, Phase.OFF)
    done = all_clients.run(Work(seconds, math.inf, PUT_SHARE))
    return (len(done.puts) + len(done.reads)) / seconds


def _block(migration: Migration, all_clients: Clients, arm: Arm, seconds: float, per_second: float) -> Block:
    _enter(migration, all_clients, arm.phase)
    with migration.stopped_dead() if arm.is_stopped else nullcontext():
        stolen = Stolen()
        done = all_clients.run(Work(max(seconds * arm.share, 1.0), per_second, PUT_SHARE, arm.reader))
        share = stolen.share
    if arm is not OFF:
        migration.drained()  # who is measured next finds nothing to carry
    assert done.compared or arm is not SHADOW
    figures = {
        (operation, percent): _percentile(sorted(durations), percent) * 1e6
        for operation, durations in (("put", done.puts), ("read", done.reads))
        for percent in (50, 99)
    }
    return Block(figures, share)


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]
