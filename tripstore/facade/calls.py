"""`Calls`: brings a caller's operation to the authority, by the explored steps of `tripstore.handover.call`."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from schemaless_core.cell.put_errors import BatchFailed
from schemaless_core.errors import Conflict, Invalid, SchemalessError, StaleEpoch, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.store import CellStore
from tripstore import metrics
from tripstore.backends.postgres.errors import LegacyUnavailable, PostgresNotAccepted, SessionRefused, StandbyRefused
from tripstore.facade.known import Known, Sight
from tripstore.facade.latency import Latency
from tripstore.handover.authority import Authority
from tripstore.handover.call import ASK, Answer, ask, call_again
from tripstore.handover.ports import Operation, Ports, Refusal
from tripstore.handover.steps import Step, run

T = TypeVar("T")

_OUTCOMES: dict[type[SchemalessError], str] = {
    Unavailable: "unavailable",
    Conflict: "conflict",
    Invalid: "invalid",
    StaleEpoch: "stale_epoch",
    BatchFailed: "batch_failed",
}
#: Of these, what says that the backend gave no answer.
_UNANSWERED = frozenset({"unavailable", "failed"})

#: On top of what a hand-over may take.
PATIENCE_SECONDS = 3.0
#: How much longer each pause of a caller is than the one before, and the longest.
GROWTH = 1.5
PAUSE_SECONDS_MAX = 0.05


class Calls(Protocol):
    """Brings an operation to the authority."""

    def ask(self, operation: str, work: Operation[T], deadline: float | None = None) -> T:
        """Do it there; raises what the authority raises. The operation may be a class: `query_index:by_driver`.

        A hand-over is waited for as long as one may take, but no longer than the caller's own deadline.
        """
        ...


class AuthorityCalls:
    """With two stores."""

    def __init__(
        self,
        ports: Ports,
        known: Known,
        first_look: Callable[[], Authority],
        patience_seconds: float,
        latency: Latency,
    ) -> None:
        self._ports = ports
        self._known = known
        self._first_look = first_look
        self._patience_seconds = patience_seconds
        self._latency = latency

    def sight(self) -> Sight:
        """What to go by; asked of the stores when nothing is known yet."""
        waiting: _Patience | None = None
        while True:
            try:
                return self._known.sight or self._known.learn_authority(self._look())
            except PostgresNotAccepted:
                waiting = waiting or _Patience(self._patience_seconds)
                if waiting.is_over:
                    raise
                waiting.sleep(PAUSE_SECONDS_MAX)

    def is_mirrored(self) -> bool | None:
        """Whether what is put goes to the other store, too; None: which phase it is is not known yet."""
        sight = self.sight()
        return sight.route.is_mirrored if self._known.has_flags else None

    def ask(self, operation: str, work: Operation[T], deadline: float | None = None) -> T:
        sight = self.sight()
        begun = time.perf_counter()
        outcome = "ok"
        try:
            reach(ASK.name)
            value = ask(self._ports, sight.authority, work)
            if isinstance(value, Refusal):
                patience = min(self._patience_seconds, math.inf if deadline is None else deadline)
                answer = self._ask_again(operation, sight, work, begun, patience)
                sight = self._known.learn_authority(answer.authority)  # the backend that answered
                return answer.value
            self._latency.answered(operation, sight.authority.backend, time.perf_counter() - begun)
            return value
        except SchemalessError as error:
            outcome = outcome_of(error)
            if outcome in _UNANSWERED:
                self._latency.failed(operation, sight.authority.backend)
            raise
        except BaseException:
            outcome = "bug"
            raise
        finally:
            seconds = time.perf_counter() - begun
            method = operation.partition(":")[0]
            metrics.call_finished(sight.phase, method, sight.authority.backend.value, outcome, seconds)

    def _ask_again(
        self, operation: str, refused: Sight, work: Operation[T], begun: float, patience: float
    ) -> Answer[T]:
        """What this process goes by is of yesterday, or a hand-over goes on."""
        metrics.call_refused(refused.authority.backend.value)
        try:
            waiting = _Patience(patience)
            while True:
                try:
                    return run(call_again(self._ports, refused.authority, work), waiting, waiting.sleep)
                except PostgresNotAccepted as unknown:
                    sight = self._elsewhere(refused)
                    value = ask(self._ports, sight.authority, work)
                    if not isinstance(value, Refusal):
                        return Answer(value, sight.authority)
                    if waiting.is_over:
                        raise unknown
                    waiting.sleep(PAUSE_SECONDS_MAX)
        finally:
            metrics.caller_paused(operation.partition(":")[0], time.perf_counter() - begun)

    def _elsewhere(self, refused: Sight) -> Sight:
        """While Postgres is not accepted: Schemaless, where that is open. Else a watch sees to it soon."""
        try:
            return self._known.learn_authority(self._first_look())
        except LegacyUnavailable:
            return refused

    def _look(self) -> Authority:
        try:
            return self._ports.control.authority()
        except (StandbyRefused, SessionRefused, PostgresNotAccepted) as refused:
            try:
                return self._first_look()
            except LegacyUnavailable as shut:
                raise refused from shut  # that is what is to be mended
        except LegacyUnavailable:
            return self._first_look()


class _Patience:
    """Ends a call that no store takes: a hand-over is over, or undone, long before.

    All waiting calls read the same row of a database that has other work just then: each reads it less and less often.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._growth = 1.0

    def sleep(self, seconds: float) -> None:
        # No server tells a caller that the row has changed: it can only look again.
        time.sleep(min(seconds * self._growth, PAUSE_SECONDS_MAX) * random.uniform(0.5, 1.0))
        self._growth *= GROWTH

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._until

    def __call__(self, _step: Step) -> None:
        if self.is_over:
            raise Unavailable(
                "Neither backend takes the call: the authority does not open.",
                hint="`tripstore cutover status` says which backend is to open, and what is in the way.",
            )


class SingleCalls:
    """With one store: there is no legacy store in the configuration, any more or yet."""

    def __init__(self, store: CellStore) -> None:
        self._store = store

    def ask(self, operation: str, work: Operation[T], deadline: float | None = None) -> T:
        return work(self._store)


def outcome_of(error: SchemalessError) -> str:
    return next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), "failed")
