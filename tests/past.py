"""Chunks of the past as tests see them: rows of all kinds, and what was read of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

from schemaless_core import EncodedCell, canonical_bytes
from tests.legacy import layout
from tests.legacy_backends import Company
from tripstore.backends.postgres.cells.past.chunk_reading import ChunkReading
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.handover.ports import Chunk, Past

#: By row key, column and ref key.
Bodies = dict[tuple[UUID, str, int], bytes]


def bodies(cells: tuple[EncodedCell, ...]) -> Bodies:
    found = {(UUID(bytes=key), name.decode(), ref_key): body for key, name, ref_key, body in cells}
    assert len(found) == len(cells), "a cell was read twice"
    return found


def chunks(reader: PastReader, chunk: Chunk) -> list[Past]:
    found = [reader.read(chunk)]
    while found[-1].after is not None:
        found.append(reader.read(chunk._replace(after=found[-1].after)))
    return found


def lived_in(trips: Company) -> dict[str, UUID]:
    """Rows of all kinds: with children of each column, deleted in part and in whole, come back, put by the facade."""
    store, sql = trips.store, trips.legacy.sql
    made: dict[str, UUID] = {}
    made["whole"] = trips.base(1, 2, 3)
    store.put_cell(made["whole"], "STATUS", 1, {"result": "declined"})
    store.put_cell(made["whole"], "STATUS", 2, {"result": "captured"})
    notes = layout().columns["NOTES"]
    for n, version in ((1, 0), (1, 1), (2, 0), (3, 0)):
        store.put_cell(made["whole"], "NOTES", notes.compose(n, version), {"text": f'tab\t {n}.{version}\\ "ü"\n'})
    sql("DELETE FROM notes WHERE trip_uuid = %s AND n = 2", str(made["whole"]))
    store.put_cell(made["whole"], "FREE", 5, ["free"])
    store.put_cell(made["whole"], "FREE", 9, None)
    made["late"] = trips.base(7, 4)
    made["deleted"] = trips.base(1)
    store.put_cell(made["deleted"], "STATUS", 1, {"result": "captured"})
    sql("DELETE FROM trips WHERE trip_uuid = %s", str(made["deleted"]))
    made["returned"] = trips.base(1)
    sql("DELETE FROM trips WHERE trip_uuid = %s", str(made["returned"]))
    sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'again')", str(made["returned"]))
    made["early"] = uuid4()
    store.put_cell(made["early"], "STATUS", 1, {"result": "before its trip"})
    made["legacy"] = trips.legacy.trip("requested")[1]
    sql(
        "UPDATE trips SET driver_id = 1, fare = '12.50', distance = 0.1::float8 + 0.2, request_at = '2014-08-01 2:00+2'"
        " WHERE trip_uuid = %s",
        str(made["legacy"]),
    )
    return made


def held(trips: Company, keys: Mapping[str, UUID]) -> Bodies:
    """What the store says of all versions of these rows; what was replaced before is history, and no row now."""
    found: Bodies = {}
    for key in keys.values():
        for name in (*layout().columns, "FREE", "_LEGACY_ID"):
            for cell in trips.store.get_history(key, name):
                found[cell.row_key, name, cell.ref_key] = canonical_bytes(cell.body)
    return found


def heard(ask: Callable[..., list[Any]], asked: list[str]) -> Callable[..., list[Any]]:
    """In the place of `ChunkReading.rows_of`: what is asked of Postgres to find rows."""

    def hear(reading: ChunkReading, statement: str, values: tuple[Any, ...]) -> list[Any]:
        asked.append(" ".join([statement, *map(str, values)]))
        return ask(reading, statement, values)

    return hear
