"""A writing process of the demo: a service that puts rides through the facade, and writes down what was acknowledged.

A put that its shard cannot take now is put aside and repeated later; the others are not held up by it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from schemaless_core.cell.answers import PutResult
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.put_errors import BatchFailed
from schemaless_core.errors import SchemalessError, Unavailable
from tripstore.demo.journal import Journal, acknowledged
from tripstore.demo.trips import Ride, trips
from tripstore.store import TripStore
from tripstore.wiring import connect

TRIPS_PER_BATCH = 10
CELLS_PER_REPEAT = 200
PAUSE_SECONDS = 0.05
#: Between two batches: so much rest leaves a machine time for the demo's other processes.
REST_SECONDS = 0.05
GIVE_UP_SECONDS = 120.0


class Assignment(msgspec.Struct, frozen=True):
    """What one writer has to do."""

    config: str
    journal: str
    seed: str
    stop: str
    """The writer ends when this file appears …"""
    trips: int | None = None
    """… or after so many trips."""


class Writer:
    """Puts trips into a store until it is told to stop."""

    def __init__(self, store: TripStore, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self._put_aside: list[Cell] = []

    def run(self, source: Iterator[Ride], stop: Path) -> None:
        while not stop.exists() and (batch := list(islice(source, TRIPS_PER_BATCH))):
            self._put_many([cell for trip in batch for cell in trip.requested])
            for trip in batch:
                self._put_one(trip.completed)
            time.sleep(REST_SECONDS)  # for the other processes
        self._repeat_until_done()

    def _put_one(self, cell: Cell) -> None:
        started = time.monotonic()
        try:
            result = self._store.put_cell(cell.row_key, cell.column_name, cell.ref_key, cell.body)
        except Unavailable:
            self._put_aside.append(cell)
            return
        ended = time.monotonic()
        self._journal.add([acknowledged(cell, result, ended, ended - started)])

    def _put_many(self, cells: Sequence[Cell]) -> None:
        results = self._results(cells)
        ended = time.monotonic()
        stored = []
        for cell, result in zip(cells, results, strict=True):
            if isinstance(result, PutResult):
                stored.append(acknowledged(cell, result, ended, None))
            elif isinstance(result, Unavailable):
                self._put_aside.append(cell)
            else:
                raise result
        self._journal.add(stored)

    def _results(self, cells: Sequence[Cell]) -> Sequence[PutResult | SchemalessError]:
        try:
            return self._store.put_cells(cells)
        except BatchFailed as failed:
            return failed.results

    def _repeat_until_done(self) -> None:
        """Whether a cell that was put aside had been stored or not, putting it again is right."""
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        while self._put_aside:
            if time.monotonic() > give_up_at:
                sys.exit(f"{len(self._put_aside)} cells could not be stored within {GIVE_UP_SECONDS:.0f} s")
            waiting, self._put_aside = self._put_aside, []
            for first in range(0, len(waiting), CELLS_PER_REPEAT):
                self._put_many(waiting[first : first + CELLS_PER_REPEAT])
            time.sleep(PAUSE_SECONDS if self._put_aside else 0)


def work(assignment: Assignment) -> None:
    """Do what one writer has to do."""
    source = islice(trips(assignment.seed), assignment.trips)
    with connect(assignment.config) as store, Journal(Path(assignment.journal)) as journal:
        Writer(store, journal).run(source, Path(assignment.stop))


if __name__ == "__main__":
    work(msgspec.json.decode(sys.argv[1], type=Assignment))
