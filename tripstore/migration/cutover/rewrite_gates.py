"""The gates on the company's code: every rewritten query is proven, and every use of the tables that is left is named.

A company that has no experiments and has registered no audit is told so and not refused: what its services still do
with the tables, no number here knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tripstore.engines.validation.verdicts import Reason
from tripstore.migration.cutover.comparison_gates import REMEDIES, Advice, judged, sampled_read
from tripstore.migration.cutover.facts import Facts, Unknown
from tripstore.migration.cutover.verdicts import GateVerdict, percent, unknown, verdict_of
from tripstore.thresholds import CutoverSettings

REWRITES, USES = "rewritten queries", "remaining uses"
_MEND = (
    "`tripstore experiment status` lists the mismatches: mend the rewrite, and deploy it under another name, so that it"
    " is judged by its own comparisons. `tripstore experiment set NAME --retired` takes one out whose code is gone."
)
_REMEDIES: Mapping[str, str] = {
    **REMEDIES,
    Reason.BREAKER_OPEN: "the candidate failed ten times in a row: its mismatches say how",
    Reason.AUTHORITY_FAILED: (
        "the control raised, or was not answered when it was asked again: an exception that is an answer belongs in"
        " `raises=`"
    ),
    Reason.INCOMPARABLE: (
        "an answer or an argument has no value, or is read but once: the log event experiment.incomparable says which,"
        " and `normalise=` gives it one"
    ),
    Reason.BUSY: "the control answered something else at every look: leave out what changes by `normalise=`",
    Reason.STUCK: "a candidate hangs, and is tried again when it comes back: the log event experiment.stuck names it",
    Reason.HALTED: "a candidate forks, or takes too much memory: the log event experiment.halted names it",
    Reason.SESSION: "a query would use its caller's session on another thread: give the experiment `again`",
    Reason.BROKEN: "a `normalise` raised, or tripstore is at fault: the log event experiment.broken tells of it",
}
_UNCOUNTED = "no experiment is registered, so nothing is known of rewritten queries"
_UNREGISTERED = "no audit is registered, so nothing is known of uses that remain"
#: Places that are said.
_SAID_MAX = 3


def rewrites(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Of each experiment so many calls were compared that its mismatch rate is small, and not by chance."""
    wanted = (
        f"of each experiment a mismatch rate below {percent(settings.mismatch_rate_max)} with"
        f" {settings.confidence:.0%} confidence, at least {settings.comparisons_min:,} comparisons"
    )
    if isinstance(facts.experiments, Unknown):
        yield unknown(REWRITES, facts.experiments, wanted)
    elif not facts.experiments:
        yield verdict_of(REWRITES, True, _UNCOUNTED, wanted)
    else:
        sampled = [sampled_read(each)._replace(is_query=True) for each in facts.experiments]
        yield from judged("experiment", facts.experiments, sampled, settings, wanted, Advice(_MEND, _REMEDIES))


def remaining_uses(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """Whatever an audit still finds has a reason."""
    wanted = "each use that `audit code` finds has a reason to remain"
    if isinstance(facts.uses, Unknown):
        yield unknown(USES, facts.uses, wanted)
        return
    if not facts.uses:
        yield verdict_of(USES, True, _UNREGISTERED, wanted)
    for found in facts.uses:
        places = ", ".join(found.unnamed[:_SAID_MAX]) + (" …" if len(found.unnamed) > _SAID_MAX else "")
        said = f"{found.uses:,} uses, {len(found.unnamed):,} of them without a reason{f': {places}' if places else ''}"
        if found.on is not None:
            said += f"; by the audit of {found.on}"
        if not found.is_complete:
            said += "; the audit could not read or tell everything"
        hint = (
            f"Rewrite them, and `tripstore audit code … --json | tripstore experiment uses {found.code} -` registers"
            f" what is left; or `tripstore experiment acknowledge {found.code} PATTERN --why …`."
        )
        yield verdict_of(f"{USES} of {found.code}", not found.unnamed and found.is_complete, said, wanted, hint)
