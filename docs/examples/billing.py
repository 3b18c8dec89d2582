"""Bills riders: the example of the articles on Schemaless. Run it with `tripstore triggers run billing`.

A BASE cell is put when a trip has ended. STATUS says whether its rider was billed. The function may be called twice for
one cell, so it asks before it charges, and it charges under a key that makes the second charge the first.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

from schemaless_core import CellStore
from schemaless_core.triggers import trigger

#: Stands for a provider of credit cards: what it booked, a line each.
BOOKS = Path(os.environ.get("BOOKS", "books.jsonl"))


@trigger(column="BASE", start="now")
def bill_rider(row_key: UUID, store: CellStore) -> None:
    """Bill the rider of a trip that has ended, once."""
    status = store.get_cell_latest(row_key, "STATUS")
    if status is not None and _fields(status.body).get("is_completed"):
        return  # billed already; this is a second call

    # The latest, not the cell that called us: calls for older versions find the trip as it is now.
    trip = store.get_cell_latest(row_key, "BASE")
    if trip is None or trip.body is None:
        return  # the trip was deleted meanwhile

    fields = _fields(trip.body)
    charge = charge_once(row_key, rider=str(fields["rider_uuid"]), amount=str(fields["fare"]))
    store.put_cell(row_key, "STATUS", 1, {"is_completed": True, "charge": charge})


def charge_once(trip: UUID, *, rider: str, amount: str) -> str:
    """Charge a card. The trip is the idempotency key: a second request gets the charge that was made."""
    charge = f"charge-{trip}"
    if charge not in _booked():
        with BOOKS.open("a") as books:
            books.write(json.dumps({"charge": charge, "rider": rider, "amount": amount}) + "\n")
    return charge


def _booked() -> set[str]:
    lines = BOOKS.read_text().splitlines() if BOOKS.exists() else []
    return {json.loads(line)["charge"] for line in lines}


def _fields(body: object) -> dict[str, Any]:
    return body if isinstance(body, dict) else {}
