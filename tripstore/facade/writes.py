"""`Writes`: puts at the authority. What this process wrote is remembered until the mirror has it."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from schemaless_core.calls.using import Using
from schemaless_core.cell.answers import ANY, PutResult
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, ColumnKey, checked_bytes
from schemaless_core.cell.put_errors import BatchFailed, CellConflict
from schemaless_core.cell.requests import listed_cells
from schemaless_core.datastore import Datastore
from schemaless_core.errors import InvalidRequest, SchemalessError, StaleEpoch, Unavailable
from schemaless_core.store import CellStore
from tripstore.facade.calls import Calls
from tripstore.facade.lag import Lag
from tripstore.facade.layout_rules import LayoutRules
from tripstore.facade.next_keys import NextKey

#: How often an append that lost a race goes again, and the longest pause before that.
APPEND_TRIES = 50
APPEND_PAUSE_SECONDS = 0.01
#: Of a thread and of those that act for it: asyncio's and tripstore.aio's have its context.
_IS_ONLY_READING = ContextVar("is_only_reading", default=False)


@contextmanager
def only_reading() -> Iterator[None]:
    """Refuse what this thread changes: a query that is tried beside its caller must not do anything twice."""
    token = _IS_ONLY_READING.set(True)
    try:
        yield
    finally:
        _IS_ONLY_READING.reset(token)


class Writes:
    """Of one process. `rules`: what the layout says; None: there is no legacy store."""

    def __init__(self, calls: Calls, lag: Lag, max_body_bytes: int, rules: LayoutRules | None = None) -> None:
        self._calls = calls
        self._lag = lag
        self._max_body_bytes = max_body_bytes
        self._rules = rules

    def put(
        self, using: Using, row_key: UUID, column_name: str, ref_key: int, body: Json, expect_latest: Any
    ) -> PutResult:
        check_may_change()
        cell = Cell(row_key, column_name, ref_key, body)
        try:
            return self._calls.ask(
                "put_cell", lambda store: self._put(using(store), store, cell, expect_latest), using.deadline
            )
        finally:  # one that failed may have happened
            self._lag.wrote(_row_keys((row_key,)))

    def append(self, using: Using, row_key: UUID, column_name: str, body: Json) -> PutResult:
        """A conditional put that chooses its ref key once: wherever it is repeated, it finds what it has put."""
        check_may_change()
        rules = self._rules
        if rules is None:
            return self._calls.ask(
                "append_cell", lambda store: using(store).append_cell(row_key, column_name, body), using.deadline
            )
        checked_bytes(Cell(row_key, column_name, 1, body), self._max_body_bytes)
        chosen: list[NextKey] = []

        def work(store: CellStore) -> PutResult:
            mine = using(store)
            if not chosen:
                chosen.append(rules.keys.choose(mine, row_key, column_name, using.deadline))
            ref_key, expect_latest = chosen[0]
            return self._put(mine, store, Cell(row_key, column_name, ref_key, body), expect_latest)

        try:
            for attempt in range(1, APPEND_TRIES + 1):
                try:
                    return self._calls.ask("append_cell", work, using.deadline)
                except CellConflict:  # another writer has put there: ours is nowhere
                    chosen.clear()
                    time.sleep(random.uniform(0, min(APPEND_PAUSE_SECONDS, attempt / 1000)))
        finally:
            self._lag.wrote(_row_keys((row_key,)))
        raise Unavailable(
            f"Column {column_name} of {row_key} is appended to by too many at once.", hint="Repeat the append."
        )

    def put_many(self, using: Using, cells: Sequence[Cell]) -> list[PutResult]:
        """Cells that a store refused, because it is not the authority any more, are put again; the others are not."""
        check_may_change()
        batch = _Batch(cells)
        try:
            return self._calls.ask(
                "put_cells",
                lambda store: batch.put(using(store), self._rules_at(store), self._max_body_bytes),
                using.deadline,
            )
        finally:
            self._lag.wrote(_row_keys(getattr(cell, "row_key", None) for cell in batch.cells))

    def _put(self, mine: CellStore, store: CellStore, cell: Cell, expect_latest: Any) -> PutResult:
        """Put one cell at the authority, and what goes with it there."""
        rules = self._rules_at(store)
        if rules is None:
            return mine.put_cell(*cell.key, cell.body, expect_latest=expect_latest)
        body = checked_bytes(cell, self._max_body_bytes)
        rules.check(mine, cell)
        if rules.takes_children(cell):
            return rules.put_deletion(_schemaless(mine), cell, expect_latest)
        return _schemaless(mine).put_checked(cell, body, expect_latest)

    def _rules_at(self, store: CellStore) -> LayoutRules | None:
        """At the legacy store its tables say it all."""
        return self._rules if isinstance(store, Datastore) else None


class _Batch:
    """Cells, and what became of them so far."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = listed_cells(cells)
        self._outcomes: dict[int, PutResult | SchemalessError] = {}

    def put(self, store: CellStore, rules: LayoutRules | None, max_body_bytes: int) -> list[PutResult]:
        """Put what has no answer yet; raises `StaleEpoch` when something of it has to go elsewhere."""
        if rules is not None:
            for cell in self.cells:  # one that is invalid refuses the batch
                checked_bytes(cell, max_body_bytes)
        for part in self._parts(rules):
            admitted = part if rules is None else self._admitted(store, rules, part)
            cells = [self.cells[n] for n in admitted]
            outcomes = _put(store, rules, cells)
            refusals = [each for each in outcomes if isinstance(each, StaleEpoch) and each.is_of_authority]
            self._outcomes |= {n: each for n, each in zip(admitted, outcomes, strict=True) if each not in refusals}
            if refusals:
                raise refusals[0]
        results = [self._outcomes[n] for n in range(len(self.cells))]
        stored = [result for result in results if isinstance(result, PutResult)]
        if len(stored) < len(results):
            raise BatchFailed(results)
        return stored

    def _parts(self, rules: LayoutRules | None) -> Iterator[list[int]]:
        """What has no outcome, in order; what depends on other cells comes after those before it.

        A tombstone, on all of its row; a body that points to rows, on these.
        """
        part: list[int] = []
        made: set[UUID] = set()
        for n in [n for n in range(len(self.cells)) if n not in self._outcomes]:
            cell = self.cells[n]
            is_alone = rules is not None and rules.looks_around(cell)
            if part and rules is not None and (is_alone or not made.isdisjoint(rules.rows_needed(cell))):
                yield part
                part, made = [], set()
            part.append(n)
            if rules is not None and rules.is_a_row(cell):
                made.add(cell.row_key)
            if is_alone:
                yield part
                part, made = [], set()
        if part or not self.cells:
            yield part

    def _admitted(self, store: CellStore, rules: LayoutRules, part: Sequence[int]) -> list[int]:
        """Those that may be put. Each sees those before it of its row and column."""
        admitted: list[int] = []
        before = defaultdict[ColumnKey, list[Cell]](list)
        for n in part:
            others = before[ColumnKey(*self.cells[n].key[:2])]
            if self._is_admitted(store, rules, n, others):
                admitted.append(n)
                others.append(self.cells[n])
        return admitted

    def _is_admitted(self, store: CellStore, rules: LayoutRules, n: int, before: Sequence[Cell]) -> bool:
        """What the layout refuses is refused by the cell."""
        try:
            rules.check(store, self.cells[n], before)
        except StaleEpoch:
            raise
        except SchemalessError as error:
            self._outcomes[n] = error
            return False
        return True


def _put(store: CellStore, rules: LayoutRules | None, cells: Sequence[Cell]) -> Sequence[PutResult | SchemalessError]:
    if rules is not None and len(cells) == 1 and rules.takes_children(cells[0]):
        try:
            return [rules.put_deletion(_schemaless(store), cells[0], ANY)]
        except SchemalessError as error:
            return [error]
    try:
        return store.put_cells(cells)
    except BatchFailed as failed:
        return failed.results


def _schemaless(store: CellStore) -> Datastore:
    """Where the layout's rules are kept."""
    assert isinstance(store, Datastore)
    return store


def check_may_change() -> None:
    """Refuse what this thread, which only reads, would do to others."""
    if _IS_ONLY_READING.get():
        hint = "Experiment with the read alone; what it writes belongs after it, in the caller."
        raise InvalidRequest("A query under experiment may only read.", hint=hint)


def _row_keys(given: Iterable[Any]) -> list[UUID]:
    """Rows that may have been written; what is no row key the store has refused, and says so."""
    return [row_key for row_key in given if isinstance(row_key, UUID)]
