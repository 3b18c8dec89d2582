"""`LimitNews`: which limit holds a worker up now. Progress says it as it is, the log when it has changed."""

from __future__ import annotations

import logging
from typing import NamedTuple

from tripstore.engines.backfill.throttle import Clock, Leave, Limit, Pause

logger = logging.getLogger(__name__)

#: The log hears of another limit no more often; and of none when none has held for so long.
LOG_SECONDS = 10.0


class HeldUp(NamedTuple):
    """Why a worker waits, or goes slowly; and which limit that is. Neither: it does not."""

    reason: str | None = None
    #: By its name: it goes into a document.
    limit: str | None = None

    @classmethod
    def by(cls, reason: str | None, limit: Limit | None) -> HeldUp:
        return cls(reason, None if limit is None else limit.value)


class LimitNews:
    """Of one worker. A limit that makes it wait before each chunk holds while the chunk is copied, too."""

    def __init__(self, job_id: str, clock: Clock) -> None:
        self._job_id = job_id
        self._clock = clock
        self._held_up = HeldUp()
        self._held_up_at = clock()
        self._logged: str | None = None
        self._logged_at = clock() - LOG_SECONDS

    def waits(self, pause: Pause) -> None:
        self._hear(HeldUp.by(pause.reason, pause.limit))

    def begins(self, leave: Leave) -> None:
        """A chunk, with this leave."""
        if leave.limit is not None:
            self._hear(HeldUp.by(leave.reason, leave.limit))
        elif self._logged is not None and self._clock() - self._held_up_at >= LOG_SECONDS:
            self._logged = None
            logger.info("no limit holds any more", extra={"event": "jobs.unlimited", "job": self._job_id})

    def told(self) -> HeldUp:
        """What held it up since this was asked last."""
        found, self._held_up = self._held_up, HeldUp()
        return found

    def _hear(self, found: HeldUp) -> None:
        self._held_up, self._held_up_at = found, self._clock()
        if found.limit is None or found.limit == self._logged or self._held_up_at - self._logged_at < LOG_SECONDS:
            return
        self._logged, self._logged_at = found.limit, self._held_up_at
        extra = {"event": "jobs.limited", "job": self._job_id, "limit": found.limit}
        logger.info("a limit holds: %s", found.reason, extra=extra)
