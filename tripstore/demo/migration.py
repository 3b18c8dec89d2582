"""The migration's step: the company's trips move to Schemaless while services write; authority goes and comes back.

The past is carried chunk by chunk by the explored steps of the hand-over. The gates of the switch are not asked here:
they want a day's comparisons, and `tripstore cutover plan` shows what they say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from uuid import UUID

import msgspec
import psycopg2

from schemaless_core.cell import ColumnKey
from schemaless_core.control.audit import AuditLog
from schemaless_core.standing import ShardStatus
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.cutover.perform import Order, Performed, perform
from tripstore.cutover.plan import Direction
from tripstore.demo.legacy import INDEXES, LAYOUT
from tripstore.demo.legacy.workload import Workload
from tripstore.demo.report import Step
from tripstore.demo.workers import Workers
from tripstore.facade.facade import Duo
from tripstore.facade.flags import Comparing, Flags
from tripstore.handover.authority import Backend
from tripstore.handover.backfill import copy_chunk
from tripstore.handover.steps import run
from tripstore.mirror.mirror import Mirror
from tripstore.mirror.reverse import register_reverse
from tripstore.mirror.status import MirrorStatus
from tripstore.phase import Phase
from tripstore.store import TripStore
from tripstore.wiring import connect
from validation.verdicts import Outcome

SHARDS = 8
WHY = "the demo"
COMMAND = "tripstore phase set dualwrite && tripstore worker run && tripstore cutover switch"
WAIT_SECONDS = 30.0

_KEYS = "SELECT trip_uuid::text FROM public.trips ORDER BY id"
_TOUCH = "UPDATE public.trips SET fare_amount = 1 WHERE trip_uuid = %s"
_VERSION = "SELECT base_version FROM public.trips WHERE trip_uuid = %s"


def move_the_company(step: Step, url: str, folder: Path) -> None:
    """From phase off to live, back, and live once more; both stores must be equal at the end."""
    config = _configuration(url, folder)
    with connect(config) as store, Workers("mirror", config, folder, {}) as workers:
        duo = store.facade.duo
        assert duo is not None
        store.facade.store.create_schema(status=ShardStatus.COPY)
        register_reverse(store.facade.store)
        _mirror(step, store, duo, url, workers)
        _compare(step, store, duo, url)
        with _riding(store, url) as rides:
            _switch(step, store, duo, url)
            _back(step, store, duo, url)
            _to(store, duo, Direction.FORWARD)
        step.check(
            "no call of the services failed meanwhile", not rides.failures, "; ".join(rides.failures[:1]) or "none"
        )
        middle, longest = median(rides.seconds) * 1000, max(rides.seconds) * 1000
        step.say(f"{len(rides.seconds):,} puts through three hand-overs, p50 {middle:.1f} ms, longest {longest:.0f} ms")
        _hold(step, store, duo, url)
        workers.finish()


def _configuration(url: str, folder: Path) -> Path:
    folder.mkdir()
    document = {
        "datastore": "trips",
        "shards": SHARDS,
        "clusters": {name: {"primary": f"sqlite:///{folder / name}"} for name in ("a", "b")},
        "indexes": str(INDEXES),
        "triggers": {"lease_seconds": 1.0},
        "legacy": {"postgres": url, "layout": str(LAYOUT)},
    }
    path = folder / "tripstore.yaml"
    path.write_bytes(msgspec.json.encode(document))  # JSON is YAML
    return path


def _mirror(step: Step, store: TripStore, duo: Duo, url: str, workers: Workers) -> None:
    """The queue is carried from now on; then the past, which may be late, and never brings back what was deleted."""
    store.facade.flags.change(lambda flags: flags.with_phase(Phase.DUALWRITE), "phase.set", WHY)
    workers.start("worker", "run")
    mirror = Mirror(store.facade)
    with Workload(url, seed=3).running() as tally:
        copied = time.perf_counter()
        whole = all(run(copy_chunk(duo.ports, chunk)) for chunk in range(SHARDS))
        seconds = time.perf_counter() - copied
    workers.wait_until("the mirror has everything", lambda: _is_carried(mirror.status()))
    step.say(f"the past was copied in {seconds:.1f} s, while services did {tally.committed:,} transactions")
    step.check("all of it arrived", whole and not mirror.status().problems, f"{SHARDS} chunks")
    step.check("no service met an error", tally.failed == 0, tally.first_failure or f"{tally.actions:,} actions")


def _compare(step: Step, store: TripStore, duo: Duo, url: str) -> None:
    """Every read is replayed at the other store."""
    store.facade.flags.change(_comparing_all, "phase.set", WHY)
    duo.watch.look()
    for key in _keys(url):
        store.get_row(key)
        store.get_cell_latest(key, "BASE")
        store.get_cells_latest([ColumnKey(key, name) for name in ("BASE", "STATUS", "NOTES")])
    is_done = duo.shadow.drain(WAIT_SECONDS)
    found = {outcome: duo.tally.total(outcome) for outcome in Outcome}
    compared = sum(found.values()) - found[Outcome.NOT_COMPARED]
    detail = f"{compared:,} compared, {found[Outcome.NOT_COMPARED]} not compared"
    step.check("shadow reads find no mismatch", is_done and compared > 0 and not found[Outcome.MISMATCH], detail)


def _comparing_all(flags: Flags) -> Flags:
    return replace(flags.with_phase(Phase.SHADOW), comparing=Comparing(share=1.0, per_second=10_000.0))


def _switch(step: Step, store: TripStore, duo: Duo, url: str) -> None:
    done = _to(store, duo, Direction.FORWARD)
    step.say(f"Schemaless is the authority; writers waited for {_milliseconds(done)}")
    step.check("the switch is decided", done.is_decided, done.reason or f"epoch {done.authority.epoch}")
    key = _keys(url)[0]
    with connected(url, "demo") as connection:
        try:
            rows(connection, _TOUCH, (str(key),))
            refused = "it was written"
        except psycopg2.Error as error:
            refused = str(error.diag.message_primary)
    step.check("direct SQL is refused", "shut off" in refused, refused)
    latest = store.get_cell_latest(key, "BASE")
    assert latest is not None
    store.put_cell(key, "BASE", latest.ref_key + 1, {**dict(latest.body or {}), "fare": "77.00"})  # type: ignore[arg-type]  # a body of BASE is a mapping
    arrived = _wait(lambda: _version(url, key) == latest.ref_key + 1)
    step.check("a put at Schemaless arrives in the tables", arrived, f"version {_version(url, key)}")


def _back(step: Step, store: TripStore, duo: Duo, url: str) -> None:
    done = _to(store, duo, Direction.BACK)
    step.say(f"Postgres is the authority again; writers waited for {_milliseconds(done)}")
    step.check("the way back is decided", done.is_decided, done.reason or f"epoch {done.authority.epoch}")
    tally = Workload(url, seed=4).run(actions=30)
    step.check("services write again", tally.failed == 0, tally.first_failure or f"{tally.committed} transactions")


def _to(store: TripStore, duo: Duo, direction: Direction) -> Performed:
    """A hand-over begins when nothing is on its way, and may be undone when a writer stays inside."""
    facade = store.facade
    mirror = Mirror(facade)
    for _attempt in range(3):
        _wait(lambda: _is_carried(mirror.status()))
        done = perform(
            duo.ports,
            Order(direction, WHY),
            flags=facade.flags,
            audit=AuditLog(facade.store.control),
            max_pause_seconds=facade.config.mirror.max_pause_seconds,
        )
        if done.is_decided:
            break
    duo.watch.look()
    return done


class _Rides:
    """What a service saw that puts through the facade all the time."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failures: list[str] = []


