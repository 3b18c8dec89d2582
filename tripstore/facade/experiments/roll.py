"""`Roll`: which experiments there are. Every process that has one says so, once an hour while it lives.

One that was never called would else be unknown, and what is unknown would seem proven (I12). So would one of a query
that runs once a quarter, since counts of old hours are pruned: names stand in a ledger of no hour as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from schemaless_core.control.ledgers.ledgers import Ledgers, hour_of
from schemaless_core.control.ledgers.parts import Addition, LedgerPart

LEDGER, NAMES = "experiments", "experiments.names"
#: The hour of what is not pruned.
NO_HOUR = datetime(9999, 12, 31, 23, tzinfo=UTC)


class Roll:
    """The ledger, and one process's part in it."""

    def __init__(self, ledgers: Ledgers, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._ledgers = ledgers
        self._now = now
        self._part = LedgerPart(ledgers, LEDGER, now)
        self._names = LedgerPart(ledgers, NAMES, lambda: NO_HOUR)
        self._told: set[tuple[str, str]] = set()
        self._named: set[str] = set()

    def after_fork(self) -> None:
        """A fork is a process of its own."""
        self._part.after_fork()
        self._names.after_fork()
        self._told, self._named = set(), set()

    def tell(self, names: Iterable[str]) -> None:
        """Write down those that were not told of in this hour. What fails is kept for the next time, and raised."""
        told = set(names)
        self._names.write(lambda: self._fresh(told))
        self._part.write(lambda: self._taken(told))

    def seen(self) -> dict[str, datetime | None]:
        """All that any process ever had, and the beginning of the hour in which one told of it last.

        None: that was so long ago that it was pruned.
        """
        hours = self._ledgers.last_hours(LEDGER)
        return {name: hours.get(name) for name in sorted(self._ledgers.last_hours(NAMES).keys() | hours.keys())}

    def _fresh(self, names: set[str]) -> Addition | None:
        fresh, self._named = names - self._named, self._named | names
        return Addition(dict.fromkeys(fresh, 1)) if fresh else None

    def _taken(self, names: Iterable[str]) -> Addition | None:
        hour = hour_of(self._now())
        fresh = {(name, hour) for name in names} - self._told
        self._told = {each for each in self._told if each[1] == hour} | fresh
        return Addition({name: 1 for name, _hour in fresh}) if fresh else None
