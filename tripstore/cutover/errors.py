"""What goes wrong around a hand-over."""

from __future__ import annotations

from tripstore.errors import TripstoreError


class CutoverUnsettled(TripstoreError):
    """A hand-over was begun and nobody here can say what became of it: the authority row does not answer."""
