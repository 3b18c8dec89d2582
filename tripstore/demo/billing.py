"""The trigger of the demo: bills the rider of each trip, once. Run by `tripstore triggers run tripstore.demo.billing`.

It may be called twice for one trip, so whatever it does is indifferent to that: the provider of credit cards is given
the trip as a key, and the BILL cell is the same each time. What it was promised it writes into a journal.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from uuid import UUID

from schemaless_core.cell.cell import Cell
from schemaless_core.store import CellStore
from schemaless_core.triggers import trigger
from tripstore.demo.journal import Journal, acknowledged

#: The folder of the provider's books and of our journals.
BOOKS = "TRIPSTORE_DEMO_BOOKS"
#: Providers take their time.
CHARGE_SECONDS = 0.01


@trigger(column="BASE", start="now")
def bill_rider(row_key: UUID, store: CellStore) -> None:
    """Bill the rider of a trip that has ended."""
    trip = store.get_cell_latest(row_key, "BASE")
    if trip is None or not isinstance(trip.body, dict) or trip.body["status"] != "completed":
        return  # it goes on, or was deleted meanwhile
    charge = charge_once(row_key)
    bill = Cell(row_key, "BILL", 1, {"rider": trip.body["rider_uuid"], "amount": trip.body["fare"], "charge": charge})
    result = store.put_cell(*bill.key, bill.body)
    _journal().add([acknowledged(bill, result, time.monotonic(), None)])


def charge_once(trip: UUID) -> str:
    """Charge a card, under the trip as its key. A caller that asks again gets the charge that was made."""
    time.sleep(CHARGE_SECONDS)
    charge = f"charge-{trip}"
    with suppress(FileExistsError):
        (_books() / charge).touch(exist_ok=False)
    return charge


def journal_of(books: Path, pid: int) -> Path:
    return books / f"bills-{pid}.jsonl"


@cache
def _journal() -> Journal:
    return Journal(journal_of(_books(), os.getpid()))


def _books() -> Path:
    return Path(os.environ[BOOKS])
