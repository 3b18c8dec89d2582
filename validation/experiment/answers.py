"""`QueryAnswer`: what a query answered, and how another answer differs: in rows it lacks, has too many, or changed.

A row is told by its place, never by what is in it: differences go into logs and ledgers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tripstore.engines.validation.compare import WHOLE, AnswerDifference, DifferenceClass, Observed, first_difference
from tripstore.engines.validation.experiment.plain import Leaf, Plain, weighed

#: How an answer is told that is no list of rows, and the order of one that is.
ENTRY = "the answer"


@dataclass(frozen=True, slots=True)
class QueryAnswer(Observed):
    """Of one side. `is_ordered`: whether the order of its rows counts."""

    value: Plain
    is_ordered: bool = True
    #: About how many bytes of memory it takes.
    weight: int = field(default=0, compare=False)

    def differences(self, given: Any) -> Iterator[AnswerDifference]:
        assert isinstance(given, QueryAnswer)
        ours, theirs = self.value, given.value
        if isinstance(ours, list) and isinstance(theirs, list):
            yield from _of_rows(ours, theirs, is_ordered=self.is_ordered)
        elif ours is None and theirs is not None:
            yield AnswerDifference(DifferenceClass.EXTRA, ENTRY)
        elif ours is not None and theirs is None:
            yield AnswerDifference(DifferenceClass.MISSING, ENTRY)
        elif (path := _path(ours, theirs)) is not None:
            yield AnswerDifference(DifferenceClass.FIELD, ENTRY, path)


def answer_of(value: object, *, is_ordered: bool = True) -> QueryAnswer:
    """Taken down; `NoValue` if that cannot be."""
    taken = weighed(value)
    return QueryAnswer(taken.value, is_ordered, taken.weight)


def raised(error: BaseException) -> QueryAnswer:
    """An exception that is an answer: which one counts, its message does not."""
    kind = type(error)
    return QueryAnswer(Leaf("raised", f"{kind.__module__}.{kind.__qualname__}"))


def _of_rows(wanted: Sequence[Plain], given: Sequence[Plain], *, is_ordered: bool) -> Iterator[AnswerDifference]:
    ours, theirs = list(map(repr, wanted)), list(map(repr, given))
    if ours == theirs:
        return
    lacking, surplus = _left_over(ours, theirs), _left_over(theirs, ours)
    if not lacking and not surplus:
        if is_ordered:
            yield AnswerDifference(DifferenceClass.ORDER, ENTRY)
        return
    changed = lacking & surplus if is_ordered else set[int]()
    for place in sorted(lacking | surplus):
        if place in changed:
            path = _path(wanted[place], given[place]) or WHOLE
            yield AnswerDifference(DifferenceClass.FIELD, _row(place), path)
        elif place in lacking:
            yield AnswerDifference(DifferenceClass.MISSING, _row(place))
        else:
            yield AnswerDifference(DifferenceClass.EXTRA, _row(place))


def _left_over(rows: Sequence[str], others: Sequence[str]) -> set[int]:
    """The places of rows for which the other answer has none. Of several that are the same the last ones are left."""
    there, left = Counter(others), set[int]()
    for place, row in enumerate(rows):
        if there[row]:
            there[row] -= 1
        else:
            left.add(place)
    return left


def _row(place: int) -> str:
    return f"row {place + 1}"


def _path(ours: Plain, theirs: Plain) -> str | None:
    found: Any = ours, theirs  # a leaf is no JSON, and is compared as what it is
    return first_difference(*found)
