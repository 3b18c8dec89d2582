"""The gate on what an accepted Postgres may have lost: looked for since, and nothing of it left open. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.migration.cutover.facts import Facts, JobFacts, Unknown
from tripstore.migration.cutover.verdicts import GateVerdict, Trouble, first_unknown, moment
from tripstore.thresholds import CutoverSettings

_NAME = "lost changes"
LOOK_FOR_LOST = "`tripstore cutover lost` looks for what the mirror has and this Postgres lacks."
_MEND = (
    "`tripstore cutover lost --show` lists them; `--take-back` puts them into Postgres again, `--mend` makes the mirror"
    " equal to the authority."
)


def lost_changes(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
    """There is no such gate where no Postgres was ever accepted."""
    wanted = "looked for since a promoted Postgres was accepted, none left open"
    if facts.accepted is None:
        return
    if verdict := first_unknown(_NAME, wanted, facts.accepted, facts.losses):
        yield verdict
        return
    found = facts.losses
    said = f"{moment(found.begun_at)}: {found.rows:,} cells looked at" if isinstance(found, JobFacts) else ""
    yield _trouble(facts).verdict(_NAME, said, wanted)


def _trouble(facts: Facts) -> Trouble:
    accepted, found = facts.accepted, facts.losses
    assert accepted is not None
    assert not isinstance(accepted, Unknown)
    assert not isinstance(found, Unknown)
    since = f"since a Postgres was accepted at {moment(accepted.at)}, epoch {accepted.epoch}"
    if found is None or found.is_partial or not found.is_complete or (found.epoch or 0) < accepted.epoch:
        return Trouble(f"not looked for {since}", LOOK_FOR_LOST)
    if found.not_compared:
        return Trouble(f"{found.not_compared:,} cells could not be compared", f"Mend their rows. {LOOK_FOR_LOST}")
    return Trouble(f"{found.open:,} open", _MEND) if found.open else Trouble()
