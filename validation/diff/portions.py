"""`Portion`: what one step of a comparison found. `Walk`: whatever is compared step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from schemaless_core.cell.canonical import Json
from schemaless_core.control.jobs.jobs import Finding
from tripstore.engines.validation.diff.differences import Difference


@dataclass(frozen=True, slots=True)
class Portion:
    """One step: to be counted once, with the checkpoint after it."""

    #: Where the next step goes on; never None.
    checkpoint: Json
    is_end: bool
    counts: Counter[str] = field(default_factory=Counter)
    #: Differences of cells, and what was not compared.
    found: Sequence[Difference] = ()
    #: What else needs attention; it stands in no key list.
    others: Sequence[Finding] = ()


class Walk(Protocol):
    """A part of a diff, seen by one kind of comparison."""

    def step(self, bounds: Json, checkpoint: Json) -> Portion:
        """Compare what follows a checkpoint, None being the beginning. May be repeated; writes nothing."""
        ...


def counted(found: Sequence[Difference], counts: Counter[str], prefix: str = "") -> None:
    """Count differences by class: they are open until something solves them; what was not compared is neither (I12).

    Older versions and the like have counts of their own.
    """
    for each in found:
        counts[f"{prefix}{each.kind}"] += 1
        if not each.is_difference:
            counts[f"{prefix}not_compared"] += 1
            continue
        counts["open"] += 1
        if not prefix:
            counts["rows"] += 1


def parts_of(shards: range, number: int) -> list[range]:
    """Ranges of shards, at most so many, as even as may be."""
    number = min(number, len(shards))
    edges = [shards.start + len(shards) * n // number for n in range(number + 1)] if number else []
    return [range(first, last) for first, last in pairwise(edges)]


def bounds_of(shards: range) -> list[Json]:
    """A range of shards as the bounds of a part."""
    return [shards.start, shards.stop]


def shards_of(bounds: Json) -> range:
    """The range of shards that bounds say."""
    assert isinstance(bounds, list)
    first, last = bounds
    assert isinstance(first, int)
    assert isinstance(last, int)
    return range(first, last)
