"""`ExperimentSides`: how threads of ours ask the two sides of one call, each with arguments of its own."""

from __future__ import annotations

from typing import NamedTuple

from tripstore.engines.validation.errors import ValidationError
from tripstore.facade.experiments.sessions import QueryCall, apart, brings_session, is_shareable


class ExperimentSides(NamedTuple):
    """Of one call that is compared."""

    control: QueryCall
    candidate: QueryCall


class SessionHeld(ValidationError):
    """A side has no session but its caller's."""

    def __init__(self, side: str) -> None:
        super().__init__(f"the {side} holds a session of its caller's: give `again`, or let it open its own")


def sides_of(control: QueryCall, again: QueryCall | None, candidate: QueryCall) -> ExperimentSides:
    """`again`: the control with a session of its own, if its service gave one. Raises `SessionHeld` or `NoValue`."""
    if brings_session(again) if again is not None else not is_shareable(control):
        raise SessionHeld("control")
    if brings_session(candidate):
        raise SessionHeld("candidate")
    return ExperimentSides(apart(again or control), apart(candidate))
