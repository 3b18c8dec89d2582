"""`Recheck`: an answer that differs is suspect, no more: the two stores were asked at different moments.

It asks the authority, waits until the mirror has what the authority had by then, and asks mirror and authority. When
the authority's two answers differ, the data moves: again, after a growing pause. What never rests was not compared.

What differs is asked for once more. A row may come and go between the authority's answers and be seen by the mirror's
alone, as an entry too many that keeps another off the page; what is really wrong is still wrong then.

A read whose other side may not lag is held to its first answer. When the authority still answers as it did before that
one, then that one was wrong when it was given, however right the next one is.

What was purged from Schemaless, and the legacy store has yet, is no mismatch. The read was not compared.

Cells say by their ref keys that they are others. Entries of an index do not: a field that changed and changed back
would seem to rest. So an index is asked for the cells, too, to know that nothing moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from schemaless_core.calls.using import Using
from schemaless_core.habits import Habits
from schemaless_core.store import CellStore
from tripstore.engines.validation.compare import AnswerDifference, compare
from tripstore.engines.validation.purged import PurgedAnswers
from tripstore.engines.validation.reads import Failed, Incomparable, Read
from tripstore.engines.validation.verdicts import Outcome, Reason, Verdict, reason_of
from tripstore.engines.validation.waiting import Waiting, waited

TRIES = 5
FIRST_PAUSE_SECONDS = 0.02


class FirstLook(NamedTuple):
    """What made a read suspect: the authority's answer, and how the other one differed after it."""

    answer: Any
    differences: Sequence[AnswerDifference]


class PendingCells(Protocol):
    """Knows what the mirror has not got yet."""

    def arriving(self, read: Read) -> Waiting[bool]:
        """Whether every change that this read could see has been delivered, and indexed, perhaps after a while."""
        ...


class Recheck:
    """Judges suspects."""

    def __init__(
        self,
        pending: PendingCells,
        seconds: float,
        incomparable: Incomparable = (),
        pause: Callable[[float], object] = time.sleep,
        purged: PurgedAnswers | None = None,
    ) -> None:
        self._pending = pending
        self._using = Using(Habits(deadline=seconds))
        self._incomparable = incomparable
        self._pause = pause
        self._purged = purged

    def verdict(self, read: Read, authority: CellStore, other: CellStore) -> Verdict:
        """The verdict, in this thread, however long it takes."""
        return waited(self.hear(read, authority, other), self._pause)

    def hear(
        self, read: Read, authority: CellStore, other: CellStore, first: FirstLook | None = None
    ) -> Waiting[Verdict]:
        """The same for a caller that has other things to do in the pauses. `first`: what the read is held to."""
        telling = _telling(read)
        has_differed = False
        for n in range(TRIES):
            if n:
                yield FIRST_PAUSE_SECONDS * 2**n
            before = self._ask(telling, authority)
            if not (
                yield from self._pending.arriving(read)
            ):  # looked at earlier, it would say nothing of what came in between
                continue
            given = self._ask(read, other)
            wanted = self._ask(read, authority)
            after = wanted if telling is read else self._ask(telling, authority)
            for answer in (before, wanted, after):
                if isinstance(answer, Failed) and not answer.is_torn:
                    return Verdict(read, Outcome.NOT_COMPARED, reason=reason_of(answer))
            if not _is_torn(before, after) and compare(read.operation, before, after):
                continue
            if isinstance(given, Failed) and given.is_incomparable:
                return Verdict(read, Outcome.NOT_COMPARED, reason=reason_of(given))
            differences: Sequence[AnswerDifference] = compare(read.operation, wanted, given)
            if not differences and first is not None and not compare(read.operation, first.answer, wanted):
                return Verdict(read, Outcome.MISMATCH, first.differences)
            if differences and self._purged is not None and self._purged.explain(read, wanted, given):
                return Verdict(read, Outcome.NOT_COMPARED, reason=Reason.PURGED)
            if has_differed or not differences:
                return Verdict(read, Outcome.MISMATCH if differences else Outcome.IN_FLIGHT, differences)
            has_differed = True
        return Verdict(read, Outcome.NOT_COMPARED, reason=Reason.BUSY)

    def _ask(self, read: Read, store: CellStore) -> Any:
        return read.ask(store, self._using, self._incomparable)


def _is_torn(before: Any, after: Any) -> bool:
    """Whether neither of the authority's answers can be read: such bytes stay until a repair mends them."""
    return isinstance(before, Failed) and isinstance(after, Failed)


def _telling(read: Read) -> Read:
    """The same question, put so that its answer shows every change."""
    if "index" not in read.arguments or read.arguments.get("columns") == "*":
        return read
    return replace(read, arguments={**read.arguments, "columns": "*"})
