"""`Cohorts`: which reads the mirror may answer: a percentage per operation class, the same rows in every process.

A cohort read is a favour. It may be as old as the mirror's lag was at the last look, at most `max_lag`, and as old as
that look, at most half a second. Whenever something speaks against it, or it fails, the authority is asked as if the
mirror had not been.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID
from zlib import crc32

from schemaless_core.breaker import Breaker, BreakerConfig
from schemaless_core.cell.answers import Scalar
from tripstore import metrics
from tripstore.facade.flags import EVERY
from tripstore.facade.lag import Lag

_WHOLE = 1 << 32
#: Operations that ask for the rows of a value.
_BY_VALUE = ("query_index", "resolve_ids")


class Cohorts:
    """Decides for each read."""

    def __init__(self, lag: Lag, breaker: BreakerConfig) -> None:
        self._lag = lag
        self._breaker_config = breaker
        self._breaker = Breaker(breaker)

    def takes(self, percents: Mapping[str, float], operation: str, keys: tuple[UUID | Scalar, ...], epoch: int) -> bool:
        """Whether the mirror is to answer: all rows (or the shard value) are in the cohort, and nothing is against it.

        `epoch` is that of the authority whose mirror it is. Row keys name the rows that are read; a shard value stands
        for rows that are not known yet: all that this process wrote must have arrived, be it in an index yet or not.
        """
        percent = percents.get(operation, percents.get(EVERY, 0.0))
        if not percent or not keys:
            return False
        rows = () if operation.startswith(_BY_VALUE) else keys
        if not all(isinstance(row, UUID) for row in rows):
            return False  # a wrong call, and the authority says so
        if not all(is_in_cohort(key, percent) for key in keys):
            return False
        objection = self._lag.objection(rows, epoch)
        if objection is None and self._breaker.admits():
            return True
        metrics.cohort_read(operation, objection or "breaker_open")
        return False

    def answered(self) -> None:
        self._breaker.succeeded()

    def failed(self) -> None:
        self._breaker.failed()

    def after_fork(self) -> None:
        self._breaker = Breaker(self._breaker_config)


class NoCohorts:
    """The authority answers everything."""

    def takes(self, percents: Mapping[str, float], operation: str, keys: tuple[UUID | Scalar, ...], epoch: int) -> bool:
        return False

    def answered(self) -> None:
        """The mirror is never asked."""

    def failed(self) -> None:
        """The mirror is never asked."""


def is_in_cohort(key: UUID | Scalar, percent: float) -> bool:
    """Whether a key is among so many per cent of all, the same ones in every process."""
    return _place(key) < percent * _WHOLE / 100


def _place(key: UUID | Scalar) -> int:
    """Where a key stands between 0 and 2³²: a higher percentage takes every key that a lower one took."""
    return crc32(key.bytes if isinstance(key, UUID) else str(key).encode(errors="surrogatepass"))
