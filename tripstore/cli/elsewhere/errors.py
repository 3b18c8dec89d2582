"""Errors of engines that run tasks on other hosts."""

from __future__ import annotations

from tripstore.errors import TripstoreError


class EngineUnavailable(TripstoreError):
    """The engine does not answer, or does so no more. What was begun can be resumed."""


class HostsUnfit(TripstoreError):
    """Hosts of the engine, or this one, cannot do the work before an operator has changed something."""
