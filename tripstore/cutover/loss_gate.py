"""The gate on what an accepted Postgres may have lost: looked for since, and nothing of it left open. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.cutover.facts import Facts, JobFacts, Unknown
from tripstore.cutover.settings import CutoverSettings
from tripstore.cutover.verdicts import GateVerdict, moment, unknown, verdict_of

_NAME = "lost changes"
_LOOK = "`tripstore cutover lost` looks for what the mirror has and this Postgres lacks."
_MEND = (
    "`tripstore cutover lost --show` lists them; `--take-back` puts them into Postgres again, `--mend` makes the mirror"
    " equal to the authority."
)


def lost_changes(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """There is no such gate where no Postgres was ever accepted."""
    wanted = "looked for since a promoted Postgres was accepted, none left open"
    if facts.accepted is None:
        return
    for fact in (facts.accepted, facts.losses):
        if isinstance(fact, Unknown):
            yield unknown(_NAME, fact, wanted)
            return
    trouble, hint = _trouble(facts)
    found = facts.losses
    said = f"{moment(found.begun_at)}: {found.rows:,} cells looked at" if isinstance(found, JobFacts) else ""
    yield verdict_of(_NAME, not trouble, trouble or said, wanted, hint)


def _trouble(facts: Facts) -> tuple[str, str]:
    accepted, found = facts.accepted, facts.losses
    assert accepted is not None
    assert not isinstance(accepted, Unknown)
    assert not isinstance(found, Unknown)
    since = f"since a Postgres was accepted at {moment(accepted.at)}, epoch {accepted.epoch}"
    if found is None or found.is_partial or not found.is_complete or (found.epoch or 0) < accepted.epoch:
        return f"not looked for {since}", _LOOK
    if found.not_compared:
        return f"{found.not_compared:,} cells could not be compared", f"Mend their rows. {_LOOK}"
    return (f"{found.open:,} open", _MEND) if found.open else ("", "")
