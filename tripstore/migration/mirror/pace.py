"""`RelayPace`: how much a relay claims at once, and how long it rests before the next claim."""

from __future__ import annotations

from typing import NamedTuple

from tripstore.handover.relay import CHANGES_PER_CLAIM

#: From claim to claim, at least and at most: each is a durable commit, which services' commits wait for, so it waits
#: until there is about so much to carry.
POLL_SECONDS, POLL_SECONDS_MAX = 0.015, 0.08
WORTH_A_CLAIM = 7
#: The most while a cohort reads from the mirror, which it does not when the mirror is behind by little more.
POLL_SECONDS_READ = 0.03
#: Of what comes in a second each claim says this share.
NEWS = 0.1
#: While most of what is claimed waits for a server: it is claimed again and again.
WAITING_SECONDS = 0.1
#: The longest rest while nothing can be delivered.
REST_SECONDS_MAX = 1.0
FIRST_LIMIT = 100
LIMIT_MIN = 10
#: A delivery that takes longer is the mirror's way of asking for less; far below a claim's lease.
SLOW_SECONDS = 0.5
QUICK_SECONDS = 0.1


class Carried(NamedTuple):
    """What became of one claim: cells that were claimed, that the mirror has now, and that were set aside."""

    claimed: int
    delivered: int
    parked: int

    @property
    def waiting(self) -> int:
        return self.claimed - self.delivered - self.parked

    @property
    def is_stuck(self) -> bool:
        """Whether there was something and nothing of it could be settled."""
        return self.claimed > 0 and self.waiting == self.claimed


class RelayPace:
    """Of one relay."""

    def __init__(self) -> None:
        self.limit = FIRST_LIMIT
        self._rest_seconds = 0.0
        self._poll_seconds = POLL_SECONDS
        #: Changes that come, on average.
        self._per_second = 0.0

    def after(self, carried: Carried, seconds: float, *, is_read: bool = False) -> float:
        """Learn from a claim that took so long; how long to rest now. `is_read`: callers get answers of the mirror."""
        is_full = carried.claimed >= self.limit
        self._learn(carried.claimed, seconds, POLL_SECONDS_READ if is_read else POLL_SECONDS_MAX)
        if seconds > SLOW_SECONDS:
            self.limit = max(self.limit // 2, LIMIT_MIN)
        elif is_full and seconds < QUICK_SECONDS:
            # Also when nothing of it was taken: behind the changes of a server that is down are those of others.
            self.limit = min(self.limit * 2, CHANGES_PER_CLAIM)
        if carried.is_stuck:
            return self._longer()
        self._rest_seconds = 0.0
        if carried.waiting > carried.delivered:
            return WAITING_SECONDS
        return 0.0 if is_full else max(self._poll_seconds - seconds, 0.0)

    def _learn(self, claimed: int, seconds: float, longest: float) -> None:
        """How long it takes until there is enough for a claim."""
        self._per_second += NEWS * (claimed / max(self._poll_seconds, seconds) - self._per_second)
        wanted = WORTH_A_CLAIM / max(self._per_second, 1.0)
        self._poll_seconds = min(max(wanted, POLL_SECONDS), longest)

    def after_failure(self) -> float:
        """Postgres did not answer, or the error is unknown: ask for less and less often."""
        self.limit = max(self.limit // 2, LIMIT_MIN)
        return self._longer()

    def _longer(self) -> float:
        self._rest_seconds = min(max(2 * self._rest_seconds, POLL_SECONDS), REST_SECONDS_MAX)
        return self._rest_seconds
