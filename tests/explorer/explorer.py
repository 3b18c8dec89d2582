"""Walk every world of a model, breadth first, so that the schedule of a violation is a shortest one.

Knows nothing of stores. Beside what must hold in every world, from every world a good one must be within reach, also
without the steps of an actor that was stopped for ever.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol


class Explorable(Protocol):
    @property
    def may_stop(self) -> Sequence[int]: ...
    def first(self) -> Hashable: ...
    def moves(self, world: Any, /) -> Iterator[tuple[int, str, Hashable]]: ...
    def check(self, world: Any, /) -> None: ...
    def is_good(self, world: Any, /) -> bool: ...
    def describe(self, world: Any, /) -> str: ...


class Found(NamedTuple):
    """What an exploration found."""

    worlds: int
    moves: int
    #: Whether there was nothing left to walk.
    is_complete: bool
    violation: str = ""
    #: What led there.
    schedule: tuple[str, ...] = ()


#: Stops no actor.
NO_ACTOR = -9


def explore(model: Explorable, violations: type[Exception], limit: int, *, has_ends: bool = True) -> Found:
    """Walk up to `limit` worlds. `has_ends`: whether good worlds must be within reach."""
    walk = _Walk(model)
    n = 0
    while n < len(walk.worlds) and len(walk.worlds) < limit:
        try:
            walk.visit(n)
        except violations as broken:
            return Found(len(walk.worlds), len(walk.movers), False, str(broken), walk.schedule(n))
        n += 1
    is_complete = n == len(walk.worlds)
    found = Found(len(walk.worlds), len(walk.movers), is_complete)
    if has_ends and is_complete:
        for who in (NO_ACTOR, *model.may_stop):
            stuck = walk.first_stuck(who)
            if stuck is not None:
                what = (
                    f"no way to an open store while {who} is stopped" if who != NO_ACTOR else "no way to an open store"
                )
                where = f"liveness: {what}: {model.describe(walk.worlds[stuck])}"
                return found._replace(violation=where, schedule=walk.schedule(stuck))
    return found


class _Walk:
    def __init__(self, model: Explorable) -> None:
        self._model = model
        first = model.first()
        self.worlds: list[Hashable] = [first]
        self._numbers: dict[Hashable, int] = {first: 0}
        self._parents: list[tuple[int, str]] = [(-1, "")]
        self._sources, self._targets, self.movers = array("I"), array("I"), array("b")

    def visit(self, n: int) -> None:
        world = self.worlds[n]
        self._model.check(world)
        numbers, sources, targets, movers = self._numbers, self._sources, self._targets, self.movers
        for mover, label, after in self._model.moves(world):
            m = numbers.get(after)
            if m is None:
                m = numbers[after] = len(self.worlds)
                self.worlds.append(after)
                self._parents.append((n, label))
            if m != n:
                sources.append(n)
                targets.append(m)
                movers.append(mover)

    def schedule(self, n: int) -> tuple[str, ...]:
        """How a world came about."""
        labels = []
        while n > 0:
            n, label = self._parents[n]
            labels.append(label)
        return tuple(reversed(labels))

    def first_stuck(self, who: int) -> int | None:
        """The first world that leads to no good one without a step of `who`."""
        starts, edges = self._incoming
        reached = bytearray(len(self.worlds))
        todo = list(self._good)
        for n in todo:
            reached[n] = 1
        while todo:
            m = todo.pop()
            for edge in edges[starts[m] : starts[m + 1]]:
                source = self._sources[edge]
                if self.movers[edge] != who and not reached[source]:
                    reached[source] = 1
                    todo.append(source)
        n = reached.find(0)
        return None if n < 0 else n

    @cached_property
    def _good(self) -> list[int]:
        return [n for n, world in enumerate(self.worlds) if self._model.is_good(world)]

    @cached_property
    def _incoming(self) -> tuple[array[int], array[int]]:
        """For each world where its incoming moves begin, and the moves sorted by where they lead."""
        starts = array("I", bytes(4 * (len(self.worlds) + 1)))
        for m in self._targets:
            starts[m + 1] += 1
        for m in range(len(self.worlds)):
            starts[m + 1] += starts[m]
        edges, fill = array("I", bytes(4 * len(self._targets))), array("I", starts)
        for edge, m in enumerate(self._targets):
            edges[fill[m]] = edge
            fill[m] += 1
        return starts, edges
