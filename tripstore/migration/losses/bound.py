"""From where on a promoted Postgres may lack what was carried: by acceptances that no look has answered for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from schemaless_core.cell.canonical import Json
from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.handover.accept import EPOCHS_PER_TIMELINE
from tripstore.handover.authority import HandOverFacts
from tripstore.handover.renewal import UNSEEN

LOOK_SECONDS = 30.0
#: Between the clocks of Postgres and of Schemaless, and for what a standby without the guard took before it was shut.
MARGIN = timedelta(minutes=10)

# Each acceptance begins a generation of epochs.
_ACCEPTED = f"""\
SELECT epoch, since, switch_id = '{UNSEEN}' FROM (
    SELECT epoch, since, switch_id, lag(epoch) OVER (ORDER BY epoch) AS before FROM tripstore.authority_history
) AS changed WHERE epoch / {EPOCHS_PER_TIMELINE} <> before / {EPOCHS_PER_TIMELINE} ORDER BY epoch"""
_LAST_KEPT = "SELECT max(at) FROM tripstore.log WHERE epoch < %s"


def find_accepted(legacy: PostgresBackend) -> list[HandOverFacts]:
    """Each acceptance that this Postgres knows of, the oldest first."""
    rows = legacy.database.run(lambda found: found.rows(_ACCEPTED), Deadline(LOOK_SECONDS))
    return [HandOverFacts(*row) for row in rows]


def unanswered(accepted: Sequence[HandOverFacts], notes: Sequence[Mapping[str, Json]]) -> list[HandOverFacts]:
    """The acceptances after the last whole look that left nothing open."""
    clean = [_epoch(note) for note in notes if _is_clean(note)]
    return [each for each in accepted if each.epoch > max(clean, default=-1)]


def kept_until(legacy: PostgresBackend, accepted: HandOverFacts) -> datetime | None:
    """What was lost with the Postgres before that one was carried after this moment; None: any of it may be lost.

    A standby has a prefix of the commits. What it lacks was committed after all that it has, and carried after that.
    """

    if accepted.is_late:
        return None  # it went on for a while before that was seen: its last change says nothing

    def look(connection: LegacyConnection) -> datetime | None:
        found: datetime | None = connection.rows(_LAST_KEPT, (accepted.epoch,))[0][0]
        return found

    last = legacy.database.run(look, Deadline(LOOK_SECONDS))
    return None if last is None else last - MARGIN


def _is_clean(note: Mapping[str, Json]) -> bool:
    is_whole = bool(note.get("is_complete")) and not note.get("is_partial")
    return is_whole and not note.get("open") and not note.get("not_compared")


def _epoch(note: Mapping[str, Json]) -> int:
    return int(str(note.get("epoch", -1)))
