"""`NumberRanges`: numbers that this process has drawn from the company's sequences and not given to a caller yet.

A range is what a session's cache of a sequence is: it stands in this process alone, and the sequence is ahead of it.
So no two processes ever give the same number, a fork begins without any, and what a process that ends had left is a
gap. While Postgres is down, appends go on as long as the range lasts.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from schemaless_core.deadline import Deadline
from schemaless_core.errors import InvalidServer, SchemalessError, Unavailable
from schemaless_core.servers.looks import SharedLook
from tripstore import metrics
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable
from tripstore.backends.postgres.numbers.numbers import Numbers
from tripstore.backends.postgres.numbers.sequences import NumberSequence
from tripstore.backends.postgres.wire.translation import LockTimeout

logger = logging.getLogger(__name__)

#: A range is to last so long at the rate at which numbers were taken last; within these bounds.
LAST_SECONDS = 300.0
COUNT_MIN, COUNT_MAX = 100, 50_000
#: A caller waits so long for a number, and the thread that draws a range in the background so long.
DRAW_SECONDS = 0.5
RANGE_SECONDS = 5.0
#: After Postgres was silent this process does not ask it again for so long.
SILENT_SECONDS = 1.0


@dataclass
class _Range:
    """Of one column, in order."""

    sequence: NumberSequence
    numbers: list[int] = field(default_factory=list)
    count: int = 0
    drawn_at: float = -math.inf

    def wanted(self, now: float) -> int:
        """How many there are to be after the next draw."""
        taken, seconds = self.count - len(self.numbers), max(now - self.drawn_at, 0.001)
        return max(COUNT_MIN, min(COUNT_MAX, math.ceil(taken / seconds * LAST_SECONDS)))


class NumberRanges:
    """Of one process."""

    def __init__(self, numbers: Numbers, clock: Callable[[], float] = time.monotonic) -> None:
        self._numbers = numbers
        self._clock = clock
        self.after_fork()

    def after_fork(self) -> None:
        """What was drawn is the parent's."""
        self._lock = threading.Lock()
        self._ranges: dict[str, _Range] = {}
        self._silent_until = -math.inf
        self._look = SharedLook("numbers", self._fill_all, threading.Condition())

    def take(self, column_name: str, sequence: NumberSequence, above: int | None, *, must_follow: bool) -> int:
        """A number that no row has and no other writer will get, above that of the parent's latest row if there is one.

        Where another process has appended a higher one, that takes a number just drawn; where the sequence itself is
        behind, it is moved. With Postgres down it is a lower one of the range, unless it `must_follow`. Of a sequence
        that begins anew there is no range: it may give again what stands in one.
        """
        if not (sequence.rises or must_follow):
            above = None
        number = self._taken(column_name, sequence, above)
        if number is not None:
            return number
        try:
            number = self._new(column_name, sequence, above)
        except Unavailable as error:
            number = None if must_follow else self._taken(column_name, sequence, None)
            if number is None:
                raise LegacyUnavailable(
                    f"No number is left for a row of {column_name}, and Postgres, which has more, does not answer.",
                    hint="Repeat it when Postgres answers; puts with a ref key of their own go on.",
                ) from error
        if number is None and not must_follow:
            number = self._taken(column_name, sequence, None)
        if number is None:
            raise LegacyRefused(
                f"Sequence {sequence.name} gives no number above {above}, and below it rows of {column_name} are gone.",
                hint="Move the sequence above it, or put the cell with a ref key of your own.",
            )
        return number

    def _new(self, column_name: str, sequence: NumberSequence, above: int | None) -> int | None:
        """A number just drawn; None: the sequence gives none above, though it was moved there as far as may be."""
        is_empty = not self._range(column_name, sequence).numbers
        count = COUNT_MIN if is_empty and not sequence.cycles else 1
        for is_last in (False, True):
            drawn = self._drawn(sequence, count, DRAW_SECONDS)
            number = next((each for each in drawn if above is None or each > above), None)
            rest = [each for each in drawn if each != number]
            if rest and not sequence.cycles:
                self._keep(column_name, sequence, rest)
            if number is not None or is_last or not sequence.rises:
                return number
            assert above is not None  # any number would have done
            self.passes(sequence, above)
        return None

    def passes(self, sequence: NumberSequence, number: int) -> None:
        """The caller puts a number of its own: the sequence is moved ahead of it, if Postgres answers.

        Else the reverse mirror does it before it writes the row. A transaction that draws keeps it from being moved;
        most of them are short, as those of this process are.
        """
        if self._clock() < self._silent_until:
            return
        deadline = Deadline(DRAW_SECONDS)
        try:
            while True:
                try:
                    self._numbers.pass_number(sequence, number, deadline)
                except LockTimeout:
                    if deadline.is_over:
                        raise
                else:
                    return
        except SchemalessError as error:
            # A refused privilege and a lock that is held are answers, and numbers come.
            if not isinstance(error, InvalidServer | LockTimeout):
                self._silent_until = self._clock() + SILENT_SECONDS
            extra = {"event": "legacy.sequence_behind", "sequence": sequence.name, "number": number}
            logger.warning("a sequence could not be moved ahead: %s", error.message, extra=extra)

    def _taken(self, column_name: str, sequence: NumberSequence, above: int | None) -> int | None:
        """One of the range, if there is one above; below half a range is drawn anew beside the calls."""
        with self._lock:
            mine = self._range_of(column_name, sequence)
            place = 0 if above is None else bisect_right(mine.numbers, above)
            if place == len(mine.numbers):
                return None
            number = mine.numbers.pop(place)
            is_low = len(mine.numbers) * 2 < mine.count
        if is_low and self._clock() >= self._silent_until:
            self._look.request_alone()
        return number

    def _drawn(self, sequence: NumberSequence, count: int, seconds: float) -> list[int]:
        if self._clock() < self._silent_until:
            raise LegacyUnavailable("Postgres was silent a moment ago.", hint="Repeat it.")
        try:
            drawn = self._numbers.draw(sequence, count, Deadline(seconds), is_durable=True)
        except Unavailable:
            self._silent_until = self._clock() + SILENT_SECONDS
            raise
        metrics.numbers_drawn(len(drawn))
        return drawn

    def _keep(self, column_name: str, sequence: NumberSequence, drawn: list[int]) -> None:
        with self._lock:
            mine = self._range_of(column_name, sequence)
            mine.numbers = sorted([*mine.numbers, *drawn])
            mine.count, mine.drawn_at = len(mine.numbers), self._clock()

    def _fill_all(self) -> None:
        """Draw what ranges lack; a caller that finds one empty meanwhile draws for itself."""
        with self._lock:
            ranges = dict(self._ranges)
        for column_name, mine in ranges.items():
            lacking = mine.wanted(self._clock()) - len(mine.numbers)
            if lacking > 0 and len(mine.numbers) * 2 < mine.count:
                try:
                    self._keep(column_name, mine.sequence, self._drawn(mine.sequence, lacking, RANGE_SECONDS))
                except SchemalessError as error:
                    logger.info("no numbers were drawn: %s", error.message, extra={"event": "numbers.not_drawn"})

    def _range(self, column_name: str, sequence: NumberSequence) -> _Range:
        with self._lock:
            return self._range_of(column_name, sequence)

    def _range_of(self, column_name: str, sequence: NumberSequence) -> _Range:
        """That of the column, as long as its sequence is this one; numbers of another are not given."""
        mine = self._ranges.get(column_name)
        if mine is None or mine.sequence.name != sequence.name:
            mine = self._ranges[column_name] = _Range(sequence)
        return mine
