"""`Writes`: puts at the authority. What this process wrote is remembered until the mirror has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from schemaless_core.answers import PutResult
from schemaless_core.canonical import Json
from schemaless_core.cell import Cell, checked_bytes
from schemaless_core.datastore import Datastore
from schemaless_core.errors import BatchFailed, Conflict, Invalid, SchemalessError, StaleEpoch
from schemaless_core.store import CellStore
from tripstore.facade.calls import Calls
from tripstore.facade.lag import Lag
from tripstore.facade.layout_rules import LayoutRules, put_all
from tripstore.facade.using import Using


class Writes:
    """Of one process. `rules` are kept while Schemaless is the authority; None: there are none."""

    def __init__(
        self,
        calls: Calls,
        lag: Lag,
        max_body_bytes: int,
        rules: LayoutRules | None = None,
    ) -> None:
        self._calls = calls
        self._lag = lag
        self._max_body_bytes = max_body_bytes
        self._rules = rules

    def put(
        self, using: Using, row_key: UUID, column_name: str, ref_key: int, body: Json, expect_latest: Any
    ) -> PutResult:
        def work(store: CellStore) -> PutResult:
            mine, rules = using(store), self._rules_of(store)
            if rules is not None:
                cell = Cell(row_key, column_name, ref_key, body)
                checked_bytes(cell, self._max_body_bytes)
                rules.check(mine, cell)
                put_all(mine, rules.before(mine, cell))
            result = mine.put_cell(row_key, column_name, ref_key, body, expect_latest=expect_latest)
            if rules is not None:
                put_all(mine, rules.after(mine, cell))
            return result

        try:
            return self._calls.ask("put_cell", work)
        finally:  # one that failed may have happened
            self._lag.wrote((row_key,))

    def append(self, using: Using, row_key: UUID, column_name: str, body: Json) -> PutResult:
        def work(store: CellStore) -> PutResult:
            mine, rules = using(store), self._rules_of(store)
            if rules is None:
                return mine.append_cell(row_key, column_name, body)
            checked_bytes(Cell(row_key, column_name, 1, body), self._max_body_bytes)
            return rules.append(mine, row_key, column_name, body)

        try:
            return self._calls.ask("append_cell", work)
        finally:
            self._lag.wrote((row_key,))

    def put_many(self, using: Using, cells: Sequence[Cell]) -> list[PutResult]:
        """Cells that a store refused, because it is not the authority any more, are put again; the others are not."""
        batch = _Batch(cells)
        try:
            return self._calls.ask(
                "put_cells", lambda store: batch.put(using(store), self._rules_of(store), self._max_body_bytes)
            )
        finally:
            self._lag.wrote({cell.row_key for cell in cells})

    def _rules_of(self, store: CellStore) -> LayoutRules | None:
        return self._rules if isinstance(store, Datastore) else None


class _Batch:
    """Cells, and what became of them so far."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = list(cells)
        self._outcomes: dict[int, PutResult | SchemalessError] = {}

    def put(self, store: CellStore, rules: LayoutRules | None, max_body_bytes: int) -> list[PutResult]:
        """Put what nobody has answered yet; raises `StaleEpoch` when something of it has to go elsewhere."""
        if rules is not None:
            self._check(store, rules, max_body_bytes)
        pending = [n for n in range(len(self._cells)) if n not in self._outcomes]
        cells = [self._cells[n] for n in pending]
        refusal: StaleEpoch | None = None
        try:
            outcomes: Sequence[PutResult | SchemalessError] = store.put_cells(cells)
        except BatchFailed as failed:
            outcomes = failed.results
        for n, outcome in zip(pending, outcomes, strict=True):
            if isinstance(outcome, StaleEpoch):
                refusal = outcome
            else:
                self._outcomes[n] = outcome
        if refusal is not None:
            raise refusal
        if rules is not None:
            put_all(store, [more for cell in cells for more in rules.after(store, cell)])
        results = [self._outcomes[n] for n in range(len(self._cells))]
        stored = [result for result in results if isinstance(result, PutResult)]
        if len(stored) < len(results):
            raise BatchFailed(results)
        return stored

    def _check(self, store: CellStore, rules: LayoutRules, max_body_bytes: int) -> None:
        """What the layout refuses is refused by the cell; an invalid cell refuses the batch."""
        for cell in self._cells:
            checked_bytes(cell, max_body_bytes)
        for n, cell in enumerate(self._cells):
            if n in self._outcomes:
                continue
            try:
                rules.check(store, cell)
            except (Invalid, Conflict) as error:
                self._outcomes[n] = error
            else:
                put_all(store, rules.before(store, cell))
