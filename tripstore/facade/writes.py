"""`Writes`: puts at the authority. What this process wrote is remembered until the mirror has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from schemaless_core.answers import PutResult
from schemaless_core.canonical import Json
from schemaless_core.cell import Cell
from schemaless_core.errors import BatchFailed, SchemalessError, StaleEpoch
from schemaless_core.store import CellStore
from tripstore.facade.calls import Calls
from tripstore.facade.lag import Lag
from tripstore.facade.using import Using


class Writes:
    """Of one process."""

    def __init__(self, calls: Calls, lag: Lag) -> None:
        self._calls = calls
        self._lag = lag

    def put(
        self, using: Using, row_key: UUID, column_name: str, ref_key: int, body: Json, expect_latest: Any
    ) -> PutResult:
        def work(store: CellStore) -> PutResult:
            return using(store).put_cell(row_key, column_name, ref_key, body, expect_latest=expect_latest)

        try:
            return self._calls.ask("put_cell", work)
        finally:  # one that failed may have happened
            self._lag.wrote((row_key,))

    def append(self, using: Using, row_key: UUID, column_name: str, body: Json) -> PutResult:
        try:
            return self._calls.ask("append_cell", lambda store: using(store).append_cell(row_key, column_name, body))
        finally:
            self._lag.wrote((row_key,))

    def put_many(self, using: Using, cells: Sequence[Cell]) -> list[PutResult]:
        """Cells that a store refused, because it is not the authority any more, are put again; the others are not."""
        batch = _Batch(cells)
        try:
            return self._calls.ask("put_cells", lambda store: batch.put(using(store)))
        finally:
            self._lag.wrote({cell.row_key for cell in cells})


class _Batch:
    """Cells, and what became of them so far."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = list(cells)
        self._outcomes: dict[int, PutResult | SchemalessError] = {}

    def put(self, store: CellStore) -> list[PutResult]:
        """Put what nobody has answered yet; raises `StaleEpoch` when something of it has to go elsewhere."""
        pending = [n for n in range(len(self._cells)) if n not in self._outcomes]
        refusal: StaleEpoch | None = None
        try:
            outcomes: Sequence[PutResult | SchemalessError] = store.put_cells([self._cells[n] for n in pending])
        except BatchFailed as failed:
            outcomes = failed.results
        for n, outcome in zip(pending, outcomes, strict=True):
            if isinstance(outcome, StaleEpoch):
                refusal = outcome
            else:
                self._outcomes[n] = outcome
        if refusal is not None:
            raise refusal
        results = [self._outcomes[n] for n in range(len(self._cells))]
        stored = [result for result in results if isinstance(result, PutResult)]
        if len(stored) < len(results):
            raise BatchFailed(results)
        return stored
