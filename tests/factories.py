"""Valid things; a test states only what matters to it."""

from __future__ import annotations

from uuid import UUID, uuid4

from schemaless_core import Cell, Json


def make_cell(row_key: UUID | None = None, column_name: str = "BASE", ref_key: int = 1, body: Json = "a body") -> Cell:
    return Cell(row_key or uuid4(), column_name, ref_key, body)


def make_trip(number: int) -> Json:
    """A body of the size and shape that trips have."""
    return {
        "driver_partner_uuid": f"{number:032x}",
        "city_uuid": f"{number % 40:032x}",
        "trip_created_at": "2026-11-20T12:00:00.000000Z",
        "fare": 12.5 + number % 100,
        "route": [[55.67 + number / 1e6, 12.56], [55.68, 12.57]],
        "note": "",
    }
