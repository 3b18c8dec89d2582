"""What the legacy store raises beyond the errors of every cell store."""

from __future__ import annotations

from schemaless_core.errors import Conflict, Invalid, InvalidServer, Unavailable
from tripstore.errors import TripstoreError


class LegacyUnavailable(Unavailable, TripstoreError):
    """Postgres cannot be reached, did not answer in time, or another transaction holds the row. Try later."""


class StandbyRefused(LegacyUnavailable):
    """legacy.postgres leads to a standby: what it answers may be old, and it takes no write."""

    def __init__(self) -> None:
        super().__init__(
            "Postgres is a standby here (pg_is_in_recovery), so nothing that it says counts.",
            hint="Name the primary in legacy.postgres, or promote this server.",
        )


class PostgresNotAccepted(LegacyUnavailable):
    """This Postgres may lack a decision: it was promoted or put back, or Schemaless is ahead of what it says."""

    def __init__(self, backend: str, epoch: int, timeline: int, now: int) -> None:
        given = "found to be older than Schemaless"
        if timeline > 0:
            given = f"of timeline {timeline}, and it is at {now}"
        elif timeline < 0:
            given = f"not of timeline {now} yet, at which it is being accepted"
        super().__init__(
            f"Postgres is not accepted: its authority row ({backend}, epoch {epoch}) is {given}.",
            hint="Every process of tripstore accepts it, unless a hand-over was lost:"
            " `tripstore cutover settle --dry-run` says what is in the way.",
        )
        self.epoch = epoch


class SessionRefused(InvalidServer, TripstoreError):
    """The session is not ours until we leave, or lacks settings that we rely on: a pooler stands in between."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "Postgres",
            reason,
            hint="Connect past the pooler: name Postgres itself in legacy.postgres."
            " docs/howto/poolers.md says which connections may go through one.",
        )


class SessionUnclear(LegacyUnavailable):
    """A pooler stands in between, and it was too busy to show whether it keeps a session for us. Try later."""

    def __init__(self) -> None:
        super().__init__(
            "A pooler stands before Postgres, and whether it keeps a session for us could not be found out.",
            hint="Repeat the call. When it stays so, look at server_reset_query and track_activities, or connect past"
            " the pooler: docs/howto/poolers.md.",
        )


class Unrepresentable(Invalid, TripstoreError):
    """The legacy tables cannot hold this body; `path` names the field. Nothing was written."""

    def __init__(self, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path or 'the body'} cannot be held by Postgres: {reason}.", hint=hint)
        self.path = path
        self.reason = reason


class UnreadableRow(Conflict, TripstoreError):
    """A row of the legacy tables holds something that no body can hold; `path` names the field."""

    def __init__(self, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path} cannot stand in a body: {reason}.", hint=hint)
        self.path = path
        self.reason = reason


class HistoryTruncated(Unavailable, TripstoreError):
    """Older versions were changed before capture began, or their log was dropped: Postgres no longer has them."""


class LogPurged(Invalid, TripstoreError):
    """The location lies before the log of the legacy store begins."""


class InvalidLayout(Invalid, TripstoreError):
    """A layout that cannot be used, or that does not fit the live database."""


class ChangesParked(Conflict, TripstoreError):
    """Nothing is left in the queue but changes that were set aside: the mirror does not get whole by itself."""

    def __init__(self, changes: int) -> None:
        what = "1 change is" if changes == 1 else f"{changes} changes are"
        super().__init__(
            f"{what} parked and not in Schemaless.",
            hint="`tripstore mirror parked` lists them; `tripstore mirror retry` tries again.",
        )
        self.changes = changes


class LegacyRefused(Conflict, TripstoreError):
    """Postgres refuses the write: a constraint of the company's, or capture's own rules."""
