"""The trigger's step: every rider is billed once, although one of the two workers is killed in the middle."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from schemaless_core.answers import PutStatus
from schemaless_core.cell import Cell
from schemaless_core.datastore import Datastore
from tripstore.demo.billing import bill_rider, journal_of
from tripstore.demo.journal import Acknowledged, acknowledged, read_journal
from tripstore.demo.report import Step
from tripstore.demo.trips import trips
from tripstore.demo.workers import Workers

RIDERS = 300
#: Bills of the worker that is killed, by then.
BILLS_BEFORE = 40
COMMAND = ("triggers", "run", "tripstore.demo.billing")


def bill_riders(step: Step, workers: Workers, store: Datastore, books: Path) -> list[Acknowledged]:
    """Put trips, kill a worker while they are billed; return what was promised, the bills included."""
    store.triggers.register(bill_rider)
    pids = [workers.start(*COMMAND) for _ in range(2)]
    workers.wait_until("both workers serve", lambda: _owners(store) == 2)
    ended = [trip.requested[0] for trip in islice(trips("riders"), RIDERS)]
    promises = _put(store, ended)
    workers.wait_until("the first has billed some", lambda: len(_bills(books, pids[:1])) >= BILLS_BEFORE)
    workers.kill(0)
    killed_at = time.monotonic()
    midway = len({bill.key for bill in _bills(books, pids)})
    workers.wait_until("every rider is billed", lambda: len({bill.key for bill in _bills(books, pids)}) == RIDERS)
    billed_at = time.monotonic()
    workers.wait_until("every offset is at its head", lambda: store.triggers.status(bill_rider.name)[0].lag_cells == 0)
    workers.finish()
    store.triggers.remove(bill_rider.name)
    bills = _bills(books, pids)
    repeated = sum(bill.status is PutStatus.EXISTS for bill in bills)
    step.say(f"{midway} of {RIDERS} riders were billed when the first of two workers was killed")
    step.say(f"the second one had billed all the others {billed_at - killed_at:.1f} s later, the first one's too")
    step.check("it was in the middle", 0 < midway < RIDERS, f"{RIDERS - midway} riders were left")
    _check_bills(step, store, ended)
    charges = len(list(books.glob("charge-*")))
    detail = f"{charges} charges by the key of a trip; {repeated} calls came twice"
    step.check("every card is charged once", charges == RIDERS, detail)
    return promises + bills


def _put(store: Datastore, cells: Sequence[Cell]) -> list[Acknowledged]:
    results = store.put_cells(cells)
    at = time.monotonic()
    return [acknowledged(cell, result, at, None) for cell, result in zip(cells, results, strict=True)]


def _owners(store: Datastore) -> int:
    """How many workers serve; none as long as a shard is served by nobody."""
    owners = {shard.owner for shard in store.triggers.status(bill_rider.name)[0].shards}
    return 0 if None in owners else len(owners)


def _bills(books: Path, pids: Sequence[int]) -> list[Acknowledged]:
    return [bill for pid in pids for bill in read_journal(journal_of(books, pid))]


def _check_bills(step: Step, store: Datastore, ended: Sequence[Cell]) -> None:
    bills = [store.get_history(cell.row_key, "BILL") for cell in ended]
    once = sum(len(of_trip) == 1 for of_trip in bills)
    step.check("every rider is billed once", once == len(ended), f"{once} of {len(ended)} trips have one bill")
