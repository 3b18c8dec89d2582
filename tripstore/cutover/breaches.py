"""Whether a diff answers for the newest breach: it compared everything, began later, and left nothing open. Pure."""

from __future__ import annotations

from tripstore.cutover.facts import BreachFacts, JobFacts, Unknown
from tripstore.cutover.verdicts import moment

MEND_BREACH = "`tripstore diff start` compares everything; `tripstore repair` mends what it finds."


def unanswered(breach: BreachFacts | None, diff: JobFacts | None | Unknown) -> str | None:
    """What may have happened unseen and no diff has looked at since; None: nothing."""
    if breach is None or _answers(diff, breach.number):
        return None
    return f"broken at {moment(breach.at)}: {breach.what}; no diff of everything began later and left nothing open"


def _answers(diff: JobFacts | None | Unknown, number: int) -> bool:
    if not isinstance(diff, JobFacts) or diff.is_partial or not diff.is_complete:
        return False
    return not diff.open and not diff.not_compared and diff.breach is not None and diff.breach >= number
