"""`Rehearsal`: while Postgres is the authority, cells of Schemaless are held against what stands there.

As many as the budget allows; the others are passed. What does not fit is told with the authority that it is about.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence

from schemaless_core.cell.cell import Cell
from schemaless_core.errors import Conflict
from schemaless_core.triggers.group import RunOutcome
from tripstore import metrics
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.errors import TripstoreError
from tripstore.handover.authority import Authority
from tripstore.handover.ports import ControlPort
from tripstore.migration.mirror.budget import RehearsalBudget
from tripstore.migration.mirror.look import HeldCell, Look, LookFailed, Runs
from tripstore.migration.mirror.rehearsal_ledger import ABSENT, DIFFERENT, EQUAL, NOT_COMPARED, RehearsalLedger


class RehearsalFailed(Conflict, TripstoreError):
    """A cell of Schemaless that Postgres, the authority, does not have like this."""

    def __init__(self, cell: Cell, held: HeldCell) -> None:
        key = f"({cell.row_key}, {cell.column_name}, {cell.ref_key})"
        if held.problem is not None:
            self.outcome, what = NOT_COMPARED, f"cannot say what it has there: {held.problem}"
        elif held.cell is None:
            self.outcome, what = ABSENT, "does not have it"
        else:
            self.outcome, what = DIFFERENT, "has another body under this key"
        super().__init__(f"Schemaless holds {key}, and Postgres, the authority, {what}.", hint="See `mirror show`.")


class Rehearsal:
    """Of one reverse mirror."""

    def __init__(self, control: ControlPort, look: Look, ledger: RehearsalLedger) -> None:
        self._control = control
        self._look = look
        self._ledger = ledger
        self._budget = RehearsalBudget(time.monotonic)
        #: Shards where something did not fit.
        self._suspects: set[int] = set()

    def chosen(self, runs: Runs) -> Runs:
        """Those that are compared: what the budget allows, and the shards where something did not fit."""
        chosen = {shard: cells for shard, cells in runs.items() if shard in self._suspects}
        for shard in random.sample(list(runs), len(runs)):
            if shard not in chosen and self._budget.has_some:
                chosen[shard] = runs[shard]
                self._budget.charge(len(runs[shard]))
        return chosen

    def compare(self, runs: Runs, row: Authority) -> dict[int, RunOutcome]:
        """Compare. What does not fit is told only if it is still the same authority that it does not fit."""
        if not runs:
            return {}
        held = self._look.of(runs, is_past_told=True)
        outcomes = {shard: _compared(cells, held[shard]) for shard, cells in runs.items()}
        self._suspects -= outcomes.keys()
        self._suspects |= {shard for shard, outcome in outcomes.items() if outcome.error}
        if any(outcome.error for outcome in outcomes.values()) and self._control.authority() != row:
            return dict.fromkeys(runs, RunOutcome(0, LookFailed("The authority moved meanwhile.")))
        counted = sum((_counted(held[shard], outcome) for shard, outcome in outcomes.items()), Counter[str]())
        for name, count in counted.items():
            metrics.cells_reversed("rehearsal", name, count)
        self._ledger.count(counted, row.epoch)
        return outcomes


def _compared(cells: Sequence[Cell], held: Sequence[HeldCell]) -> RunOutcome:
    """Compare up to the first that differs. What Postgres has forgotten is passed, and not counted as equal."""
    for done, (cell, there) in enumerate(zip(cells, held, strict=True)):
        if there.cell != cell and not isinstance(there.problem, HistoryTruncated):
            return RunOutcome(done, RehearsalFailed(cell, there))
    return RunOutcome(len(cells), None)


def _counted(held: Sequence[HeldCell], outcome: RunOutcome) -> Counter[str]:
    """What came of each comparison."""
    counted = Counter(EQUAL if there.problem is None else NOT_COMPARED for there in held[: outcome.done])
    if isinstance(outcome.error, RehearsalFailed):
        counted[outcome.error.outcome] += 1
    return counted
