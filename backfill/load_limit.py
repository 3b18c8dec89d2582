"""`LoadLimit`: a backfill takes what others leave of the source, and owes what it took too much."""

from __future__ import annotations

import math
import time

from tripstore.engines.backfill.throttle import (
    LOOK_SECONDS,
    SHARE_MIN,
    Clock,
    Leave,
    Limit,
    Pause,
    Probe,
    SourceWork,
    Throttle,
)

#: Of this time the sessions at work are averaged, and looked at so often.
LOAD_SECONDS, SAMPLE_SECONDS = 10.0, 0.1
#: So many looks are the first that is known of them.
FIRST_LOOKS = 10
#: The average of so short a time is believed as well where it is higher by more than chance makes it: by so many roots
#: of the long average, and by a session.
RISE_SECONDS, RISE_ROOTS = 1.0, 2.0


class LoadLimit(Throttle):
    """So many sessions of the source may be at work on average, this worker's own included.

    Those of others are counted now and then; its own share of the time is known. So what they leave is used and no
    more: when half a session is left, the source rests for half of the time in which a chunk is read, and if it did
    not, a chunk that was read for a second begins two seconds after the one before. While it is written the source
    rests.
    """

    def __init__(self, most: float, others: Probe, *, clock: Clock = time.monotonic) -> None:
        self._most = most
        self._others = others
        self._clock = clock
        self._looked_at = self._look_at = clock()
        self._work = SourceWork(clock)
        self._trouble = ""
        self._begin_anew()

    def pause(self) -> Pause | None:
        now = self._clock()
        if now >= self._look_at:
            self._look(now)
        if self._trouble:
            return Pause(LOOK_SECONDS, f"the load of the source is unknown: {self._trouble}", Limit.LOAD)
        if self._average.looks < FIRST_LOOKS:
            return Pause(SAMPLE_SECONDS, "the load of the source is looked at", None)
        # By what is known now: a load that fell ends a long pause.
        owed_seconds = self._work.owed_seconds(self.leave.share)
        return Pause(min(owed_seconds, SAMPLE_SECONDS), self._reason, Limit.LOAD) if owed_seconds else None

    @property
    def leave(self) -> Leave:
        share = max(SHARE_MIN, min(1.0, self._most - self._load))
        return Leave(share, self._reason, Limit.LOAD) if share < 1 else Leave()

    def copied(self, rows: int, source_seconds: float, blocks_read: int = 0) -> None:
        self._work.did(source_seconds)

    @property
    def _load(self) -> float:
        chance = max(1.0, RISE_ROOTS * math.sqrt(self._average.value))
        return max(self._average.value, self._late.value - chance)

    @property
    def _reason(self) -> str:
        return f"{self._load:.1f} sessions of others are at work, the limit is {self._most:g}"

    def _look(self, now: float) -> None:
        try:
            found = self._others()
        except Exception as error:  # noqa: BLE001  # whatever keeps the source from saying it: the load is unknown
            self._trouble = str(error) or type(error).__name__
            self._begin_anew()
            self._look_at = now + LOOK_SECONDS
            return
        self._trouble = ""
        if now - self._looked_at > LOAD_SECONDS:
            self._begin_anew()  # whatever it was, it is not any more
        for average in (self._average, self._late):
            # However long ago the last look was, this is one.
            average.hear(found, min(now - self._looked_at, LOOK_SECONDS))
        self._looked_at, self._look_at = now, now + SAMPLE_SECONDS

    def _begin_anew(self) -> None:
        #: Of others, on average; and of late.
        self._average, self._late = _Average(LOAD_SECONDS), _Average(RISE_SECONDS)


class _Average:
    """Of the last seconds. One look sees whole sessions: what they do on average takes many."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.value = 0.0
        self.looks = 0

    def hear(self, found: float, seconds: float) -> None:
        """What the look found, so long after the one before. The first ones count alike."""
        self.looks += 1
        news = max(1 - math.exp(-seconds / self._seconds), 1 / self.looks)
        self.value += news * (found - self.value)
