"""Another process is doing right now what a command was to do."""

from __future__ import annotations

from tripstore.errors import TripstoreError


class Locked(TripstoreError):
    """Nothing was done; the message names who does it."""
