"""`Delivery`: brings runs of cells to a group's function, here or in threads, for a while at a time.

The while is short: between two calls a worker must be able to save its offsets, to hand a shard over and to stop,
however slow the function is. What was not called for is fetched again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from schemaless_core.cell.cell import Cell
from schemaless_core.engine.groups import GroupStep
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.triggers.deaths import Deaths, ProcessDied
from schemaless_core.triggers.group import Group, RunOutcome, never
from schemaless_core.triggers.held import Held, Run, added_id_of
from schemaless_core.triggers.joined import Joined

#: Fetched ahead: while one is delivered, the loop brings the next.
RUNS_PER_THREAD = 4


class Threads(ThreadPoolExecutor):
    """The threads that functions of one worker run in."""

    def __init__(self, count: int, ended: Callable[[], object]) -> None:
        super().__init__(count, thread_name_prefix="trigger")
        self.count = count
        #: Called when a function's calls have ended: the loop has something to collect.
        self.ended = ended


class Delivery:
    """Calls the function of one group."""

    def __init__(
        self,
        group: Group,
        joined: Joined,
        deaths: Deaths,
        budget_seconds: float,
        stopping: threading.Event,
        threads: Threads | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._joined = joined
        self._deaths = deaths
        self._budget_seconds = budget_seconds
        self._stopping = stopping
        self._threads = threads
        self._clock = clock

    def room(self, in_flight: int, most: int) -> int:
        """How many runs may be fetched now: no more than threads soon have a use for."""
        return most if self._threads is None else max(0, min(most, RUNS_PER_THREAD * self._threads.count - in_flight))

    def run_apart(self, held: Held, work: Callable[[], Callable[[], None]]) -> None:
        """Do something for a shard in a thread, or here; what follows is done by the thread that owns the shard."""
        if self._threads is None:
            work()()
        else:
            ended = self._threads.ended
            held.in_flight = self._threads.submit(work)
            held.in_flight.add_done_callback(lambda _done: ended())

    def deliver(self, runs: Sequence[tuple[Held, Run]]) -> Iterator[tuple[Run, RunOutcome]]:
        """Deliver runs one after the other until the while is over; those that are not answered were not begun."""
        if self._group.is_bundled:
            outcomes = self._group.deliver({run.shard: run.cells for _held, run in runs}) if runs else {}
            yield from ((run, outcomes[run.shard]) for _held, run in runs)
            return
        until = self._clock() + self._budget_seconds
        for held, run in runs:
            yield run, self._deliver(held, run, until)
            if self._clock() >= until or self._stopping.is_set():
                return

    def deliver_apart(self, held: Held, run: Run, then: Callable[[Run, RunOutcome], None]) -> None:
        """Deliver one run in a thread."""

        def work() -> Callable[[], None]:
            outcome = RunOutcome(0, None)
            if not self._stopping.is_set():
                outcome = self._deliver(held, run, self._clock() + self._budget_seconds)
            return lambda: then(run, outcome)

        self.run_apart(held, work)

    @property
    def is_apart(self) -> bool:
        return self._threads is not None and not self._group.is_bundled

    def _deliver(self, held: Held, run: Run, until: float) -> RunOutcome:
        def is_over() -> bool:
            return self._clock() >= until or self._stopping.is_set() or held.is_leaving

        held.run = run
        try:
            if held.is_careful:
                return self._deliver_noted(held, run)
            return self._deliver_run(held, run, is_over)
        finally:
            held.run = None

    def _deliver_noted(self, held: Held, run: Run) -> RunOutcome:
        """One cell that may end this process: what is noted before says so to the next one."""
        try:
            self._deaths.begin(self._group.name, held, added_id_of(run.cells[0]))
        except (SchemalessError, ProcessDied) as error:
            return RunOutcome(0, error)
        outcome = self._deliver_run(held, run, never)
        if outcome.error is not None:
            self._deaths.end(self._group.name, held)
        return outcome

    def _deliver_run(self, held: Held, run: Run, is_over: Callable[[], bool]) -> RunOutcome:
        if self._group.is_transactional:
            return self._deliver_joined(held, run, is_over)
        return self._group.deliver({run.shard: run.cells}, is_over=is_over)[run.shard]

    def _deliver_joined(self, held: Held, run: Run, is_over: Callable[[], bool]) -> RunOutcome:
        """Cell by cell: what the function puts under the cell's row commits with the offset, or not at all."""
        for done, cell in enumerate(run.cells):
            if done and is_over():
                return RunOutcome(done, None)
            staging = self._joined.staging(cell.row_key)
            error = self._group.deliver({run.shard: [cell]}, staging)[run.shard].error
            if error is None and staging.staged:
                error = self._commit(held, run, cell, staging.staged)
            if error is not None:
                return RunOutcome(done, error)
        return RunOutcome(len(run.cells), None)

    def _commit(self, held: Held, run: Run, cell: Cell, staged: Sequence[Cell]) -> Exception | None:
        added_id = added_id_of(cell)
        waiting = tuple(each for each in [*held.parking, *run.waiting] if each.added_id <= added_id)
        try:
            step = GroupStep(held.lease.fence, held.epoch, added_id, held.shard_epoch, waiting)
            self._joined.advance(self._group.name, run.shard, staged, step)
        except SchemalessError as error:
            return error
        reach("triggers.committed")
        return None
