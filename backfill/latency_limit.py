"""`LatencyLimit`: a job slows down while a statement that services would run takes too long, and recovers."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from schemaless_core.errors import Unavailable
from schemaless_core.told import Told
from tripstore.engines.backfill import metrics
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.engines.backfill.throttle import (
    LOOK_SECONDS,
    SHARE_MIN,
    Clock,
    Leave,
    Limit,
    Pause,
    SourceWork,
    Throttle,
)

logger = logging.getLogger(__name__)

#: Between two probes: of its answer to the one, and the next.
EVERY_SECONDS = 0.5
#: Until the first answer it is looked at so often.
SAMPLE_SECONDS = 0.1
#: From one probe that was quick to the next: the job does so many times as much.
GROWTH = 1.5
#: After one that was slow it does half at most.
FALL = 0.5
#: A worker hears of probes between two chunks; of so many at most.
HEARD_MAX = 64


class LatencyProbe(Protocol):
    """A statement that an operator chose, run as services would run it."""

    def measure(self) -> float:
        """How long it took, in seconds. One without an answer in its time: for how long it was waited for.

        `Unavailable`: it could not be run now, and may be later. Any other error: not before something is changed.
        """
        ...

    def close(self) -> None:
        """Let go of its connection."""
        ...


class LatencyWatch:
    """Runs a probe from a thread of its own, also while a chunk is copied: that is when services suffer."""

    def __init__(self, probe: LatencyProbe, every_seconds: float = EVERY_SECONDS) -> None:
        self._probe = probe
        self._every_seconds = every_seconds
        self._heard: deque[float | Exception] = deque(maxlen=HEARD_MAX)
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Unless it has begun."""
        if self._thread is None:
            self._is_over.clear()
            self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
            self._thread.start()

    def heard(self) -> Iterator[float | Exception]:
        """What was measured since, the oldest first; or why it could not be."""
        while self._heard:
            yield self._heard.popleft()

    def close(self) -> None:
        """After the probe at hand, which has its deadline."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._is_over.set()
            thread.join()
            self._heard.clear()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._heard.append(self._measured())
            self._is_over.wait(self._every_seconds)
        self._probe.close()

    def _measured(self) -> float | Exception:
        try:
            seconds = self._probe.measure()
        except Exception as error:  # noqa: BLE001  # it is raised, or told, where it is heard
            return error
        metrics.probed(seconds)
        return seconds


class LatencyLimit(Throttle):
    """The source is at work for a share of the time, which halves with each slow probe and grows with each quick one.

    A probe that is slow ten times over takes it to a tenth at once; one without an answer to a trickle, which is left
    in any case, as by a limit on the load.
    """

    def __init__(
        self, most_seconds: float, deadline_seconds: float, watch: LatencyWatch, *, clock: Clock = time.monotonic
    ) -> None:
        self._most = most_seconds
        self._deadline = deadline_seconds
        self._watch = watch
        self._work = SourceWork(clock)
        self._share = 1.0
        self._seconds: float | None = None
        self._trouble = ""

    def pause(self) -> Pause | None:
        self._watch.begin()
        for found in self._watch.heard():
            self._hear(found)
        if self._trouble:
            return Pause(LOOK_SECONDS, f"the probe's latency is unknown: {self._trouble}", Limit.PROBE)
        if self._seconds is None:
            return Pause(SAMPLE_SECONDS, "the probe is waited for", None)
        owed_seconds = self._work.owed_seconds(self._share)
        return Pause(min(owed_seconds, SAMPLE_SECONDS), self._reason, Limit.PROBE) if owed_seconds else None

    @property
    def leave(self) -> Leave:
        return Leave(self._share, self._reason, Limit.PROBE) if self._share < 1 else Leave()

    def copied(self, rows: int, source_seconds: float, blocks_read: int = 0) -> None:
        self._work.did(source_seconds)

    def close(self) -> None:
        self._watch.close()
        self._seconds = None

    @property
    def _reason(self) -> str:
        seconds, limit = self._seconds or 0.0, f"the limit is {1000 * self._most:g} ms"
        latency = 1000 * seconds
        if seconds >= self._deadline:
            return f"the probe had no answer within {1000 * self._deadline:g} ms, {limit}"
        if seconds > self._most:
            return f"the probe took {latency:,.0f} ms, {limit}"
        return f"the probe takes {latency:,.0f} ms again, {limit}; {100 * self._share:.0f} % of the time is used"

    def _hear(self, found: float | Exception) -> None:
        if isinstance(found, Unavailable):
            self._trouble = str(found) or type(found).__name__
            return
        if isinstance(found, Exception):
            raise _cannot(found)
        self._trouble, self._seconds = "", found
        if found >= self._deadline:
            self._share = SHARE_MIN
        elif found > self._most:
            self._share = max(SHARE_MIN, self._share * min(FALL, self._most / found))
        else:
            self._share = min(1.0, self._share * GROWTH)


def _cannot(error: Exception) -> CannotCopy:
    told = error.message if isinstance(error, Told) else f"{type(error).__name__}: {error}"
    hint = "Mend it or its rights, then resume the job; `resume --max-probe-seconds 0` goes on without a probe."
    return CannotCopy(f"The probe (throttle.probe) cannot be run: {told}", hint=hint)
