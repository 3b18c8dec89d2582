"""How many more comparisons of an operation class would be enough for a switch. Pure: gate, status and report ask it.

Three things are wanted: so many comparisons, so small a mismatch rate, and so small a share that was not compared. What
a rule of the configuration ignores is no comparison: it is neither for nor against. An operation that is called rarely
would take months to be compared so often: beside one that was, it is enough that nothing of it differed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

from tripstore.engines.validation.confidence import comparisons_missing
from tripstore.engines.validation.verdicts import Reason
from tripstore.thresholds import CutoverSettings


class Sampled(NamedTuple):
    """What became of the sampled reads of an operation class."""

    operation: str
    compared: int
    mismatches: int
    not_compared: int = 0
    #: Why they were not compared, as far as that was counted.
    by_reason: Mapping[str, int] = {}
    #: By a rule of the configuration: they were compared, and differed.
    ignored: int = 0
    #: Of services, sampled or not; None: they were not counted.
    calls: int | None = None
    #: Of an experiment: an answer that cannot be compared is its service's to mend, and excuses nothing.
    is_query: bool = False


def missing_of_all(sampled: Sequence[Sampled], settings: CutoverSettings) -> list[int]:
    """Of each, so many more comparisons, all equal, would do; 0: it is enough."""
    lacking = [missing(each, settings) for each in sampled]
    is_proven = any(each.compared and not count for each, count in zip(sampled, lacking, strict=True))
    return [
        0 if is_proven and is_too_rare(each, settings) else count for each, count in zip(sampled, lacking, strict=True)
    ]


def is_too_rare(sampled: Sampled, settings: CutoverSettings) -> bool:
    """Whether services call it less often than it would have to be compared, and what was compared was equal.

    Calls are written down later than samples, perhaps: fewer of them than of these say nothing.
    """
    seen = sampled.compared + sampled.ignored + sampled.not_compared
    is_rare = sampled.calls is not None and seen <= sampled.calls < settings.comparisons_min
    is_equal = sampled.compared > 0 and not sampled.mismatches
    return is_rare and is_equal and share_not_compared(sampled, settings) <= settings.not_compared_share_max


def missing(sampled: Sampled, settings: CutoverSettings) -> int:
    """The same of one, whatever is known of others."""
    if cannot_be_compared(sampled, settings):
        return 0
    for_rate = comparisons_missing(
        sampled.mismatches, sampled.compared, settings.mismatch_rate_max, settings.confidence
    )
    for_count = settings.comparisons_min - sampled.compared
    return max(for_rate, for_count, _for_share(counted_not_compared(sampled, settings), sampled.compared, settings), 0)


def share_not_compared(sampled: Sampled, settings: CutoverSettings) -> float:
    """Of what was sampled and counts; 0 when nothing was."""
    uncompared = counted_not_compared(sampled, settings)
    return uncompared / (uncompared + sampled.compared) if uncompared else 0.0


def counted_not_compared(sampled: Sampled, settings: CutoverSettings) -> int:
    """Without those that a store cannot answer, where the operator has accepted that."""
    is_accepted = sampled.operation in settings.incomparable and not sampled.is_query
    return sampled.not_compared - (_incomparable(sampled) if is_accepted else 0)


def cannot_be_compared(sampled: Sampled, settings: CutoverSettings) -> bool:
    """Whether each sampled read had an answer that one store cannot know, and that is accepted, or was rare."""
    if sampled.is_query:
        return False
    count = _incomparable(sampled)
    is_all = 0 < count == sampled.not_compared and not sampled.compared and not sampled.ignored
    return is_all and (sampled.operation in settings.incomparable or count < settings.comparisons_min)


def _incomparable(sampled: Sampled) -> int:
    return sampled.by_reason.get(Reason.INCOMPARABLE, 0)


def _for_share(uncompared: int, compared: int, settings: CutoverSettings) -> int:
    most = settings.not_compared_share_max
    return ceil(uncompared * (1 - most) / most) - compared if uncompared else 0
