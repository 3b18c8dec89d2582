"""`ReverseMirror`: the built-in group that writes Schemaless' cells into the legacy tables, and rehearses it before.

It is handed cells of the shards' logs and looks at the authority row after that: what is in the log by then was put
while the row said the same, or before. While Postgres is the authority every cell came from there, and nothing is
written: in the phase shadow cells are compared with what stands there, as many as the budget allows, and the others
passed. While Schemaless is, what Postgres lacks is put: as the mirror, forward only, in the order of the log within a
row. What fails again and again the trigger workers set aside, with its row.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import UUID

from schemaless_core.cell import Cell, CellKey
from schemaless_core.datastore import Datastore
from schemaless_core.errors import Conflict, SchemalessError, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.store import CellStore
from schemaless_core.triggers.coordinator import GroupRecord
from schemaless_core.triggers.group import Outcome, Parking, never
from tripstore import metrics
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.joint_puts import CELLS_MAX
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.errors import TripstoreError
from tripstore.handover.authority import Authority, Backend
from tripstore.mirror.budget import RehearsalBudget
from tripstore.mirror.look import Held, Look
from tripstore.mirror.rehearsal import ABSENT, DIFFERENT, EQUAL, NOT_COMPARED, RehearsalLedger
from tripstore.mirror.row_ids import RowIds

GROUP = REVERSE_GROUP
#: Puts at the same time: while one is at work here, Postgres is at another's.
THREADS = 2
#: Others are served by the same loop: slices are put for so long, and the rest is fetched again.
BUDGET_SECONDS = 1.0
#: Of all shards together, between two looks at the clock.
SLICE_CELLS = THREADS * CELLS_MAX
#: Between two pages while Postgres is the authority: nobody waits for what has come from there.
REST_SECONDS = 0.25

Runs = Mapping[int, Sequence[Cell]]
Outcomes = dict[int, Outcome]


class EveryColumn:
    """All columns, those that nobody knows yet, too."""

    def __contains__(self, _name: object) -> bool:
        return True


class RehearsalFailed(Conflict, TripstoreError):
    """A cell of Schemaless that Postgres, the authority, does not have like this."""

    def __init__(self, cell: Cell, held: Held) -> None:
        key = f"({cell.row_key}, {cell.column_name}, {cell.ref_key})"
        if held.problem is not None:
            self.outcome, what = NOT_COMPARED, f"cannot say what it has there: {held.problem}"
        elif held.cell is None:
            self.outcome, what = ABSENT, "does not have it"
        else:
            self.outcome, what = DIFFERENT, "has another body under this key"
        super().__init__(f"Schemaless holds {key}, and Postgres, the authority, {what}.", hint="See `mirror show`.")


class LookFailed(Unavailable, TripstoreError):
    """What has to be known before could not be: says nothing of the cells, and they wait."""


def register_reverse(datastore: Datastore) -> GroupRecord:
    """Create the group unless it is there: from now on, as long as all that is there came from Postgres.

    Once Schemaless was the authority it begins at the beginning: what Postgres has costs a look.
    """
    known = datastore.triggers.coordinator.find_group(REVERSE_GROUP)
    if known is not None:
        return known
    seen = datastore.authority.find()
    is_first = seen is None or (seen.epoch == 0 and not seen.silent)
    return datastore.triggers.register_group(REVERSE_GROUP, "now" if is_first else "beginning")


class ReverseMirror:
    """A group for the trigger workers; used by one thread."""

    name = REVERSE_GROUP
    columns = EveryColumn()
    parking: Parking = "row"
    is_transactional = False
    is_bundled = True  #: One look for the cells of all shards.

    def __init__(
        self,
        authority: Callable[[], Authority],
        is_rehearsing: Callable[[], bool],
        legacy: PostgresBackend,
        parent_column: str,
        row_ids: RowIds,
        rehearsal: RehearsalLedger,
        *,
        late: Callable[[float], None] = lambda seconds: None,
        threads: int = THREADS,
        budget_seconds: float = BUDGET_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._authority = authority
        self._is_rehearsing = is_rehearsing
        self._legacy = legacy
        self._look = Look(legacy)
        self._parent_column = parent_column
        self._row_ids = row_ids
        self.rehearsal = rehearsal
        self._late = late
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="reverse")
        self._budget_seconds = budget_seconds
        self._clock = clock
        self._budget = RehearsalBudget(clock)
        self._suspects: set[int] = set()
        self.rest_seconds = 0.0

    def deliver(
        self, runs: Runs, store: CellStore | None = None, is_over: Callable[[], bool] = never
    ) -> Mapping[int, Outcome]:
        return self._guarded(runs, is_retry=False)

    def retry(self, shard: int, cell: Cell, store: CellStore | None = None) -> Outcome:
        """What was parked is looked at, whatever the phase and the budget."""
        return self._guarded({shard: [cell]}, is_retry=True)[shard]

    def _guarded(self, runs: Runs, *, is_retry: bool) -> Outcomes:
        try:
            return self._delivered(runs, is_retry=is_retry)
        except Unavailable as error:
            return _none_delivered(runs, error)
        except SchemalessError as error:
            return _none_delivered(runs, LookFailed(error.message, hint=error.hint))
        finally:
            seconds = _age_seconds(runs)
            metrics.mirror_late("reverse", seconds)
            self._late(seconds)

    def _delivered(self, runs: Runs, *, is_retry: bool) -> Outcomes:
        row = self._authority()
        reach("reverse.looked")
        self.rest_seconds = 0.0 if row.backend is Backend.STORE else REST_SECONDS
        if row.backend is Backend.STORE:
            return self._mirrored(runs)
        chosen = runs if is_retry else self._chosen(runs)
        outcomes = {shard: Outcome(len(cells), None) for shard, cells in runs.items()}
        return outcomes | self._rehearsed(chosen, row) if chosen else outcomes

    def _chosen(self, runs: Runs) -> Runs:
        """Those that are compared: what the budget allows, and the shards where something did not fit."""
        if not self._is_rehearsing():
            return {}
        chosen = {shard: cells for shard, cells in runs.items() if shard in self._suspects}
        for shard in random.sample(list(runs), len(runs)):
            if shard not in chosen and self._budget.has_some:
                chosen[shard] = runs[shard]
                self._budget.charge(len(runs[shard]))
        return chosen

    def _rehearsed(self, runs: Runs, row: Authority) -> Outcomes:
        """Compare. What does not fit is told only if it is still the same authority that it does not fit."""
        held = self._held(runs, is_past_told=True)
        outcomes = {shard: _compared(cells, held[shard]) for shard, cells in runs.items()}
        self._suspects -= outcomes.keys()
        self._suspects |= {shard for shard, outcome in outcomes.items() if outcome.error}
        if any(outcome.error for outcome in outcomes.values()) and self._authority() != row:
            return _none_delivered(runs, LookFailed("The authority moved meanwhile."))
        counted = sum((_counted(held[shard], outcome) for shard, outcome in outcomes.items()), Counter[str]())
        for name, count in counted.items():
            metrics.cells_reversed("rehearsal", name, count)
        self.rehearsal.count(counted)
        return outcomes

    def _mirrored(self, runs: Runs) -> Outcomes:
        """Put what Postgres lacks, a slice of each shard after the other, until the time is over."""
        until = self._clock() + self._budget_seconds
        outcomes = {shard: Outcome(0, None) for shard in runs}
        while (slices := _next_slices(runs, outcomes)) and self._clock() < until:
            held = self._held(slices, is_past_told=False)
            for put in self._threads.map(lambda part, h=held: _put(self._legacy, part, h), _by_commit(slices)):
                for shard, outcome in put.items():
                    outcomes[shard] = Outcome(outcomes[shard].done + outcome.done, outcome.error)
        reach("reverse.applied")
        return self._with_legacy_ids(runs, outcomes)

    def _held(self, runs: Runs, *, is_past_told: bool) -> dict[int, list[Held]]:
        """What Postgres has of each shard's cells: one look for all of them."""
        found = iter(self._look.at([cell for cells in runs.values() for cell in cells], is_past_told=is_past_told))
        return {shard: [next(found) for _cell in cells] for shard, cells in runs.items()}

    def _with_legacy_ids(self, runs: Runs, outcomes: Outcomes) -> Outcomes:
        """A row that Postgres has now is delivered when Schemaless knows the legacy id that it was given."""
        rows = {
            cell.row_key
            for shard, cells in runs.items()
            for cell in cells[: outcomes[shard].done]
            if cell.column_name == self._parent_column
        }
        failures = self._row_ids.carry(rows) if rows else {}
        return {shard: _until(cells, outcomes[shard], failures) for shard, cells in runs.items()}


