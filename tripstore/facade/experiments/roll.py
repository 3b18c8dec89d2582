"""`Roll`: which experiments there are. Every process that has one says so, once an hour while it lives.

One that was never called would else be unknown, and what is unknown would seem proven (I12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from schemaless_core.control.ledgers.ledgers import Ledgers, hour_of
from schemaless_core.control.ledgers.parts import Addition, LedgerPart

LEDGER = "experiments"


class Roll:
    """The ledger, and one process's part in it."""

    def __init__(self, ledgers: Ledgers, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._ledgers = ledgers
        self._now = now
        self._part = LedgerPart(ledgers, LEDGER, now)
        self._told: set[tuple[str, str]] = set()

    def after_fork(self) -> None:
        """A fork is a process of its own."""
        self._part.after_fork()
        self._told = set()

    def tell(self, names: Iterable[str]) -> None:
        """Write down those that were not told of in this hour. What fails is kept for the next time, and raised."""
        self._part.write(lambda: self._taken(names))

    def seen(self) -> dict[str, datetime]:
        """All that any process ever had, and the beginning of the hour in which one told of it last."""
        return {name: hour for hour, counts in self._ledgers.hours(LEDGER).items() for name in counts}

    def _taken(self, names: Iterable[str]) -> Addition | None:
        hour = hour_of(self._now())
        fresh = {(name, hour) for name in names} - self._told
        self._told = {each for each in self._told if each[1] == hour} | fresh
        return Addition({name: 1 for name, _hour in fresh}) if fresh else None
