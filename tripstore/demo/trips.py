"""Trips of the demo: the same seed and number always make the same cells, so a repeated write is a true repeat."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import md5
from itertools import count
from random import Random
from typing import NamedTuple
from uuid import UUID

from schemaless_core.canonical import Json
from schemaless_core.cell import Cell

DRIVERS = tuple(UUID(int=Random(number).getrandbits(128), version=4) for number in range(40))
FIRST_DAY = datetime(2026, 3, 1, tzinfo=UTC)
SECONDS_OF_A_MONTH = 31 * 86_400
CITIES = ("San Francisco", "München", "São Paulo", "Kraków", "東京")


class Trip(NamedTuple):
    """One trip: its first cells, written together, and its completion, written later."""

    requested: tuple[Cell, Cell]
    completed: Cell


def make_trip(seed: str, number: int) -> Trip:
    digest = md5(f"{seed}/{number}".encode(), usedforsecurity=False).digest()
    random = Random(digest)  # a seeded generator is the point here
    row_key = UUID(bytes=digest, version=4)
    base: Json = {
        "rider": str(UUID(int=random.getrandbits(128), version=4)),
        "city": random.choice(CITIES),
        "fare": round(random.uniform(4, 90), 2),
        "seats": random.randint(1, 4),
        "driver_partner_uuid": str(random.choice(DRIVERS)),
        "trip_created_at": (FIRST_DAY + timedelta(seconds=random.randrange(SECONDS_OF_A_MONTH))).isoformat(),
    }
    requested = Cell(row_key, "BASE", 1, base), Cell(row_key, "STATUS", 1, {"status": "requested"})
    return Trip(requested, Cell(row_key, "STATUS", 2, {"status": "completed", "minutes": random.randint(3, 80)}))


def trips(seed: str) -> Iterator[Trip]:
    """All trips of a seed; there is no end."""
    return (make_trip(seed, number) for number in count())
