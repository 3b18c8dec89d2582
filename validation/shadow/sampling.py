"""`Sampler`: which reads are compared: a share of them, within a budget, and of each operation at least a few."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tripstore.engines.validation.errors import ValidationError


class InvalidSampling(ValidationError):
    """A share or budget that cannot be."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """A share of 1 and a budget of infinity compare everything."""

    share: float = 0.1
    #: Reads that may be asked of the other store in a second, all operations together.
    per_second: float = 200.0
    #: Of each operation so many are taken whatever the share: one that is rare is not left out.
    least_per_second: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InvalidSampling(f"A share of {self.share} is none.", hint="Give one from 0 to 1: 0.1 is every tenth.")
        if self.per_second < 0 or self.least_per_second < 0:
            raise InvalidSampling("A budget is not negative.", hint="0 compares nothing.")


#: A share that is smaller than this takes next to nothing.
GAP_MAX = 1e15


class Sampler:
    """Asked at every read: it must cost next to nothing. Two threads at once may take one more than there is."""

    def __init__(
        self,
        settings: SamplingSettings,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._budget = Budget(settings.per_second, clock())
        self._strata: dict[str, Budget] = {}
        #: How many reads the share passes by, and the one it takes.
        self._left = self._gap()

    def takes(self, operation: str) -> bool:
        """Whether a read of this operation class is to be compared."""
        self._left -= 1
        stratum = self._strata.get(operation)
        if self._left > 0 and stratum is not None and self._clock() < stratum.due_at:
            return False
        return self._takes(stratum or self._new_stratum(operation))

    def _takes(self, stratum: Budget) -> bool:
        now = self._clock()
        is_of_share = self._left <= 0
        if is_of_share:
            self._left = self._gap()
        if stratum.take(now):  # whatever the others have left of the budget: it is charged, and they get less
            self._budget.charge(now)
            return self._settings.per_second > 0
        return is_of_share and self._budget.take(now)

    def _gap(self) -> float:
        """From one read that the share takes to the next, as if each were thrown for."""
        share = self._settings.share
        if share <= 0:
            return math.inf
        if share >= 1:
            return -math.inf  # also for a thread that counts at the same time
        return 1 + min(math.log(1 - self._chance()) / math.log1p(-share), GAP_MAX) // 1

    def _new_stratum(self, operation: str) -> Budget:
        least = self._settings.least_per_second if self._settings.share > 0 else 0.0
        return self._strata.setdefault(operation, Budget(least, self._clock()))


class Budget:
    """Tokens that come at a rate; at most those of a second wait."""

    __slots__ = ("_at", "_rate", "_tokens", "_tokens_max", "due_at")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens_max = max(rate, 1.0) if rate else 0.0
        self._tokens = self._tokens_max
        self._at = now
        #: Before that there is none to take.
        self.due_at = now if rate else math.inf

    def charge(self, now: float, amount: float = 1.0) -> None:
        """Take what is perhaps not there yet."""
        self._fill(now)
        self._tokens -= amount

    def is_spent(self, now: float) -> bool:
        """Whether nothing is there at all."""
        self._fill(now)
        return self._tokens <= 0

    def take(self, now: float) -> bool:
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        if self._tokens < 1:
            self.due_at = now + (1 - self._tokens) / self._rate
        return True

    def _fill(self, now: float) -> None:
        passed = now - self._at
        if passed > 0:
            self._tokens = min(self._tokens_max, self._tokens + passed * self._rate)
            self._at = now
