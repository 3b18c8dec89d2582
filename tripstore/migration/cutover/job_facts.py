"""What the notes of backfills and diffs amount to: the newest whole one, and what any of them left. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from schemaless_core.cell.canonical import Json
from tripstore.migration.cutover.facts import DiffScope, JobFacts, LeftJob, LookedBack
from tripstore.migration.diff.unit import compares_rows


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
    breach: int | None
    scope: DiffScope
    job: str
    compares_rows: bool = False
    table_rows: int | None = None
    table_rows_compared: int | None = None
    looked_back: LookedBack | None = None


def job_facts(bodies: Sequence[Mapping[str, Json]]) -> JobFacts | None:
    """The newest job that was whole and is complete, else the newest; with what all those left that it did not redo."""
    notes = sorted(map(_note, bodies), key=lambda note: note.begun_at, reverse=True)
    if not notes:
        return None
    whole = [note for note in notes if note.is_complete and not note.is_partial]
    whole = [note for note in whole if note.compares_rows] or whole
    found = max(whole or notes, key=lambda note: note.begun_at)
    facts = JobFacts(
        found.begun_at,
        found.is_complete,
        found.rows,
        0,
        0,
        found.ended_at,
        found.capture_since,
        found.is_partial,
        found.epoch,
        _answered(whole),
        found.scope,
        found.job,
        compares_rows=found.compares_rows,
        table_rows=found.table_rows,
        table_rows_compared=found.table_rows_compared,
        looked_back=found.looked_back,
    )
    left = [
        _left(note, note in (whole or [found]))
        for note in notes
        if not is_redone(note.job, note.ended_at, note.scope, facts)
    ]
    return replace(
        facts,
        open=sum(each.open for each in left),
        not_compared=sum(each.not_compared for each in left),
        left=tuple(each for each in left if each.open or each.not_compared),
    )


def _answered(whole: Sequence[JobNote]) -> int | None:
    """The highest number of a breach that one of these jobs answers for, whose findings are all closed by now."""
    clean = (note for note in whole if note.compares_rows and not note.open and not note.not_compared)
    answered = (
        note.breach for note in clean if note.table_rows == note.table_rows_compared and note.breach is not None
    )
    return max(answered, default=None)


def _left(note: JobNote, counts_uncompared: bool) -> LeftJob:
    """What a part could not compare a whole one has, or says so itself."""
    not_compared = note.not_compared if counts_uncompared else 0
    return LeftJob(note.job, note.open, not_compared, note.scope, note.ended_at is not None)


def is_redone(job: str, ended_at: datetime | None, scope: DiffScope, by: JobFacts) -> bool:
    """Whether a whole job that began after another had ended has seen to all that it left: it looked as closely.

    Of a sample, that takes a diff that was planned after the other had ended.
    """
    if ended_at is None or ended_at > by.begun_at:
        return False
    is_known = by.looked_back is None or by.looked_back.knows(job, ended_at)
    return by.is_complete and not by.is_partial and is_known and by.scope.covers(scope)


def redone_jobs(bodies: Sequence[Mapping[str, Json]]) -> set[str]:
    """The jobs that the one that gates go by has redone."""
    facts = job_facts(bodies)
    notes = [] if facts is None else map(_note, bodies)
    return {note.job for note in notes if facts and is_redone(note.job, note.ended_at, note.scope, facts)}


def scope_of(note: Json | Mapping[str, Json]) -> DiffScope:
    """As it stands in a note; a note of a job without one has none."""
    found = note.get("scope") if isinstance(note, Mapping) else None
    if not isinstance(found, Mapping):
        return DiffScope()
    return DiffScope(float(str(found["older"])), int(str(found["decoded"])), int(str(found["indexes"])))


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
        _number(body.get("epoch")),
        _number(body.get("breach")),
        scope_of(body),
        str(body.get("job") or ""),
        compares_rows(body),
        _number(body.get("table_rows")),
        _number(body.get("table_rows_compared")),
        _looked_back(body.get("looked_back")),
    )


def _looked_back(found: Json) -> LookedBack | None:
    if not isinstance(found, Mapping):
        return None
    running = found["running"]
    assert isinstance(running, list)
    return LookedBack(datetime.fromisoformat(str(found["at"])), tuple(map(str, running)))


def _number(value: Json) -> int | None:
    return None if value is None else int(str(value))


def _moment(text: Json) -> datetime | None:
    return None if text is None else datetime.fromisoformat(str(text))
