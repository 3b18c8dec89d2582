"""`Judge`: cells that were seen different are suspect, no more: the two stores were asked at different moments.

As a recheck of one read does it (`recheck`), for many cells at a time: the authority is asked, what the mirror lacks is
looked at, then the mirror is asked, and the authority again. A cell that moved meanwhile, or whose row has a change on
its way, is judged again after a growing pause; what never rests was not compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

import msgspec

from schemaless_core.cell.cell import Cell
from schemaless_core.cell.children import ChildKey
from schemaless_core.failpoints import reach
from schemaless_core.store import CellStore
from tripstore.engines.validation.diff.differences import Difference, NotCompared, difference, of_bytes
from tripstore.engines.validation.diff.latest import Latest, PlainLatest
from tripstore.engines.validation.recheck import FIRST_PAUSE_SECONDS, TRIES

#: Cells that are judged together.
CELLS_PER_LOOK = 500
READ_SECONDS = 20.0


class InFlight(Protocol):
    """Knows what the mirror has not got yet."""

    def rows(self, row_keys: Collection[UUID]) -> Collection[UUID]:
        """Those rows that have changes which the mirror may lack."""
        ...


class NothingInFlight:
    """Of two stores between which nothing moves."""

    def rows(self, row_keys: Collection[UUID]) -> Collection[UUID]:
        return ()


class Explaining(Protocol):
    """Knows differences that are as they should be."""

    def explained(self, differences: Sequence[Difference]) -> Collection[Difference]:
        """Those of them that are."""
        ...


class NothingExplained:
    """Of two stores that should be equal."""

    def explained(self, differences: Sequence[Difference]) -> Collection[Difference]:
        return ()


class Roles(NamedTuple):
    """Which store is the authority at a moment, and which the mirror."""

    authority: CellStore
    mirror: CellStore
    #: Whether the authority is the source of the comparison; else it is its target.
    is_from: bool


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What became of suspects."""

    differences: list[Difference] = field(default_factory=list)
    not_compared: list[Difference] = field(default_factory=list)
    #: Differences that are as they should be: neither open nor equal.
    explained: list[Difference] = field(default_factory=list)
    #: Those that are equal by now, with the version that is.
    equal: list[tuple[ChildKey, int]] = field(default_factory=list)
    #: Those that no store has any more.
    gone: list[ChildKey] = field(default_factory=list)


class _Unread(NamedTuple):
    """A cell that a store has and cannot give."""

    why: str


_Seen = Cell | _Unread | None


class Judge:
    """Asks both stores about suspects."""

    def __init__(
        self,
        roles: Callable[[], Roles],
        in_flight: InFlight,
        unreadable: tuple[type[BaseException], ...] = (),
        pause: Callable[[float], object] = time.sleep,
        explaining: Explaining | None = None,
        latest: Latest | None = None,
    ) -> None:
        self._roles = roles
        self._in_flight = in_flight
        self._explaining = explaining or NothingExplained()
        self._unreadable = unreadable
        self._not_readable: tuple[type[BaseException], ...] = (msgspec.MsgspecError, *unreadable)
        self._pause = pause
        self._latest = latest or PlainLatest()

    def judge(self, suspects: Sequence[ChildKey]) -> Verdicts:
        """A verdict for each. Raises what a store raises that does not answer."""
        found = Verdicts()
        for first in range(0, len(suspects), CELLS_PER_LOOK):
            some = Verdicts(equal=found.equal, gone=found.gone)
            self._judge(suspects[first : first + CELLS_PER_LOOK], some)
            explained = set(self._explaining.explained(some.differences))
            found.differences.extend(each for each in some.differences if each not in explained)
            found.not_compared.extend(some.not_compared)
            found.explained.extend(explained)
        return found

    def _judge(self, suspects: Sequence[ChildKey], found: Verdicts) -> None:
        waiting = list(suspects)
        for n in range(TRIES):
            if n:
                self._pause(FIRST_PAUSE_SECONDS * 2**n)
            roles = self._roles()
            before = self._read(roles.authority, waiting)
            flying = set(self._in_flight.rows(list({key.row_key for key in waiting})))
            reach("diff.recheck")
            given = self._read(roles.mirror, waiting)
            after = self._read(roles.authority, waiting)
            moving = []
            for key, first, held, wanted in zip(waiting, before, given, after, strict=True):
                if key.row_key in flying or not _is_same(first, wanted):
                    moving.append(key)
                elif roles.is_from:
                    _decide(found, key, wanted, held)
                else:
                    _decide(found, key, held, wanted)
            if not moving:
                return
            waiting = moving
        found.not_compared.extend(Difference(NotCompared.BUSY, *key.column, child=key.child) for key in waiting)

    def _read(self, store: CellStore, keys: Sequence[ChildKey]) -> list[_Seen]:
        store = store.using(deadline=READ_SECONDS)
        try:
            return list(self._latest.of(store, keys))
        except self._not_readable:
            return [self._read_one(store, key) for key in keys]

    def _read_one(self, store: CellStore, key: ChildKey) -> _Seen:
        try:
            return self._latest.of(store, [key])[0]
        except msgspec.MsgspecError:
            return _Unread("")  # bytes that are no JSON
        except self._unreadable as error:
            return _Unread(str(error))


def _is_same(one: _Seen, other: _Seen) -> bool:
    """Of one store: a version never changes, so its ref key tells."""
    if isinstance(one, Cell) and isinstance(other, Cell):
        return one.ref_key == other.ref_key and one == other
    return one == other


def _decide(found: Verdicts, key: ChildKey, wanted: _Seen, held: _Seen) -> None:
    for seen in (wanted, held):
        if isinstance(seen, _Unread) and seen.why:
            unreadable = Difference(NotCompared.UNREADABLE, *key.column, path=seen.why, child=key.child)
            found.not_compared.append(unreadable)
            return
    if isinstance(wanted, _Unread) or isinstance(held, _Unread):
        version = next((seen.ref_key for seen in (wanted, held) if isinstance(seen, Cell)), None)
        found.differences.append(of_bytes(key, version))
        return
    differing = difference(key, wanted, held)
    if differing is not None:
        found.differences.append(differing)
    elif wanted is None:
        found.gone.append(key)
    else:
        found.equal.append((key, wanted.ref_key))
