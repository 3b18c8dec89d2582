"""`Reads`: brings a read to the authority, or to the mirror for a cohort, and hands some of them to the shadow."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol, Self
from uuid import UUID

from schemaless_core.calls.using import Using
from schemaless_core.cell.answers import Scalar
from schemaless_core.errors import Invalid, SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.store import CellStore
from tripstore import metrics
from tripstore.engines.validation.reads import Incomparable, Read
from tripstore.facade.calls import AuthorityCalls
from tripstore.facade.cohorts import Cohorts, NoCohorts
from tripstore.facade.known import Sight
from tripstore.facade.latency import Latency
from tripstore.facade.shadowing import Shadowing
from tripstore.handover.authority import Backend

logger = logging.getLogger(__name__)


class ReadCalls(Protocol):
    """Answers reads."""

    def read(self, operation: str, keys: tuple[UUID | Scalar, ...], using: Using, arguments: dict[str, Any]) -> Any:
        """Answer a read of these rows, or of a shard value, with the arguments of the API by name."""
        ...

    def at_authority(self) -> Self:
        """Return the same without cohorts."""
        ...


class Reads:
    """With two stores."""

    def __init__(
        self,
        calls: AuthorityCalls,
        cohorts: Cohorts | NoCohorts,
        shadowing: Shadowing,
        mirror_of: Callable[[Backend], CellStore],
        cohort_seconds: float,
        latency: Latency,
        incomparable: Incomparable = (),
    ) -> None:
        """`incomparable`: what the mirror raises when it is well and knows no answer."""
        self._calls = calls
        self._cohorts = cohorts
        self._shadowing = shadowing
        self._mirror_of = mirror_of
        self._cohort_seconds = cohort_seconds
        self._latency = latency
        self._incomparable = incomparable

    def read(self, operation: str, keys: tuple[UUID | Scalar, ...], using: Using, arguments: dict[str, Any]) -> Any:
        sight = self._calls.sight()
        index = arguments.get("index")
        name = operation if index is None else f"{operation}:{index}"
        if not sight.route.asks_other:
            return self._ask_authority(name, operation, using, arguments)
        percents = sight.flags.cohorts(sight.authority.backend)
        is_of_mirror = False
        answer: Any = None
        begun = time.perf_counter()  # before anything that speaks for the mirror is looked at
        if (
            percents
            and arguments.get("consistency") != "verified"
            and self._cohorts.takes(percents, name, keys, sight.authority.epoch)
        ):
            answer, is_of_mirror = self._ask_mirror(sight, begun, name, operation, using, arguments)
        if not is_of_mirror:
            answer = self._ask_authority(name, operation, using, arguments)
        if self._shadowing.takes(sight, name):
            rows = tuple(key for key in keys if isinstance(key, UUID)) if index is None else ()
            # By the row that answered it: the hand-over may have been in between.
            self._shadowing.offer(
                self._calls.sight(), Read(operation, arguments, rows), answer, is_of_mirror=is_of_mirror
            )
        return answer

    def at_authority(self) -> Self:
        other = copy.copy(self)
        other._cohorts = NoCohorts()
        return other

    def _ask_authority(self, name: str, operation: str, using: Using, arguments: dict[str, Any]) -> Any:
        return self._calls.ask(name, lambda store: getattr(using(store), operation)(**arguments), using.deadline)

    def _ask_mirror(
        self, sight: Sight, begun: float, name: str, operation: str, using: Using, arguments: dict[str, Any]
    ) -> tuple[Any, bool]:
        """The mirror's answer and True; False: the authority is to be asked."""
        mirrored = sight.authority.backend.other
        reach("cohort.ask")
        try:
            mirror = using.within(self._cohort_seconds)(self._mirror_of(sight.authority.backend))
            answer = getattr(mirror, operation)(**arguments)
            reach("cohort.answered")
        except Invalid:
            return None, False  # the call is wrong, and the authority says so
        except self._incomparable:
            self._cohorts.answered()
            metrics.cohort_read(name, "incomparable")
            return None, False
        except SchemalessError:
            pass
        except Exception:
            # The mirror's own faults are not the caller's (I10).
            logger.exception("a cohort's read broke", extra={"event": "facade.cohort_broken", "operation": name})
        else:
            seconds = time.perf_counter() - begun
            self._cohorts.answered()
            if not self._is_of_now(sight, seconds):
                metrics.cohort_read(name, "late")
                return None, False
            self._latency.answered(name, mirrored, seconds)
            metrics.cohort_read(name, "answered")
            return answer, True
        self._latency.failed(name, mirrored)
        self._cohorts.failed()
        metrics.cohort_read(name, "failed")
        return None, False

    def _is_of_now(self, sight: Sight, seconds: float) -> bool:
        """Whether what spoke for the mirror still does.

        No fence refuses a cohort's read. A process that was stopped meanwhile does not know what became of the mirror
        since, nor of the authority: all that it has is how long the answer took.
        """
        is_same = self._calls.sight().authority.epoch == sight.authority.epoch
        return is_same and seconds <= self._cohort_seconds


class SingleReads:
    """With one store."""

    def __init__(self, store: CellStore) -> None:
        self._store = store

    def read(self, operation: str, keys: tuple[UUID | Scalar, ...], using: Using, arguments: dict[str, Any]) -> Any:
        return getattr(using(self._store), operation)(**arguments)

    def at_authority(self) -> Self:
        return self
