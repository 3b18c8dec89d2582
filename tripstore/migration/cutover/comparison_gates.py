"""The gates on compared reads: of each operation class enough were compared, and their mismatch rate is small.

What was ignored or not compared is never counted as equal (I12). Both are said beside the numbers, with the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tripstore.engines.validation.confidence import upper_bound
from tripstore.engines.validation.verdicts import Reason
from tripstore.migration.cutover.facts import Facts, OperationFacts, Unknown
from tripstore.migration.cutover.sufficiency import (
    Sampled,
    cannot_be_compared,
    missing,
    missing_of_all,
    share_not_compared,
)
from tripstore.migration.cutover.verdicts import GateVerdict, duration, percent, unknown, verdict_of
from tripstore.thresholds import CutoverSettings

_SLOWER = "`tripstore shadow set --share 0.01` samples less, and more `shadow.threads` compare more"
_SERVERS = "`tripstore doctor` says which server did not answer"
_MISMATCHES = (
    "`tripstore shadow status` lists the mismatches. `tripstore diff start` finds what differs in the stores, and"
    " `tripstore repair` mends it."
)
REMEDIES: Mapping[str, str] = {
    Reason.QUEUE_FULL: _SLOWER,
    Reason.TOO_OLD: _SLOWER,
    Reason.BREAKER_OPEN: _SERVERS,
    Reason.AUTHORITY_FAILED: _SERVERS,
    Reason.INCOMPARABLE: (
        "one store cannot know the answer: `tripstore diff start --older all` compares what both have, then add the"
        " operation to `cutover.incomparable`"
    ),
    Reason.BUSY: "these rows changed at every look: `tripstore mirror status` says whether the mirror is close",
    Reason.PURGED: "Postgres has rows that were purged from Schemaless: delete them there, and their reads are few",
    Reason.CLOSED: "processes ended before their samples were compared",
    Reason.BROKEN: "a fault of tripstore: the log event shadow.broken tells of it",
}


def comparisons(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Of each operation class so many reads were compared that its mismatch rate is small, and not by chance."""
    wanted = (
        f"mismatch rate below {percent(settings.mismatch_rate_max)} with {settings.confidence:.0%} confidence,"
        f" at least {settings.comparisons_min:,} comparisons since the last hand-over,"
        f" at most {percent(settings.not_compared_share_max)} not compared"
    )
    if isinstance(facts.operations, Unknown):
        yield unknown("comparisons", facts.operations, wanted)
        return
    if not facts.operations:
        hint = (
            "Reads of services through `tripstore.connect` are compared, a share of `shadow.share`, in phase shadow:"
            " `tripstore phase set shadow`. `tripstore shadow status` shows how many there were."
        )
        yield verdict_of("comparisons", False, "nothing was compared", wanted, hint)
    sampled = [sampled_read(each) for each in facts.operations]
    yield from judged("comparisons of", facts.operations, sampled, settings, wanted, Advice(_MISMATCHES, REMEDIES))


class Advice(NamedTuple):
    """What to do about a mismatch, and about what is not compared, by its reason."""

    mend: str
    remedies: Mapping[str, str]


def judged(
    name: str,
    all_found: Sequence[OperationFacts],
    all_sampled: Sequence[Sampled],
    settings: CutoverSettings,
    wanted: str,
    advice: Advice,
) -> Iterator[GateVerdict]:
    """Each by itself, and beside the others."""
    for found, each, lacking in zip(all_found, all_sampled, missing_of_all(all_sampled, settings), strict=True):
        said, hint = _said(found, each, lacking, settings), _hint(found, each, settings, advice)
        yield verdict_of(f"{name} {found.operation}", not lacking, said, wanted, hint)


def sampled_read(found: OperationFacts) -> Sampled:
    return Sampled(
        found.operation,
        found.compared,
        found.mismatches,
        found.not_compared,
        found.by_reason,
        found.ignored,
        found.calls,
    )


def _said(found: OperationFacts, sampled: Sampled, lacking: int, settings: CutoverSettings) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in _by_count(found))
    aside = f"{found.ignored:,} ignored, {found.not_compared:,} not compared{f' ({reasons})' if reasons else ''}"
    if cannot_be_compared(sampled, settings):
        return f"none can be compared, and the gate waits for none; {aside}"
    bound = upper_bound(found.mismatches, found.compared, settings.confidence)
    if not lacking and missing(sampled, settings):
        aside += f"; {found.calls:,} calls in {settings.evidence_hours} hours, and the gate waits for no more"
    return f"{found.mismatches:,} mismatches in {found.compared:,} comparisons, rate below {percent(bound)}; {aside}"


def _hint(found: OperationFacts, sampled: Sampled, settings: CutoverSettings, advice: Advice) -> str:
    lacking = missing(sampled, settings)
    hints = [f"{lacking:,} more comparisons, all equal, would do: {duration(lacking, found.per_second)}."]
    share = share_not_compared(sampled, settings)
    if share > settings.not_compared_share_max:
        reason = next((f": {remedy}" for name, _ in _by_count(found) if (remedy := advice.remedies.get(name))), "")
        hints.insert(0, f"{percent(share)} of the samples were not compared{reason}.")
        hints.append(f"What is older than {settings.evidence_hours} hours does not count.")
    if found.ignored and not found.compared:
        hints.insert(0, "What a rule of `shadow.ignores` ignores is no comparison: mend what differs, or narrow it.")
    if found.mismatches:
        hints.insert(0, advice.mend)
    return " ".join(hints)


def _by_count(found: OperationFacts) -> list[tuple[str, int]]:
    """Reasons, the most frequent first."""
    return sorted(found.by_reason.items(), key=lambda each: (-each[1], each[0]))
