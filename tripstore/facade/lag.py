"""`Lag`: what the mirror has not got yet, as this process knows it: how far behind it is, and which rows it wrote.

The mirror is looked at every now and then; what is known is old by that much, and is not believed when it is older.
It is of one epoch of the authority: another one has another mirror.

Not every row that was written is remembered: none while no cohort is set, and no more than so many. The mirror answers
no read until it is seen to have come to a place where all that was written by then lay behind it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

#: What is known is believed so long. A process that was stopped knows nothing any more.
BELIEVED_SECONDS = 0.5
#: Rows that are remembered; with more of them every read goes to the authority.
ROWS_MAX = 10_000

#: A place in the queue, or in the log of each shard.
Place = int | Mapping[int, int]


class Objection(StrEnum):
    """Why the mirror answers no read of a cohort."""

    #: It was not looked at lately, or another one was.
    NOT_KNOWN = "not_known"
    #: This process wrote rows that it does not remember, and is not seen to have all that was written by then.
    NOT_REMEMBERED = "not_remembered"
    #: It is further behind than `max_lag`.
    BEHIND = "behind"
    #: It lacks what this process wrote of a row, or what was left behind of it.
    MISSING = "missing"


class Lost(NamedTuple):
    """Writes of which no row is remembered."""

    #: The how-manieth loss it is.
    number: int
    #: Where the mirror has it; None: such a place was not asked for yet.
    place: Place | None


class Pending(NamedTuple):
    """What is not seen to have arrived."""

    #: Rows, and when each was written last.
    rows: Mapping[Any, float]
    lost: Lost | None


class LagLook(NamedTuple):
    """What the mirror has of it."""

    begun_at: float
    #: How far it is behind.
    seconds: float
    #: Of the pending rows, those that it lacks.
    missing: Collection[Any] = ()
    #: Where it has all that was lost.
    place: Place | None = None
    is_past_place: bool = False
    #: Rows of which the mirror has left something behind on its way there: they are missing.
    left: Collection[Any] = ()


class Lag:
    """One for all stores of a process."""

    def __init__(self, max_lag_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_lag_seconds = max_lag_seconds
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        #: When each row was written last.
        self._rows: dict[Any, float] = {}
        #: How often something was written that is not remembered, and up to which of these all has arrived.
        self._losses = self._arrived = 0
        #: Of which epoch it is, and where the mirror has a loss.
        self._lost: tuple[int, Lost] | None = None
        self._is_watched = False
        self._seconds = math.inf
        self._known_at = -math.inf
        self._epoch = -1

    def after_fork(self) -> None:
        self._begin()

    def watch(self, *, is_watched: bool) -> None:
        """Whether `allows` is going to be asked: only then rows are remembered."""
        with self._lock:
            if is_watched and not self._is_watched:
                self._losses += 1  # whatever was written until now
            self._is_watched = is_watched
            if not is_watched:
                self._rows.clear()

    def wrote(self, row_keys: Iterable[Any]) -> None:
        """This process has written, or may have."""
        if not self._is_watched:
            return
        now = self._clock()
        with self._lock:
            for row_key in row_keys:
                if len(self._rows) >= ROWS_MAX and row_key not in self._rows:
                    self._losses += 1
                    return
                self._rows[row_key] = now

    def pending(self, epoch: int) -> Pending:
        """What to look for in the mirror that there is at this epoch."""
        with self._lock:
            return Pending(dict(self._rows), self._lost_at(epoch))

    def looked(self, epoch: int, pending: Pending, look: LagLook) -> None:
        """The mirror of this epoch was looked at, for what was pending before."""
        missing = frozenset(look.missing)  # thousands may be, of thousands that are asked for
        with self._lock:
            for row_key, written_at in pending.rows.items():
                if row_key not in missing and self._rows.get(row_key) == written_at and written_at < look.begun_at:
                    del self._rows[row_key]
            if pending.lost is not None:
                self._arrive(epoch, pending.lost, look)
            self._seconds, self._known_at, self._epoch = look.seconds, look.begun_at, epoch

    def allows(self, rows: Collection[Any], epoch: int) -> bool:
        """Whether the mirror may answer: it is close, and has what this process wrote of these rows; () is any row."""
        return self.objection(rows, epoch) is None

    def objection(self, rows: Collection[Any], epoch: int) -> Objection | None:
        """What speaks against it."""
        if not self._is_watched or self._epoch != epoch or self._clock() - self._known_at > BELIEVED_SECONDS:
            return Objection.NOT_KNOWN
        if self._losses > self._arrived:
            return Objection.NOT_REMEMBERED
        if self._seconds > self._max_lag_seconds:
            return Objection.BEHIND
        is_missing = any(row in self._rows for row in rows) if rows else bool(self._rows)
        return Objection.MISSING if is_missing else None

    def _lost_at(self, epoch: int) -> Lost | None:
        if self._losses == self._arrived:
            return None
        if self._lost is not None and self._lost[0] == epoch:
            return self._lost[1]
        return Lost(self._losses, None)

    def _arrive(self, epoch: int, lost: Lost, look: LagLook) -> None:
        """What was lost later than the place was asked for needs a place of its own."""
        if look.is_past_place and len(self._rows) + len(look.left) <= ROWS_MAX:
            for row_key in look.left:
                self._rows.setdefault(row_key, look.begun_at)
            self._arrived, self._lost = max(self._arrived, lost.number), None
        elif look.place is not None:
            self._lost = epoch, Lost(lost.number, look.place)
