"""`ReversePuts`: what Postgres lacks of Schemaless' cells is put there, in the order of the log within a row.

Most of it together, many rows by one commit; what does not go like that cell by cell, up to the first that fails.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.errors import Conflict, SchemalessError, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.store import CellStore
from schemaless_core.triggers.group import RunOutcome
from tripstore import metrics
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.put.joint_puts import CELLS_MAX
from tripstore.migration.mirror.look import HeldCell, Look, Runs
from tripstore.migration.mirror.row_ids import RowIds

#: Puts at the same time: while one is at work here, Postgres is at another's.
THREADS = 2
#: Others are served by the same loop: slices are put for so long, and the rest is fetched again.
BUDGET_SECONDS = 1.0
#: Of all shards together, between two looks at the clock.
SLICE_CELLS = THREADS * CELLS_MAX

Outcomes = dict[int, RunOutcome]


class ReversePuts:
    """Of one reverse mirror."""

    def __init__(self, legacy: PostgresBackend, look: Look, parent_column: str, row_ids: RowIds) -> None:
        self._legacy = legacy
        self._look = look
        self._parent_column = parent_column
        self._row_ids = row_ids
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="reverse")

    def put(self, runs: Runs, epoch: int) -> Outcomes:
        """Put what Postgres lacks, a slice of each shard after the other, until the time is over.

        `epoch`: at which Schemaless was opened. Postgres refuses another one: then nothing is put, and nothing parked.
        """
        legacy = self._legacy.as_mirror(epoch)
        until = time.monotonic() + BUDGET_SECONDS
        outcomes = {shard: RunOutcome(0, None) for shard in runs}
        while (slices := _next_slices(runs, outcomes)) and time.monotonic() < until:
            held = self._look.of(slices, is_past_told=False)
            for put in self._threads.map(lambda part, h=held: _put(legacy, part, h), _by_commit(slices)):
                for shard, outcome in put.items():
                    outcomes[shard] = RunOutcome(outcomes[shard].done + outcome.done, outcome.error)
        reach("reverse.applied")
        return self._with_legacy_ids(runs, outcomes)

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


def _put(legacy: PostgresBackend, runs: Runs, held: Mapping[int, Sequence[HeldCell]]) -> Outcomes:
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
        return dict.fromkeys(runs, RunOutcome(0, error))
    except StaleEpoch as error:
        return dict.fromkeys(runs, RunOutcome(0, _late(error)))
    metrics.cells_reversed("mirror", "stored", len(stored))
    left = {CellKey(*cell.key) for cell in lacking} - stored
    metrics.cells_put_jointly(len(stored), len(left))
    outcomes: Outcomes = {}
    for shard, cells in runs.items():
        if any(isinstance(outcome.error, Unavailable) for outcome in outcomes.values()):
            outcomes[shard] = RunOutcome(0, None)  # each would wait as long for the same
        else:
            outcomes[shard] = _put_singly(legacy, cells, left)
    return outcomes


def _put_singly(legacy: CellStore, cells: Sequence[Cell], left: Collection[CellKey]) -> RunOutcome:
    """Put what is left of a shard, in order, up to the first that fails."""
    stored = 0
    try:
        for done, cell in enumerate(cells):
            if cell.key not in left:
                continue
            try:
                legacy.put_cell(cell.row_key, cell.column_name, cell.ref_key, cell.body)
            except StaleEpoch as error:
                return RunOutcome(done, _late(error))
            except SchemalessError as error:
                _count_refusal(error)
                return RunOutcome(done, error)
            stored += 1
        return RunOutcome(len(cells), None)
    finally:
        metrics.cells_reversed("mirror", "stored", stored)


def _late(error: StaleEpoch) -> Unavailable:
    """The gate is behind the row, or this mirror is: it looks again, and no cell is to blame."""
    return Unavailable(f"Postgres does not take the mirror's writes: {error.reason}.", hint="They are put again.")


def _count_refusal(error: SchemalessError) -> None:
    if not isinstance(error, Unavailable):
        metrics.cells_reversed("mirror", "refused")
        metrics.change_undeliverable("reverse", "conflict" if isinstance(error, Conflict) else "refused")


def _until(cells: Sequence[Cell], outcome: RunOutcome, failures: Mapping[UUID, SchemalessError]) -> RunOutcome:
    """The same, but no further than the first cell of a row that failed afterwards."""
    for done, cell in enumerate(cells[: outcome.done] if failures else ()):
        if cell.row_key in failures:
            return RunOutcome(done, failures[cell.row_key])
    return outcome
