"""`Relay`: carries the queue to Schemaless, for as long as Postgres is the authority and the phase is mirrored.

Any number of them, in any number of processes; one that is killed leaves a claim that runs out. Nothing that happens to
the mirror reaches a service: a relay that cannot deliver rests, up to a second, and asks for less.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Self

from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import FailpointReached
from tripstore import metrics
from tripstore.backends.postgres.handover.queue import QueueLook
from tripstore.migration.mirror.carrier import Carrier
from tripstore.migration.mirror.pace import RelayPace

logger = logging.getLogger(__name__)

#: While there is nothing to carry.
IDLE_SECONDS = 0.1
#: Between two looks at the lag; a look at a long queue takes its time, and the pause grows with it.
LOOK_SECONDS = 1.0
LOOK_SHARE = 20


class Relay:
    """One thread. A context manager: leaving it lets the claim at hand be finished."""

    def __init__(
        self,
        carrier: Carrier,
        look: Callable[[], QueueLook],
        may_carry: Callable[[], bool],
        is_read: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._carrier = carrier
        self._look = look
        self._may_carry = may_carry
        self._is_read = is_read
        self._clock = clock
        self._pace = RelayPace()
        self._look_at = clock()
        self._failures = 0
        self._is_carrying: bool | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self.run, name="relay", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        """Carry until `stop`."""
        while not self._ended.is_set():
            self._ended.wait(self.turn())

    def turn(self) -> float:
        """Carry one claim, if the mirror is to be carried; how long to rest then."""
        try:
            return self._turn()
        except FailpointReached:
            raise
        except Exception as error:  # noqa: BLE001  # the mirror's edge: whatever it is, it must not end the relay
            return self._failed(error)

    def _turn(self) -> float:
        if not self._is_to_carry():
            return IDLE_SECONDS
        self._note_lag()
        started = self._clock()
        carried = self._carrier.carry(self._pace.limit)
        seconds = self._clock() - started
        rest_seconds = self._pace.after(carried, seconds, is_read=self._is_read())
        if carried.is_stuck:
            self._note_failure("undelivered", f"nothing of {carried.claimed} claimed cells was taken")
        elif carried.claimed:
            metrics.relay_turned(seconds, self._pace.limit)
            self._note_success()
        return rest_seconds

    def _is_to_carry(self) -> bool:
        is_carrying = self._may_carry()
        if is_carrying is not self._is_carrying:
            self._is_carrying = is_carrying
            self._tell(is_carrying)
        return is_carrying

    def _tell(self, is_carrying: bool) -> None:
        if is_carrying:
            logger.info("the relay carries", extra={"event": "mirror.relay_carries"})
        else:
            metrics.mirror_idle("forward")
            logger.info("the relay has nothing to carry in this phase", extra={"event": "mirror.relay_rests"})

    def _note_lag(self) -> None:
        if self._clock() < self._look_at:
            return
        started = self._clock()
        seen = self._look()
        metrics.mirror_seen("forward", seen.queued - seen.parked, seen.seconds, seen.parked)
        ended = self._clock()
        self._look_at = ended + max(LOOK_SECONDS, LOOK_SHARE * (ended - started))

    def _failed(self, error: Exception) -> float:
        cause = type(error).__name__
        if isinstance(error, SchemalessError):
            self._note_failure(cause, error.message)
        else:
            logger.exception("a bug: the relay goes on", extra={"event": "mirror.relay_bug", "error": cause})
            metrics.relay_failed(cause)
        return self._pace.after_failure()

    def _note_failure(self, cause: str, reason: str) -> None:
        """Say the first of a row; the others are no news, and counted."""
        metrics.relay_failed(cause)
        self._failures += 1
        if self._failures == 1:
            extra = {"event": "mirror.relay_waits", "cause": cause}
            logger.warning("nothing can be delivered, the queue grows: %s", reason, extra=extra)

    def _note_success(self) -> None:
        if self._failures:
            extra = {"event": "mirror.relay_goes_on", "failures": self._failures}
            logger.warning("changes are delivered again", extra=extra)
        self._failures = 0
