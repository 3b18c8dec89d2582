"""Diffs between two oracles for tests: what a test puts into them, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from schemaless_core import Cell, CellStore, MemoryStore
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.children import NO_CHILDREN, Children
from tripstore.engines.validation.diff.buckets import Digests, PlainDigests
from tripstore.engines.validation.diff.diff import CellDiff
from tripstore.engines.validation.diff.differences import Difference
from tripstore.engines.validation.diff.latest import PlainLatest
from tripstore.engines.validation.diff.portions import Walk, bounds_of
from tripstore.engines.validation.diff.suspects import InFlight, Judge, NothingInFlight, Roles

SHARDS = 4


@dataclass
class Outcome:
    """All that a walk found."""

    counts: Counter[str] = field(default_factory=Counter)
    found: list[Difference] = field(default_factory=list)
    steps: int = 0
    #: Differences of the step with the most of them.
    portions_max: int = 0

    @property
    def differences(self) -> set[tuple[str, str, str]]:
        """Class, column and path of each; keys are another question."""
        return {(str(each.kind), each.column_name, each.path) for each in self.found}


def pair(*, shards: int = SHARDS) -> tuple[MemoryStore, MemoryStore]:
    """Two stores without a cell."""
    return MemoryStore(shards=shards), MemoryStore(shards=shards)


def put(cells: Iterable[Cell], *stores: CellStore) -> None:
    """The same cells into all of them."""
    found = list(cells)
    for store in stores:
        if found:
            store.put_cells(found)


def between(source: CellStore, target: CellStore, *, is_from: bool = True) -> Roles:
    """Roles that never change: the source is the authority unless it is said that the target is."""
    return Roles(source, target, True) if is_from else Roles(target, source, False)


def judge(
    source: CellStore,
    target: CellStore,
    in_flight: InFlight | None = None,
    *,
    is_from: bool = True,
    children: Children = NO_CHILDREN,
) -> Judge:
    roles, latest = between(source, target, is_from=is_from), PlainLatest(children)
    return Judge(lambda: roles, in_flight or NothingInFlight(), pause=lambda _seconds: None, latest=latest)


def diff(
    source: CellStore,
    target: CellStore,
    *,
    ours: Digests | None = None,
    theirs: Digests | None = None,
    columns: Sequence[str] | None = None,
    shards: int = SHARDS,
    cells_per_step: int = 100_000,
    suspects_per_step: int = 10_000,
    is_from: bool = True,
    children: Children = NO_CHILDREN,
) -> Outcome:
    """Compare two stores to the end."""
    walk = CellDiff(
        ours or PlainDigests(source, children),
        theirs or PlainDigests(target, children),
        judge(source, target, is_from=is_from, children=children),
        columns,
        cells_per_step,
        suspects_per_step,
        children,
    )
    return walked(walk, bounds_of(range(shards)))


def walked(walk: Walk, bounds: Json) -> Outcome:
    """All steps of a part."""
    outcome, checkpoint = Outcome(), None
    while True:
        portion = walk.step(bounds, checkpoint)
        outcome.steps += 1
        outcome.portions_max = max(outcome.portions_max, len(portion.found))
        outcome.counts.update(portion.counts)
        outcome.found.extend(portion.found)
        if portion.is_end:
            return outcome
        checkpoint = portion.checkpoint
