"""What goes wrong around a hand-over."""

from __future__ import annotations

from tripstore.errors import TripstoreError


class CutoverUnsettled(TripstoreError):
    """A hand-over was begun and its outcome is unknown: the authority row could not be read."""


class CutoverCompleted(TripstoreError):
    """The migration is being completed, or is complete: there is no way back."""


class CutoverBreached(TripstoreError):
    """Rows may have come, gone or changed unseen since the gates were looked at."""


class CompletionOvertaken(TripstoreError):
    """The authority row is not any more what it was when the end was planned."""
