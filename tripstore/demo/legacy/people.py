"""`People`: who there is to ride and drive, and where; read once, since users and cities are never deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tripstore.demo.legacy.connections import Cursor

USERS = "SELECT id FROM users WHERE role = %s AND id <= %s ORDER BY id"
CITIES = "SELECT id, currency FROM cities ORDER BY id"

#: So many users are enough to choose from.
USERS_MAX = 10_000


@dataclass(frozen=True)
class People:
    """Ids of riders and drivers; cities with their currencies."""

    riders: Sequence[int]
    drivers: Sequence[int]
    cities: Mapping[int, str]


def find_people(cursor: Cursor) -> People:
    """The people of a company that has been seeded."""
    riders, drivers = (_ids(cursor, role) for role in ("rider", "driver"))
    cursor.execute(CITIES)
    return People(riders, drivers, dict(cursor.fetchall()))


def _ids(cursor: Cursor, role: str) -> list[int]:
    cursor.execute(USERS, (role, USERS_MAX))
    return [row[0] for row in cursor.fetchall()]
