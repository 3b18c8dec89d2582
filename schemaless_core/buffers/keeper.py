"""`Keeper`: what a put does when the cell's own cluster did not take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from schemaless_core import metrics
from schemaless_core.buffers.buffers import BOTH, ONE, SECOND, BufferedOutcome, BufferRefused, Buffers, Failure
from schemaless_core.cell.answers import PutResult, PutStatus
from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.cell.sharding import shard_of
from schemaless_core.cell.standing import Kind, Standing
from schemaless_core.cell.stored import NewCell
from schemaless_core.config import BufferConfig, DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.errors import SchemalessError, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.habits import Habits

NO_SECOND = "The cell is stored by its own cluster, and no other one keeps the second copy that was asked for."
OTHER_BODY = "The cell is stored, and where its second copy was to be kept another body waits under its key."
REPEAT = "Repeat the put, which finds the first copy. It is readable all the same."
IT_WAITS = (
    "The other one waits in a buffer: using(include_buffered=True) reads it. Put a change under a higher ref key."
)
NOT_KEPT = "No buffer keeps it: what it expects, only the cell's own primary can say. Repeat it when that is back."


class Keeper(Protocol):
    """Takes over from a put that failed."""

    def own_share(self, seconds: float) -> float:
        """Return how much of a caller's deadline the own cluster may take."""
        ...

    def keep_one(self, cell: Cell, new: NewCell, failure: Failure) -> PutResult:
        """Have a cell kept, or raise why it is not."""
        ...

    def keep_many(
        self, cells: Sequence[Cell], new: Sequence[NewCell], failures: Mapping[int, Failure]
    ) -> dict[int, PutResult | SchemalessError]:
        """Have those of the cells kept that failed, by position; say what became of them."""
        ...

    def second(self, cells: Mapping[int, NewCell]) -> dict[int, SchemalessError]:
        """Have a second copy of stored cells kept, where one is wanted; of which of them none is, and why."""
        ...

    def explain(self, failure: Failure) -> None:
        """Say of a write that is never kept why it is not."""
        ...


class NoKeeper:
    """Of a datastore without buffers, and of copiers: they carry what is true elsewhere, and come again."""

    def own_share(self, seconds: float) -> float:
        return seconds

    def keep_one(self, cell: Cell, new: NewCell, failure: Failure) -> PutResult:
        raise failure

    def keep_many(
        self, cells: Sequence[Cell], new: Sequence[NewCell], failures: Mapping[int, Failure]
    ) -> dict[int, PutResult | SchemalessError]:
        return {}

    def second(self, cells: Mapping[int, NewCell]) -> dict[int, SchemalessError]:
        return {}

    def explain(self, failure: Failure) -> None:
        pass


class BufferKeeper:
    """Of a datastore with buffers."""

    def __init__(
        self, buffers: Buffers, config: DatastoreConfig, its: BufferConfig, habits: Habits, standing: Standing
    ) -> None:
        self._buffers = buffers
        self._shards = config.shards
        self._seconds = its.put_seconds
        self._cell_seconds = config.deadlines.batch_cell_seconds
        self._habits = habits
        self._standing = standing
        self._copies = BOTH if habits.durability == "double" else ONE

    def own_share(self, seconds: float) -> float:
        return seconds - min(seconds / 2, self._seconds)

    def keep_one(self, cell: Cell, new: NewCell, failure: Failure) -> PutResult:
        (outcome,) = self._buffers.keep([new], [failure], self._standing, self._deadline(0), self._copies)
        result = self._result(cell, outcome)
        if isinstance(result, SchemalessError):
            metrics.cells_written("conflict" if isinstance(result, CellConflict) else "failed")
            raise result
        metrics.cells_written("buffered")
        reach("put.buffered")
        return result

    def keep_many(
        self, cells: Sequence[Cell], new: Sequence[NewCell], failures: Mapping[int, Failure]
    ) -> dict[int, PutResult | SchemalessError]:
        if not failures:
            return {}
        wanted = [new[n] for n in failures]
        deadline = self._deadline(len(wanted))
        kept = self._buffers.keep(wanted, list(failures.values()), self._standing, deadline, self._copies)
        return {n: self._result(cells[n], outcome) for n, outcome in zip(failures, kept, strict=True)}

    def second(self, cells: Mapping[int, NewCell]) -> dict[int, SchemalessError]:
        if self._copies is ONE or not cells:
            return {}
        wanted, why = list(cells.values()), [Unavailable(NO_SECOND, hint=REPEAT)] * len(cells)
        kept = self._buffers.keep(wanted, why, self._standing, self._deadline(len(wanted)), SECOND)
        missing: dict[int, SchemalessError] = {}
        for n, outcome in zip(cells, kept, strict=True):
            if isinstance(outcome, BufferRefused):
                missing[n] = Unavailable(OTHER_BODY, hint=REPEAT)
            elif outcome is not None:
                missing[n] = outcome
        return missing

    def explain(self, failure: Failure) -> None:
        failure.hint = NOT_KEPT

    def _result(self, cell: Cell, outcome: BufferedOutcome) -> PutResult | SchemalessError:
        if outcome is None:
            shard, epoch = shard_of(cell.row_key, self._shards), 0  # of a log that it is not in yet
            return PutResult(PutStatus.BUFFERED, False, shard, cell.ref_key, epoch, None)
        if isinstance(outcome, BufferRefused):
            conflict = CellConflict(cell, Cell(*cell.key, from_canonical(outcome.body)))
            conflict.hint = IT_WAITS
            return conflict
        return outcome

    def _deadline(self, cells: int) -> Deadline:
        seconds = self._seconds + cells * self._cell_seconds
        return Deadline(seconds if self._habits.deadline is None else min(seconds, self._habits.deadline / 2))


def keeper_of(buffers: Buffers, config: DatastoreConfig, habits: Habits, standing: Standing) -> Keeper:
    """What a store of these habits does with cells that their own cluster did not take."""
    if config.buffer is None or standing.kind is Kind.COPIER:
        return NoKeeper()
    return BufferKeeper(buffers, config, config.buffer, habits, standing)
