"""`SparedTurns`: a diff reads Postgres by turns, as its limits allow, and says which of them holds.

The throttles are those of a backfill. A turn is its chunk: so many rows of a pass over the tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from schemaless_core.control.jobs.jobs import Job, Jobs
from schemaless_core.errors import ControlUnavailable, SchemalessError
from tripstore.engines.backfill import metrics as backfill_metrics
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.engines.backfill.limit_news import HeldUp, LimitNews
from tripstore.engines.backfill.speed import Speed
from tripstore.engines.backfill.throttle import LOOK_SECONDS, Clock, Pause, Throttle
from tripstore.engines.validation import metrics
from tripstore.engines.validation.diff.step_turns import Attended, StepGivenUp

#: Of one turn at most: as many as are compared in a third of a second. While the source is to rest fewer.
ROWS_PER_TURN, ROWS_RESTING = 20_000, 2_000
#: Between two words about its progress.
TELL_SECONDS = 1.0
#: At one go: a waiting worker looks after each whether it is to go on.
TICK_SECONDS = 0.5


class SparedTurns:
    """The `Turns` of what is read, and the `StepTurns` of the worker that reads."""

    def __init__(
        self, jobs: Jobs, job: Job, throttle: Throttle, *, counts_blocks: bool, clock: Clock = time.monotonic
    ) -> None:
        self._jobs = jobs
        self._job = job
        self._throttle = throttle
        self.counts_blocks = counts_blocks
        self._clock = clock
        self._speed = Speed(clock)
        self._news = LimitNews(job.id, clock)
        self._told_at = clock() - TELL_SECONDS
        self._worker: Attended | None = None

    def attend(self, worker: Attended) -> None:
        self._worker = worker

    def wait(self) -> None:
        """Until a step may begin. What it reads by turns it pays for then."""
        self._wait(self._throttle.pause)

    def next_rows(self) -> int:
        self.wait()
        leave = self._throttle.leave
        most = ROWS_PER_TURN if leave.share >= 1 else ROWS_RESTING
        rows = most if leave.rows_max is None else min(most, leave.rows_max)
        self._wait(partial(self._throttle.take, rows))
        self._news.begins(leave)
        return rows

    def read(self, rows: int, seconds: float, blocks_read: int) -> None:
        self._throttle.copied(rows, seconds, blocks_read)
        self._speed.copied(rows)
        backfill_metrics.blocks_read(blocks_read)
        self._tell(self._news.told)

    def stepped(self, rows_per_second: float) -> None:
        if self._worker is not None:
            self._worker.tell(rows_per_second, *self._news.told())

    def close(self) -> None:
        self._throttle.close()

    def _wait(self, ask: Callable[[], Pause | None]) -> None:
        while (pause := self._pause(ask)) is not None:
            self._news.waits(pause)
            metrics.diff_throttled(pause.limit, pause.seconds)
            self._rest(pause.seconds, HeldUp.by(pause.reason, pause.limit))

    def _pause(self, ask: Callable[[], Pause | None]) -> Pause | None:
        self._go_on()
        try:
            return ask()
        except ControlUnavailable as error:  # it knows whose turn it is
            return Pause(LOOK_SECONDS, error.message, None)
        except CannotCopy as error:
            with suppress(SchemalessError):  # an operator cancelled it meanwhile; or the next worker says it
                self._jobs.pause(self._job.kind, self._job.id, str(error))
            raise StepGivenUp from error

    def _rest(self, seconds: float, why: HeldUp) -> None:
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            self._tell(lambda: why)
            if self._worker is not None:
                self._worker.rest(min(left, TICK_SECONDS))
            self._go_on()

    def _go_on(self) -> None:
        if self._worker is not None and self._worker.is_ended():
            raise StepGivenUp

    def _tell(self, why: Callable[[], HeldUp]) -> None:
        now = self._clock()
        if self._worker is None or now - self._told_at < TELL_SECONDS:
            return
        self._told_at = now
        held_up = why()
        self._worker.tell(self._speed.per_second(), held_up.reason, held_up.limit)
