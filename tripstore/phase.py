"""`Phase`: how far a migration has come, and which backend is called in it. The table of DESIGN.md, in code.

The authority is not chosen here: the authority row says which it is. Each backend has a phase of its own for the time
when it is the authority, so that a switch changes the phase by that one row, and nothing has to be written beside it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tripstore.handover.authority import Backend


class Phase(StrEnum):
    """In the order of a migration."""

    OFF = "off"
    DUALWRITE = "dualwrite"
    SHADOW = "shadow"
    LIVE = "live"
    RAMPDOWN = "rampdown"
    COMPLETE = "complete"

    @property
    def route(self) -> Route:
        return _ROUTES[self]

    @property
    def authority(self) -> Backend:
        return self.route.authority


class Route(NamedTuple):
    """Which backends are called in a phase."""

    authority: Backend
    #: Whether writes go to the other backend, too.
    is_mirrored: bool
    #: Whether a cohort of the reads may be answered by the other backend, and reads are replayed there.
    asks_other: bool


_ROUTES = {
    Phase.OFF: Route(Backend.LEGACY, is_mirrored=False, asks_other=False),
    Phase.DUALWRITE: Route(Backend.LEGACY, is_mirrored=True, asks_other=False),
    Phase.SHADOW: Route(Backend.LEGACY, is_mirrored=True, asks_other=True),
    Phase.LIVE: Route(Backend.STORE, is_mirrored=True, asks_other=True),
    Phase.RAMPDOWN: Route(Backend.STORE, is_mirrored=True, asks_other=False),
    Phase.COMPLETE: Route(Backend.STORE, is_mirrored=False, asks_other=False),
}


def phases_of(authority: Backend) -> list[Phase]:
    """Between these one may move without a switch."""
    return [phase for phase in Phase if phase.authority is authority]
