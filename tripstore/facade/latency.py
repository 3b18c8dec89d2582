"""`Latency`: how long each backend takes per operation class, for callers and shadow reads; how late the mirror is.

Both go to the ledger of timings, and from there into the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from schemaless_core.control.ledgers.timings import Timed, Timing, TimingLedger
from schemaless_core.datastore import Datastore
from schemaless_core.store import CellStore
from tripstore.engines.validation.experiment.trial import Trial
from tripstore.engines.validation.reads import Read
from tripstore.handover.authority import Backend

#: The first word of what is timed.
CALL, LAG = "call", "lag"


class Asker(StrEnum):
    """What kind of thread asked a backend."""

    CALLERS = "callers"  #: A caller waited for the answer.
    SHADOW = "shadow"  #: A shadow read, on a thread beside the callers.


#: As plain strings: those of an enum are hashed by Python, and every call waits for that.
_CALLERS, _SHADOW = Asker.CALLERS.value, Asker.SHADOW.value


class Latency:
    """The latencies of one process. Counting delays no caller (I10)."""

    def __init__(self, timings: TimingLedger) -> None:
        self._timings = timings

    def answered(self, operation: str, backend: Backend, seconds: float) -> None:
        """A caller's question was answered."""
        self._timings.count((CALL, operation, backend.value, _CALLERS), seconds)

    def failed(self, operation: str, backend: Backend) -> None:
        """The backend gave a caller no answer."""
        self._timings.count_unanswered((CALL, operation, backend.value, _CALLERS))

    def shadow_asked(self, read: Read, store: CellStore, seconds: float, is_answered: bool) -> None:
        """A shadow read has asked a store."""
        if read.is_noise or isinstance(read, Trial):
            return  # the same store for the second time, which had everything at hand; or no store
        backend = Backend.STORE if isinstance(store, Datastore) else Backend.LEGACY
        timed: Timed = (CALL, read.name, backend.value, _SHADOW)
        if is_answered:
            self._timings.count(timed, seconds)
        else:
            self._timings.count_unanswered(timed)

    def late(self, direction: str, seconds: float) -> None:
        """The mirror was looked at: the oldest change that it lacks is so old."""
        self._timings.count((LAG, direction), seconds)


def calls_of(timings: Mapping[Timed, Timing]) -> Counter[str]:
    """By operation class, the calls of callers: what the shadow asked is none."""
    found = Counter[str]()
    for timed, timing in timings.items():
        if timed[0] == CALL and timed[3] == _CALLERS:
            found[timed[1]] += timing.answered + timing.unanswered
    return found
