"""Rides of the demo: the same seed and number always make the same cells, so a repeated write is a true repeat.

They are in columns that the company's tables never had, so either store takes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from itertools import count
from random import Random
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell

CITIES = ("San Francisco", "München", "São Paulo", "Kraków", "東京")


class Ride(NamedTuple):
    """One ride: its first cells, written together, and its completion, written later."""

    requested: tuple[Cell, Cell]
    completed: Cell


def make_trip(seed: str, number: int) -> Ride:
    digest = md5(f"{seed}/{number}".encode(), usedforsecurity=False).digest()
    random = Random(digest)  # a seeded generator is the point here
    row_key = UUID(bytes=digest, version=4)
    offer: Json = {
        "rider": str(UUID(int=random.getrandbits(128), version=4)),
        "city": random.choice(CITIES),
        "price": round(random.uniform(4, 90), 2),
        "seats": random.randint(1, 4),
    }
    requested = Cell(row_key, "OFFER", 1, offer), Cell(row_key, "RIDE", 1, {"ride": "requested"})
    return Ride(requested, Cell(row_key, "RIDE", 2, {"ride": "completed", "minutes": random.randint(3, 80)}))


def trips(seed: str) -> Iterator[Ride]:
    """All trips of a seed; there is no end."""
    return (make_trip(seed, number) for number in count())
