"""The migration up to the gates: every change is mirrored, the past is copied, reads are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from uuid import UUID

from schemaless_core.cell.cell import ColumnKey
from schemaless_core.control.jobs.jobs import Jobs
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.engine.buffers import BufferSize
from tripstore.demo.commands import Commands
from tripstore.demo.company import row_keys
from tripstore.demo.playground import Playground
from tripstore.demo.report import StoryStep
from tripstore.demo.services import services
from tripstore.demo.workers import Workers
from tripstore.engines.validation.verdicts import Outcome
from tripstore.errors import TripstoreError
from tripstore.facade.facade import Facade
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.rehearsal_ledger import rehearsal_counts
from tripstore.migration.mirror.status import MirrorStatus
from tripstore.store import TripStore
from tripstore.wiring import connect

#: So slowly that there is time for a kill.
SLOW_RATE = 800
#: Rows that are copied, by then.
ROWS_BEFORE = 400
READS = 320
#: Where a busy machine compares fewer of them, trips are read again.
ENOUGH, ROUNDS = 4 * 310, 5
#: That the reverse mirror has compared: as many as the gate wants.
CELLS_REHEARSED = 100
DRIVER_INDEX = "driver_partner_index"
WAIT_SECONDS = 300.0


def begin_to_mirror(step: StoryStep, place: Playground, commands: Commands, workers: Workers) -> None:
    """What services write is carried from now on."""
    commands.run("tripstore phase set dualwrite --why 'the demo'")
    workers.start("worker", "run")
    with connect(place.config) as store:
        with services(place.company, seed=3) as tally:
            wait_until("the mirror is served", lambda: _is_served(store))
        wait_until("the mirror has everything", lambda: is_carried(store))
    step.say(f"a worker carries every change; services did {tally.committed:,} transactions meanwhile")
    step.check("no service met an error", tally.failed == 0, tally.first_failure or f"{tally.actions:,} actions")


def copy_the_past(step: StoryStep, place: Playground, commands: Commands, facade: Facade) -> None:
    """A job is killed in the middle and resumed; what it counted is exact all the same."""
    jobs = Jobs(facade.store.control)
    with services(place.company, seed=4) as tally:
        copying = commands.start(f"tripstore backfill start --rate {SLOW_RATE}")
        try:
            wait_until("the backfill has copied something", lambda: _rows(jobs) >= ROWS_BEFORE)
        finally:
            copying.kill()
            copying.wait()
        midway = _rows(jobs)
        begun = time.perf_counter()
        done = commands.run("tripstore backfill resume --rate 0").document
        seconds = time.perf_counter() - begun
    step.say(f"killed with -9 after {midway:,} rows; the others were copied in {seconds:.1f} s")
    step.say(f"while services did {tally.committed:,} transactions")
    step.check("the job is complete", done["job"]["state"] == "done", f"{done['rows']:,} rows")
    step.measure("it was killed in the middle", 0 < midway < done["rows"], f"{midway:,} of {done['rows']:,}")
    step.check("nothing is in quarantine", done["open"] == 0, f"{done['open']} rows")
    step.check("no service met an error", tally.failed == 0, tally.first_failure or f"{tally.actions:,} actions")


def begin_to_compare(step: StoryStep, place: Playground, commands: Commands) -> None:
    """A service reads, and every read is replayed at the other store."""
    commands.run("tripstore phase set shadow --why 'the demo'")
    with services(place.company, seed=5) as tally:
        compare_reads(step, place)
        with connect(place.config) as store:
            ledgers = Ledgers(store.facade.store.control)
            wait_until("the way back is rehearsed", lambda: rehearsal_counts(ledgers).equal >= CELLS_REHEARSED)
    said = commands.run("tripstore shadow status", codes=(0, 1, 3)).document["operations"]
    for operation in said:
        bound = 100 * operation["rate_below"]
        step.say(f"{operation['operation']}: {operation['compared']:,} compared, mismatches below {bound:.2f} %")
    step.say(f"services did {tally.committed:,} transactions meanwhile; what they wrote rehearsed the way back")


def compare_reads(step: StoryStep, place: Playground) -> None:
    """A service reads, and every read is replayed; what it counted is in the ledgers when it ends."""
    with connect(place.config) as store:
        duo = store.facade.duo
        assert duo is not None
        duo.watch.look()
        for _round in range(ROUNDS):
            read(store, row_keys(place.company)[:READS])
            is_done = duo.shadow.drain(WAIT_SECONDS)
            found = {outcome: duo.tally.total(outcome) for outcome in Outcome}
            compared = sum(found.values()) - found[Outcome.NOT_COMPARED]
            if is_done and compared >= ENOUGH:
                break
    detail = f"{compared:,} compared, {found[Outcome.NOT_COMPARED]} not compared"
    step.check("shadow reads find no mismatch", compared > 0 and not found[Outcome.MISMATCH], detail)
    step.measure("shadow reads keep up", is_done and compared >= ENOUGH, detail)


def _is_served(store: TripStore) -> bool:
    seen = Mirror(store.facade).status()
    return seen.reverse is not None and not seen.reverse.unserved


def is_carried(store: TripStore, behind: int = 0) -> bool:
    """Whether the mirror, and the reverse mirror behind it, have everything but so many changes."""
    seen: MirrorStatus = Mirror(store.facade).status()
    if seen.forward is None or seen.reverse is None or seen.reverse.unserved:
        return False
    if seen.direction == "forward" and (seen.forward.changes > behind or seen.forward.parked):
        return False
    return seen.reverse.cells <= behind and not seen.reverse.parked and nothing_waits(store)


def nothing_waits(store: TripStore) -> bool:
    """Whether no cluster keeps a cell for another one."""
    sizes = store.facade.store.replayer().sizes().values()
    return all(isinstance(size, BufferSize) and not size.cells for size in sizes)


def wait_until(what: str, is_true: Callable[[], bool]) -> None:
    """Return when it is true; raise when it takes too long."""
    until = time.monotonic() + WAIT_SECONDS
    while not is_true():
        if time.monotonic() > until:
            raise TripstoreError(f"After {WAIT_SECONDS:.0f} s it is still not so that {what}.")
        time.sleep(0.02)


def _rows(jobs: Jobs) -> int:
    """Rows that the last backfill has counted."""
    newest = jobs.all("backfill")[:1]
    return sum(jobs.progress(job.id).counts.get("rows", 0) for job in newest)


def read(store: TripStore, keys: Iterable[UUID]) -> None:
    """Every kind of read of some trips that a service makes."""
    for key in keys:
        row = store.get_row(key)
        store.get_cell_latest(key, "BASE")
        store.get_cells_latest([ColumnKey(key, name) for name in ("BASE", "STATUS", "NOTES")])
        body = row["BASE"].body if "BASE" in row else None
        driver = body.get("driver_partner_uuid") if isinstance(body, dict) else None
        store.query_index(DRIVER_INDEX, key if driver is None else UUID(str(driver)), limit=10)
