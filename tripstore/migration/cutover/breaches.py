"""Whether a diff answers for the newest breach: it compared everything, began later, and left nothing. Pure.

It answers for good: what a later diff finds is of another cause, and the gate *diff* says it.
"""

from __future__ import annotations

from tripstore.migration.cutover.facts import BreachFacts, JobFacts, Unknown
from tripstore.migration.cutover.verdicts import moment

MEND_BREACH = "`tripstore diff start` compares everything; `tripstore repair` mends what it finds."


def unanswered(breach: BreachFacts | None, diff: JobFacts | None | Unknown) -> str | None:
    """What may have happened unseen and no diff has looked at since; None: nothing."""
    if breach is None or _answers(diff, breach.number):
        return None
    return f"broken at {moment(breach.at)}: {breach.what}; no diff of everything began later and left nothing"


def _answers(diff: JobFacts | None | Unknown, number: int) -> bool:
    return isinstance(diff, JobFacts) and diff.answered is not None and diff.answered >= number