def _next_slices(runs: Runs, outcomes: Outcomes) -> dict[int, Sequence[Cell]]:
    """The next cells of shards that have some left and nothing in the way; all of them no more than can be put soon."""
    left = [shard for shard, cells in runs.items() if outcomes[shard].done < len(cells) and not outcomes[shard].error]
    chosen = random.sample(left, min(len(left), SLICE_CELLS))
    count = min(SLICE_CELLS // max(len(chosen), 1), CELLS_MAX)
    return {shard: runs[shard][outcomes[shard].done : outcomes[shard].done + count] for shard in chosen}


def _by_commit(slices: Runs) -> list[Runs]:
    """The same, parted so that one commit takes each part."""
    parts, count = list[Runs](), 0
    part: dict[int, Sequence[Cell]] = {}
    for shard, cells in slices.items():
        if part and count + len(cells) > CELLS_MAX:
            parts.append(part)
            part, count = {}, 0
        part[shard] = cells
        count += len(cells)
    return [*parts, part]


def _put(legacy: PostgresBackend, runs: Runs, held: Mapping[int, Sequence[Held]]) -> Outcomes:
    """Put what is lacking of some shards: most of it together, the rest cell by cell."""
    lacking = [
        cell
        for shard, cells in runs.items()
        for cell, there in zip(cells, held[shard], strict=True)
        if there.cell != cell
    ]
    try:
        stored = legacy.put_jointly(lacking)
    except Unavailable as error:
        return _none_delivered(runs, error)
    metrics.cells_reversed("mirror", "stored", len(stored))
    left = {CellKey(*cell.key) for cell in lacking} - stored
    metrics.cells_put_jointly(len(stored), len(left))
    outcomes: Outcomes = {}
    for shard, cells in runs.items():
        if any(isinstance(outcome.error, Unavailable) for outcome in outcomes.values()):
            outcomes[shard] = Outcome(0, None)  # each would wait as long for the same
        else:
            outcomes[shard] = _put_singly(legacy, cells, left)
    return outcomes


def _put_singly(legacy: CellStore, cells: Sequence[Cell], left: Collection[CellKey]) -> Outcome:
    """Put what is left of a shard, in order, up to the first that fails."""
    stored = 0
    try:
        for done, cell in enumerate(cells):
            if cell.key not in left:
                continue
            try:
                legacy.put_cell(cell.row_key, cell.column_name, cell.ref_key, cell.body)
            except SchemalessError as error:
                _count_refusal(error)
                return Outcome(done, error)
            stored += 1
        return Outcome(len(cells), None)
    finally:
        metrics.cells_reversed("mirror", "stored", stored)


def _compared(cells: Sequence[Cell], held: Sequence[Held]) -> Outcome:
    """Compare up to the first that differs. What nobody can know any more is passed, and not counted as equal."""
    for done, (cell, there) in enumerate(zip(cells, held, strict=True)):
        if there.cell != cell and not isinstance(there.problem, HistoryTruncated):
            return Outcome(done, RehearsalFailed(cell, there))
    return Outcome(len(cells), None)


def _counted(held: Sequence[Held], outcome: Outcome) -> Counter[str]:
    """What came of each comparison."""
    counted = Counter(EQUAL if there.problem is None else NOT_COMPARED for there in held[: outcome.done])
    if isinstance(outcome.error, RehearsalFailed):
        counted[outcome.error.outcome] += 1
    return counted


def _count_refusal(error: SchemalessError) -> None:
    if not isinstance(error, Unavailable):
        metrics.cells_reversed("mirror", "refused")
        metrics.change_undeliverable("reverse", "conflict" if isinstance(error, Conflict) else "refused")


def _until(cells: Sequence[Cell], outcome: Outcome, failures: Mapping[UUID, SchemalessError]) -> Outcome:
    """The same, but no further than the first cell of a row that failed afterwards."""
    for done, cell in enumerate(cells[: outcome.done] if failures else ()):
        if cell.row_key in failures:
            return Outcome(done, failures[cell.row_key])
    return outcome


def _age_seconds(runs: Runs) -> float:
    """Of the oldest cell, by this process's clock."""
    first = min((cells[0].created_at for cells in runs.values() if cells and cells[0].created_at), default=None)
    return 0.0 if first is None else max((datetime.now(UTC) - first).total_seconds(), 0.0)


def _none_delivered(runs: Runs, error: SchemalessError) -> Outcomes:
    return {shard: Outcome(0, error) for shard in runs}
