"""`ExperimentSides`: how threads of ours ask the two sides of one call, each with arguments of its own."""

from __future__ import annotations

from typing import NamedTuple

from tripstore.facade.experiments.apart import QueryCall, SessionHeld, apart


class ExperimentSides(NamedTuple):
    """Of one call that is compared."""

    control: QueryCall
    candidate: QueryCall


def sides_of(control: QueryCall, again: QueryCall | None, candidate: QueryCall) -> ExperimentSides:
    """`again`: the control with a session of its own, if its service gave one. Raises `SessionHeld` or `NoValue`."""
    if again.brings_session if again is not None else not control.is_shareable:
        raise SessionHeld("control")
    if candidate.brings_session:
        raise SessionHeld("candidate")
    return ExperimentSides(apart(again or control), apart(candidate))
