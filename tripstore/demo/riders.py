"""The trigger's step: every rider is billed once, although one of the two workers is killed in the middle."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from schemaless_core.cell.answers import PutStatus
from schemaless_core.cell.cell import Cell, ColumnKey
from schemaless_core.datastore import Datastore
from tripstore.demo.billing import bill_rider, journal_of
from tripstore.demo.company import row_keys
from tripstore.demo.journal import Acknowledged, acknowledged, read_journal
from tripstore.demo.migration import nothing_waits
from tripstore.demo.report import StoryStep
from tripstore.demo.workers import Workers
from tripstore.store import TripStore

RIDERS = 200
#: Bills of the worker that is killed, by then.
BILLS_BEFORE = 30
COMMAND = ("triggers", "run", "tripstore.demo.billing")


def bill_riders(step: StoryStep, workers: Workers, store: TripStore, company: str, books: Path) -> list[Acknowledged]:
    """Complete trips, kill a worker while they are billed; return what was promised, the bills included."""
    datastore = store.facade.store
    datastore.triggers.register(bill_rider)
    pids = [workers.start(*COMMAND) for _ in range(2)]
    workers.wait_until("both workers serve", lambda: _owners(datastore) == 2)
    completed = _completed(store, row_keys(company)[:RIDERS])
    promises = _put(store, completed)
    workers.wait_until("the first has billed some", lambda: len(_bills(books, pids[:1])) >= BILLS_BEFORE)
    workers.kill(0)
    killed_at = time.monotonic()
    midway = len({bill.key for bill in _bills(books, pids)})
    wanted = {cell.row_key for cell in completed}
    workers.wait_until("every rider is billed", lambda: wanted <= {bill.row_key for bill in _bills(books, pids)})
    billed_at = time.monotonic()
    workers.wait_until("no cell waits in a buffer", lambda: nothing_waits(store))
    workers.wait_until("every offset is at its head", lambda: _lag(datastore) == 0)
    workers.finish()
    datastore.triggers.remove(bill_rider.name)
    bills = _bills(books, pids)
    repeated = sum(bill.status is PutStatus.EXISTS for bill in bills)
    step.say(f"{midway} of {RIDERS} riders were billed when the first of two workers was killed")
    step.say(f"the second one had billed all the others {billed_at - killed_at:.1f} s later, the first one's too")
    step.measure("it was in the middle", 0 < midway < RIDERS, f"{RIDERS - midway} riders were left")
    once = sum(len(store.get_history(cell.row_key, "BILL")) == 1 for cell in completed)
    step.check("every rider is billed once", once == RIDERS, f"{once} of {RIDERS} trips have one bill")
    charges = len(list(books.glob("charge-*")))
    detail = f"{charges} charges by the key of a trip; {repeated} calls came twice"
    step.check("every card is charged once", charges == len({bill.key for bill in bills}), detail)
    return promises + bills


def _completed(store: TripStore, row_keys: Sequence[UUID]) -> list[Cell]:
    """The next version of each trip: it is over, and has its fare."""
    cells = []
    for latest in store.get_cells_latest([ColumnKey(key, "BASE") for key in row_keys]):
        assert latest is not None
        assert isinstance(latest.body, dict)
        body = {**latest.body, "status": "completed", "fare": "21.00"}
        cells.append(Cell(latest.row_key, "BASE", latest.ref_key + 1, body))
    return cells


def _put(store: TripStore, cells: Sequence[Cell]) -> list[Acknowledged]:
    results = store.put_cells(cells)
    at = time.monotonic()
    return [acknowledged(cell, result, at, None) for cell, result in zip(cells, results, strict=True)]


def _owners(datastore: Datastore) -> int:
    """How many workers serve; none as long as a shard has no worker."""
    owners = {shard.owner for shard in datastore.triggers.status(bill_rider.name)[0].shards}
    return 0 if None in owners else len(owners)


def _lag(datastore: Datastore) -> int:
    return datastore.triggers.status(bill_rider.name)[0].lag_cells


def _bills(books: Path, pids: Sequence[int]) -> list[Acknowledged]:
    return [bill for pid in pids for bill in read_journal(journal_of(books, pid))]
