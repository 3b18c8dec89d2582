"""A backfill with a limit on the load of Postgres: what services feel of it, and how much is copied all the same.

Services work at a steady pace. In turn there is no backfill, one with the limit, and one without; each copies rows that
were not copied before. The limit is what the services need by themselves, and a share of a session. What has a machine
of its own in a company stays apart from services and Postgres: mirror, relay and the worker that copies; its session
does not. Nor is the mirror's disk the company's: who waits for the one would wait for the other.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

import click
import psycopg2

from benchmarks.bulk import company
from benchmarks.cells import PATIENT, SPAWN, Config
from benchmarks.cores import let_stay, stay
from benchmarks.stolen import STOLEN_MAX, Stolen, calm_or_all
from benchmarks.timing import Comparison, paired
from schemaless_core import ShardStatus
from schemaless_core.control.jobs.records import Job
from tripstore.engines.backfill.runner import Ending
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres import PostgresServer
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.migration.backfill.limits import at_work
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.phase import Phase
from tripstore.wiring import connect

TRIPS = 1_200_000
SHARDS = 64
SERVICES = 2
PER_SECOND = 50.0  #: Of each service.
WINDOW_SECONDS = 5.0
#: Each has a window of every kind; many short ones, since a machine has better and worse minutes.
ROUNDS = 24
#: With those that were disturbed; with fewer undisturbed ones than the least, all are judged.
ROUNDS_MAX, ROUNDS_LEAST = 45, 20
#: A copier looks at the load before its first chunk, and learns how large chunks are; then a window begins.
LEAD_SECONDS = 1.5
#: Of a window; what is copied without a limit is soon all there is.
FREE_SHARE = 0.4
#: Of a session, beside what services need.
SHARE = 0.11

_READ = """\
SELECT t.*, (SELECT count(*) FROM public.trip_notes AS n WHERE n.trip_id = t.id) FROM public.trips AS t
WHERE t.id = %s"""
_WRITE = "UPDATE public.trips SET status = %s WHERE id = %s"

Kind = Literal["free", "limited", "none"]
KINDS: tuple[Kind, ...] = ("free", "limited", "none")
Bound = tuple[str, float] | None


class NothingLeft(Exception):
    """A job is done before the benchmark is."""


class Window(NamedTuple):
    """What was measured while it was so."""

    seconds: list[float]
    rows_per_second: float
    #: By the host, of all cores.
    stolen: float


#: A window of each kind.
Round = dict[Kind, Window]


def measure(postgres: PostgresServer, mirror: BinlogServer, *, scale: float) -> Iterator[Comparison]:
    """The two figures; at scale 1 in windows of five seconds."""
    is_whole = scale >= 0.2
    trips = max(round(TRIPS * scale), 200_000)  # or a job is done too soon
    window = max(WINDOW_SECONDS * scale, 2.0)
    config = _company(postgres, mirror, trips)
    let_stay(postgres, "measured")
    let_stay(mirror, "elsewhere")
    with ExitStack() as exits:
        services = exits.enter_context(_crew(_serve, config, [trips] * SERVICES))
        exits.enter_context(_crew(_relay, config, [None]))
        (copier,) = exits.enter_context(_crew(_copy, config, [None]))
        _together(services, None, "none", window)  # warm
        need = _need(config, services, window)
        limit = need + SHARE
        click.echo(f"  services need {need:.2f} sessions; the limit is {limit:.2f}")
        copier.send(("begin", limit))
        copier.recv()
        found = _rounds(services, copier, window, is_whole=is_whole)
    if len(found) < (ROUNDS_LEAST if is_whole else 1):
        raise click.ClickException(f"{len(found)} rounds say nothing: nothing is left to copy. Plant more trips.")
    calm = _calm(found) if is_whole else found
    judged = calm_or_all(found, calm, ROUNDS_LEAST if is_whole else 1)
    yield from _lines(judged, (("<=", 1.2), (">=", 0.3)))
    yield from _lines(found, (None, None), "  in all rounds: ")


def _lines(found: Sequence[Round], bounds: tuple[Bound, Bound], before: str = "") -> Iterator[Comparison]:
    p99 = {kind: [_p99(each[kind].seconds) * 1e6 for each in found] for kind in KINDS}
    at_once = {kind: _p99([each for round_ in found for each in round_[kind].seconds]) * 1e6 for kind in KINDS}
    limited, free = ([each[kind].rows_per_second for each in found] for kind in ("limited", "free"))
    name = f"{before}p99 of services beside a limited backfill"
    yield paired(name, p99["limited"], p99["none"], bound=bounds[0])
    yield paired(f"  {before}of the calls of all windows at once", [at_once["limited"]], [at_once["none"]])
    yield paired(f"  {before}beside one without a limit", p99["free"], p99["none"])
    yield paired(f"{before}rows copied with the limit, and without", limited, free, unit="/s", bound=bounds[1])


def _rounds(services: Sequence[Pipe], copier: Pipe, window: float, *, is_whole: bool) -> list[Round]:
    """Until there are as many calm ones as are wanted, or nothing is left to copy."""
    found: list[Round] = []
    for number in range(ROUNDS_MAX if is_whole else 3):
        kinds = KINDS if number % 2 else KINDS[::-1]
        try:
            found.append({kind: _together(services, copier, kind, window) for kind in kinds})
        except NothingLeft:
            click.echo("  nothing is left to copy")
            break
        if len(_calm(found)) == ROUNDS:
            break
    return found


def _calm(found: Sequence[Round]) -> list[Round]:
    """Those in which the host left us the cores."""
    return [each for each in found if max(window.stolen for window in each.values()) <= STOLEN_MAX]


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def _together(services: Sequence[Pipe], copier: Pipe | None, kind: Kind, seconds: float) -> Window:
    if kind == "none":
        copier = None
    seconds = max(seconds * FREE_SHARE, 2.0) if kind == "free" else seconds
    for each in (*services, copier):
        if each is not None:
            each.send((kind, seconds))
    time.sleep(LEAD_SECONDS)  # all count from the same moment
    stolen = Stolen()
    found = [each for service in services for each in service.recv()]
    stolen_share = stolen.share
    copied = 0.0 if copier is None else copier.recv()
    if copied is None:
        raise NothingLeft
    return Window(found, copied, stolen_share)


def _need(config: Config, services: Sequence[Pipe], seconds: float) -> float:
    """Sessions at work on average while only services are."""
    with connect(config) as store:
        assert store.facade.duo is not None
        database = store.facade.duo.legacy.database
        for service in services:
            service.send(("none", seconds))
        time.sleep(LEAD_SECONDS)  # as in every window
        until, seen = time.monotonic() + seconds, list[float]()
        while time.monotonic() < until:
            seen.append(at_work(database))
            time.sleep(0.01)  # between two samples
        for service in services:
            service.recv()
    return statistics.mean(seen)


# ------------------------------------------------------------------------------------------------------ the processes

Pipe = Connection


@contextmanager
def _crew(work: Callable[[Config, Any, Any], None], config: Config, each: Sequence[Any]) -> Iterator[list[Any]]:
    with ExitStack() as exits:
        members = []
        for argument in each:
            here, there = SPAWN.Pipe()
            process = SPAWN.Process(target=work, args=(config, argument, there), daemon=True)
            process.start()
            exits.callback(process.kill)
            assert here.recv() == "ready"
            members.append(here)
        yield members


def _serve(config: Config, trips: int, pipe: Any) -> None:
    """A service: reads and writes of trips, at its pace."""
    stay("measured")
    connection = psycopg2.connect(config["legacy"]["postgres"])
    connection.autocommit = True
    choose = random.Random()
    pipe.send("ready")
    with connection.cursor() as cursor:
        while True:
            _kind, seconds = pipe.recv()
            taken: list[float] = []
            due = time.perf_counter()
            counts_from, until = due + LEAD_SECONDS, due + LEAD_SECONDS + seconds
            while due < until:
                time.sleep(max(0.0, due - time.perf_counter()))
                begun = time.perf_counter()
                row = choose.randrange(1, trips + 1)
                cursor.execute(*((_READ, (row,)) if choose.random() < 0.7 else (_WRITE, ("completed", row))))
                if begun >= counts_from:
                    taken.append(time.perf_counter() - begun)
                due = max(due + choose.expovariate(PER_SECOND), time.perf_counter() - 1.0)
            pipe.send(taken)


def _relay(config: Config, _nothing: None, pipe: Any) -> None:
    stay("elsewhere")
    with connect(config) as store:
        store.facade.begin()
        pipe.send("ready")
        Mirror(store.facade).relay().run()


def _copy(config: Config, _nothing: None, pipe: Any) -> None:
    """Copies for so long as it is told, with the limit or without; answers with rows per second, None: it is done."""
    stay("elsewhere")
    pipe.send("ready")
    with connect(config) as store:
        backfill = Backfill(store.facade)
        _begin, limit = pipe.recv()
        jobs = {
            "limited": backfill.begin(backfill.plan(Wanted(where="t.id % 2 = 0", postgres_load_max=limit))),
            "free": backfill.begin(backfill.plan(Wanted(where="t.id % 2 = 1"))),
        }
        pipe.send("begun")
        while True:
            kind, seconds = pipe.recv()
            job = jobs[kind]
            runner = backfill.runner(job, f"{kind}-{time.time_ns()}")
            with ThreadPoolExecutor(1) as beside:
                ending = beside.submit(runner.run)
                time.sleep(LEAD_SECONDS)  # as in every window
                before, begun = _copied(backfill, job), time.perf_counter()
                time.sleep(seconds)  # the window
                rate = (_copied(backfill, job) - before) / (time.perf_counter() - begun)
                runner.stop()
            pipe.send(rate if ending.result() is Ending.STOPPED else None)


def _copied(backfill: Backfill, job: Job) -> float:
    return backfill.jobs.progress(job.id).counts.get("rows", 0)


# ------------------------------------------------------------------------------------------------------- the company


def _company(postgres: PostgresServer, mirror: BinlogServer, trips: int) -> Config:
    url, layout = company(postgres, "throttled", trips)
    config: Config = {
        "datastore": "throttled",
        "shards": SHARDS,
        "clusters": {"a": {"primary": mirror.url}},
        "deadlines": PATIENT,
        "legacy": {"postgres": url, "layout": layout.to_document()},
    }
    with connect(config) as store:
        store.facade.store.create_schema(status=ShardStatus.COPY)
        register_reverse(store.facade.store)
        store.facade.flags.change(lambda flags: flags.with_phase(Phase.DUALWRITE), "benchmark")
    return config
