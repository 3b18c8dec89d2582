"""`Submission`: keeps tasks of an engine at a piece of work, as many as it has a use for, until the work is over.

It decides nothing about the work: which task does what, leases say, and how far it is, the control database. So a task
that is lost is followed by another one, and one that was only believed to be lost harms nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

import click
import msgspec

from schemaless_core.control.jobs.jobs import Jobs, JobState
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.process.child import FINISH_SECONDS
from schemaless_core.process.fleet import Pauses, leave_at_once
from schemaless_core.process.seat import heard_signals
from tripstore.cli.elsewhere.engine import SubmittedTask, TaskEngine, TaskOrder, TaskOutcome
from tripstore.cli.elsewhere.errors import EngineUnavailable
from tripstore.cli.elsewhere.presence import Presence

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
#: After a task that found nothing to do.
EMPTY_SECONDS = 1.0
#: How long the last words of tasks are waited for when no part is held any more.
WORD_SECONDS = 3.0
#: Before the next tasks when one was lost.
PAUSES = Pauses()


class Left(NamedTuple):
    """What is left of the work."""

    is_over: bool
    #: For so many tasks there is something to do that none does yet.
    free: int
    #: Whether any worker does something.
    is_held: bool


class OpenWork(Protocol):
    """The work, as a submission sees it."""

    def look(self) -> Left: ...


class OpenJob:
    """A job: its parts that are free are to be done."""

    def __init__(self, jobs: Jobs, job: str) -> None:
        self._jobs = jobs
        self._job = job

    def look(self) -> Left:
        seen = self._jobs.progress(self._job)
        free = seen.parts - seen.parts_done - seen.parts_claimed
        return Left(seen.job.state is not JobState.RUNNING, free, seen.parts_claimed > 0)


class Submission:
    """Run by one thread, once. `tasks_max`: at once; None: one for each process that the engine has at that moment."""

    def __init__(
        self,
        engine: TaskEngine,
        piece: OpenWork,
        presence: Presence,
        order: TaskOrder,
        tasks_max: int | None,
        *,
        pauses: Pauses = PAUSES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        #: Tasks that ended with an error, which was said: none follows in their place.
        self.failed = 0
        #: What tasks said of themselves. A task that was lost said nothing.
        self.tasks = self.parts = self.lost = 0
        self.counts = Counter[str]()
        #: Why it ended before the work did.
        self.trouble: EngineUnavailable | None = None
        self._engine = engine
        self._piece = piece
        self._presence = presence
        self._order = order
        self._tasks_max = tasks_max
        self._pauses = pauses
        self._clock = clock
        self._running: list[SubmittedTask] = []
        self._not_before = float("-inf")
        self._pause_seconds = 0.0
        self._is_ended = threading.Event()

    def run(self) -> bool:
        """Until the work is over, a signal asks to end, or the engine is lost; whether no task is left in the midst."""
        with heard_signals(self._is_ended.set, leave_at_once):
            try:
                with self._presence:
                    self._work()
                return self._finish()
            finally:
                for task in self._running:
                    task.forget()

    def _work(self) -> None:
        while not self._is_ended.is_set():
            left = self._left()
            if left is not None and left.is_over:
                return
            self._collect(is_present=True)
            if self._engine.is_lost:
                self.trouble = EngineUnavailable(f"{self._engine.name} does not answer any more.")
                return
            try:
                places = self._places()
                if not places and not self._running:
                    return  # each task failed, and said why
                if left is not None:
                    self._refill(min(left.free, places - len(self._running)))
            except EngineUnavailable:
                pass  # the next look says whether it is lost
            self._is_ended.wait(LOOK_SECONDS)

    def _left(self) -> Left | None:
        """None: the control database is away, which the tasks wait for as well."""
        try:
            return self._piece.look()
        except SchemalessError:
            return None

    def _places(self) -> int:
        count = self._engine.count()
        waiting = len(self._running) - count
        self._presence.waits_for = f"{waiting} tasks wait for a process of {self._engine.name}" if waiting > 0 else None
        return max(0, (self._tasks_max or max(1, count)) - self.failed)

    def _refill(self, tasks: int) -> None:
        if self._clock() < self._not_before:
            return
        for _ in range(tasks):
            self._running.append(self._engine.submit(self._order))
            reach("elsewhere.submitted")

    def _collect(self, *, is_present: bool) -> None:
        for task in list(self._running):
            outcome = task.look()
            if outcome is not None:
                self._running.remove(task)
                task.forget()
                self._note(_unseen(outcome) if outcome.is_unwanted and is_present else outcome)

    def _note(self, outcome: TaskOutcome) -> None:
        self.tasks += 1
        self.parts += outcome.parts
        self.counts.update(outcome.counts)
        if outcome.has_failed:
            self.failed += 1
            click.echo(f"{outcome.worker or 'a task'}: {outcome.reason} {outcome.hint}".rstrip(), err=True)
        elif outcome.is_lost:
            self.lost += 1
            self._pause_seconds = self._pauses.after(self._pause_seconds, 0.0)
            self._not_before = self._clock() + self._pause_seconds
            extra = {"event": "elsewhere.task_lost", "job": self._order.subject, "reason": outcome.reason}
            logger.warning("a task was lost, and another one follows", extra=extra)
        elif not outcome.parts:
            self._not_before = self._clock() + EMPTY_SECONDS
        else:
            self._pause_seconds = 0.0

    def _finish(self) -> bool:
        """The tasks hear by themselves that they are not wanted; wait a while for what they say."""
        begun, left = self._clock(), Left(is_over=False, free=0, is_held=True)
        while self._running and not self._engine.is_lost:
            self._collect(is_present=False)
            left = self._left() or left
            # One that waits in the engine, or was lost with its process, never says anything.
            patience_seconds = FINISH_SECONDS if left.is_held else WORD_SECONDS
            if self._clock() - begun > patience_seconds:
                break
            time.sleep(LOOK_SECONDS)  # an engine is asked: not each of them has an event for a task that ends
        return not self._running or not left.is_held


def _unseen(outcome: TaskOutcome) -> TaskOutcome:
    """Of a task that looked for a word that is there."""
    reason = f"The control database of {outcome.host} does not know of this command: it is another one."
    hint = "Give all hosts of the engine the configuration of the command."
    return msgspec.structs.replace(outcome, reason=reason, hint=hint)
