"""`Group`: a named consumer of the shards' logs, as the worker sees it; and the groups that user triggers make."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple, Protocol

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.failpoints import reach
from schemaless_core.store import CellStore
from schemaless_core.triggers.calls import RunningCalls
from schemaless_core.triggers.offsets import Offsets, Progress
from schemaless_core.triggers.parking import Parking as ParkedCells
from schemaless_core.triggers.registry import Trigger

logger = logging.getLogger(__name__)

#: What is set aside when a cell fails again and again: the cell, all later ones of its row too, or nothing, ever.
Parking = Literal["cell", "row", "never"]


#: Says which of these cells are tombstones. It has to read them.
Tombstones = Callable[[Sequence[CellKey]], Set[CellKey]]


class RunOutcome(NamedTuple):
    """How many cells of a run were delivered, and what the next one raised (None: nothing)."""

    done: int
    error: Exception | None


def never() -> bool:
    return False


class Group(Protocol):
    """A consumer with its own offsets. Delivery is at least once, so a handler may see a cell twice."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> Container[str]: ...

    @property
    def parking(self) -> Parking: ...

    @property
    def is_transactional(self) -> bool: ...

    @property
    def is_bundled(self) -> bool:
        """Whether it wants the runs of all shards at once; else one shard's at a time."""
        ...

    @property
    def rest_seconds(self) -> float:
        """How long what is new may wait for more to come, which costs all of it less together; 0: not at all."""
        ...

    def deliver(
        self,
        runs: Mapping[int, Sequence[Cell]],
        store: CellStore | None = None,
        is_over: Callable[[], bool] = never,
    ) -> Mapping[int, RunOutcome]:
        """Deliver each shard's cells in order; one outcome per shard. Only bugs of the group itself raise.

        `store` is handed to functions in place of the group's own, for puts that join the offset's commit. Between two
        calls `is_over` is asked whether the rest must wait: then fewer are done, and nothing has failed.
        """
        ...

    def retry(self, shard: int, cell: Cell, store: CellStore | None = None) -> RunOutcome:
        """Deliver a cell that was parked."""
        ...

    def progress(self, offsets: Offsets, parked: ParkedCells) -> Progress:
        """Where one consumer of it keeps how far it has come."""
        ...

    def overtaking(self, failed: CellKey, behind: Sequence[CellKey], tombstones: Tombstones) -> Sequence[CellKey]:
        """Of the cells that wait behind a parked one that failed again, those after which it may go; in order.

        There may be very many, and nothing of them is read but what the group asks for.
        """
        ...


class TriggerGroup:
    """The group of one user trigger."""

    parking: Parking
    is_bundled = False
    rest_seconds = 0.0

    def __init__(self, trigger: Trigger, store: CellStore, calls: RunningCalls | None = None) -> None:
        self.name = trigger.name
        self.columns = frozenset({trigger.column})
        self.parking = trigger.park_scope
        self.is_transactional = trigger.transactional
        self._trigger = trigger
        self._store = store
        self._calls = calls or RunningCalls()

    def deliver(
        self,
        runs: Mapping[int, Sequence[Cell]],
        store: CellStore | None = None,
        is_over: Callable[[], bool] = never,
    ) -> dict[int, RunOutcome]:
        deliver = self._one_by_one if self._trigger.batch == 1 else self._in_batches
        return {shard: deliver(cells, store or self._store, is_over) for shard, cells in runs.items()}

    def retry(self, shard: int, cell: Cell, store: CellStore | None = None) -> RunOutcome:
        return self.deliver({shard: [cell]}, store)[shard]

    def progress(self, offsets: Offsets, parked: ParkedCells) -> Progress:
        return offsets

    def overtaking(self, failed: CellKey, behind: Sequence[CellKey], tombstones: Tombstones) -> Sequence[CellKey]:
        return ()

    def _in_batches(self, cells: Sequence[Cell], store: CellStore, is_over: Callable[[], bool]) -> RunOutcome:
        done = 0
        while done < len(cells) and not (done and is_over()):
            part = cells[done : done + self._trigger.batch]
            if (problem := self._call(store, None, part)) is not None:
                # Which of them fails? Those that do not may well see it twice.
                extra = {"event": "triggers.batch_failed", "group": self.name, "error": type(problem).__name__}
                logger.warning("the cells of a batch are delivered one by one", extra=extra)
                outcome = self._one_by_one(part, store, never)
                if outcome.error is not None:
                    return RunOutcome(done + outcome.done, outcome.error)
            done += len(part)
        return RunOutcome(done, None)

    def _one_by_one(self, cells: Sequence[Cell], store: CellStore, is_over: Callable[[], bool]) -> RunOutcome:
        for done, cell in enumerate(cells):
            if done and is_over():
                return RunOutcome(done, None)
            error = self._call(store, cell, [cell])
            if error is not None:
                return RunOutcome(done, error)
        return RunOutcome(len(cells), None)

    def _call(self, store: CellStore, cell: Cell | None, cells: Sequence[Cell]) -> Exception | None:
        """Call the function; what it raises is its own affair and becomes an outcome."""
        given: dict[str, Any] = {"store": store, "cell": cell, "cells": cells}
        if cell is not None:
            given["row_key"] = cell.row_key
        self._calls.begin(self.name, cells, self._trigger.timeout)
        try:
            self._function(**{name: given[name] for name in self._trigger.parameters})
        except Exception as error:  # noqa: BLE001  # the edge to the user's code: whatever it raises is a failed delivery
            return error
        finally:
            self._calls.end()
        reach("trigger.called")
        return None

    @property
    def _function(self) -> Callable[..., Any]:
        return self._trigger.function