@contextmanager
def _riding(store: TripStore, url: str) -> Iterator[_Rides]:
    """A service appends notes to a trip as long as the block lasts."""
    rides, ended, key = _Rides(), threading.Event(), _keys(url)[1]

    def ride() -> None:
        n = 0
        while not ended.is_set():
            n += 1
            begun = time.perf_counter()
            try:
                store.append_cell(key, "RIDES", {"event": n})
            except Exception as error:  # noqa: BLE001  # counted and shown: whatever a caller would see
                rides.failures.append(f"{type(error).__name__}: {error}")
            rides.seconds.append(time.perf_counter() - begun)
            ended.wait(0.005)

    thread = threading.Thread(target=ride, name="rides")
    thread.start()
    try:
        yield rides
    finally:
        ended.set()
        thread.join()


def _hold(step: Step, store: TripStore, duo: Duo, url: str) -> None:
    """Every latest cell of both stores, one against the other."""
    mirror = Mirror(store.facade)
    _wait(lambda: _is_carried(mirror.status()))
    equal, total = 0, 0
    for key in _keys(url):
        here, there = duo.legacy_mirror.get_row(key), store.facade.store.get_row(key)
        total += len(here | there)
        equal += sum(here.get(name) == there.get(name) for name in here | there)
    step.check("both stores are equal", equal == total, f"{equal:,} of {total:,} columns")


def _is_carried(seen: MirrorStatus) -> bool:
    if seen.forward is None or seen.reverse is None or seen.reverse.unserved:
        return False
    if seen.authority.backend is Backend.LEGACY and (seen.forward.changes or seen.forward.parked):
        return False
    return not seen.reverse.cells and not seen.reverse.parked


def _wait(is_true: Callable[[], bool]) -> bool:
    """Until it is true, or has taken too long."""
    until = time.monotonic() + WAIT_SECONDS
    while not is_true():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _keys(url: str) -> list[UUID]:
    with connected(url, "demo") as connection:
        return [UUID(key) for (key,) in rows(connection, _KEYS)]


def _version(url: str, key: UUID) -> int:
    with connected(url, "demo") as connection:
        return int(rows(connection, _VERSION, (str(key),))[0][0])


def _milliseconds(done: Performed) -> str:
    return "no time" if done.pause_seconds is None else f"{done.pause_seconds * 1000:.0f} ms"
