"""What the notes of backfills and diffs amount to: the newest whole one, and what any of them left open. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from schemaless_core.canonical import Json
from tripstore.cutover.facts import JobFacts


class Scope(NamedTuple):
    """How closely a diff looked: of each 0 is not at all. A backfill looks at none of it."""

    older: float = 0.0
    decoded: int = 0
    indexes: int = 0

    def covers(self, other: Scope) -> bool:
        """Whether it would have found whatever the other found."""
        return all(ours >= theirs for ours, theirs in zip(self, other, strict=True))


class JobNote(NamedTuple):
    """A note, read."""

    begun_at: datetime
    ended_at: datetime | None
    is_complete: bool
    is_partial: bool
    rows: int
    open: int
    not_compared: int
    capture_since: datetime | None
    epoch: int | None
    scope: Scope

    @property
    def is_whole(self) -> bool:
        return self.is_complete and not self.is_partial


def job_facts(bodies: Sequence[Mapping[str, Json]]) -> JobFacts | None:
    """The newest job that was whole and is complete, else the newest; with what is open of all that it did not redo."""
    notes = [_note(body) for body in bodies]
    if not notes:
        return None
    found = max([note for note in notes if note.is_whole] or notes, key=lambda note: note.begun_at)
    return JobFacts(
        found.begun_at,
        found.is_complete,
        found.rows,
        sum(note.open for note in notes if not _is_redone(note, found)),
        found.not_compared,
        found.ended_at,
        found.capture_since,
        found.is_partial,
        found.epoch,
    )


def _is_redone(note: JobNote, by: JobNote) -> bool:
    """Whether a whole job that began after this one had ended has seen to all that it left: it looked as closely."""
    is_later = note.ended_at is not None and note.ended_at <= by.begun_at
    return by.is_whole and is_later and by.scope.covers(note.scope)


def _note(body: Mapping[str, Json]) -> JobNote:
    return JobNote(
        datetime.fromisoformat(str(body["begun_at"])),
        _moment(body.get("ended_at")),
        bool(body["is_complete"]),
        bool(body.get("is_partial")),
        int(str(body["rows"])),
        int(str(body["open"])),
        int(str(body["not_compared"])),
        _moment(body.get("capture_since")),
        None if body.get("epoch") is None else int(str(body["epoch"])),
        _scope(body.get("scope")),
    )


def _scope(found: Json) -> Scope:
    if not isinstance(found, Mapping):
        return Scope()
    return Scope(float(str(found["older"])), int(str(found["decoded"])), int(str(found["indexes"])))


def _moment(text: Json) -> datetime | None:
    return None if text is None else datetime.fromisoformat(str(text))
