"""What jobs are made of: a job, its parts, what was found in them, and what is told of their progress."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.errors import Conflict


class JobState(StrEnum):
    """Whether parts of a job may be claimed."""

    RUNNING = "running"  #: Any worker may claim its parts.
    PAUSED = "paused"  #: No worker begins a chunk until it is resumed.
    CANCELLED = "cancelled"  #: Never again.
    DONE = "done"  #: All its parts are.


class Job(msgspec.Struct, frozen=True):
    """Work in parts: a backfill, a diff, a repair. All times are the control database's."""

    id: str
    kind: str
    #: What is to be done, in its engine's words.
    spec: dict[str, Json]
    state: JobState
    begun_at: datetime
    ended_at: datetime | None
    who: str
    host: str
    #: The reason that was given when it was last paused, resumed or cancelled.
    why: str
    #: Whether any worker serves it, not only the process that started it.
    is_detached: bool = False


class Part(msgspec.Struct, frozen=True):
    """A portion of a job that one worker holds. Bounds and checkpoint are its engine's own documents."""

    job: str
    number: int
    bounds: Json
    #: None: at the beginning.
    checkpoint: Json
    #: Grows with every claim and every save.
    fence: int
    #: Of the job, when this was claimed or saved.
    state: JobState = JobState.RUNNING


class Finding(msgspec.Struct, frozen=True):
    """Something about a row that needs attention. Keys, reasons and field paths; never a cell's body."""

    #: unreadable, conflict, refused; missing, extra, differs, busy …
    kind: str
    row_key: UUID | None = None
    column_name: str | None = None
    ref_key: int | None = None
    body: dict[str, Json] = {}


class StoredFinding(Finding, frozen=True, kw_only=True):
    """A finding as it is kept."""

    id: int
    job: str
    at: datetime
    is_open: bool


class WorkerNews(msgspec.Struct, frozen=True):
    """What a worker said of itself last."""

    worker: str
    #: How long ago, by the control database's clock.
    seconds: float
    body: dict[str, Json]


class JobProgress(msgspec.Struct, frozen=True):
    """How far a job is, at one moment."""

    job: Job
    counts: Mapping[str, int]
    parts: int
    parts_done: int
    #: Parts that a worker holds under a lease that is not over.
    parts_claimed: int
    findings_open: int
    workers: tuple[WorkerNews, ...]
    #: None: nothing was saved yet.
    saved_at: datetime | None
    #: The control database's clock as this was read.
    at: datetime


class PartLost(Conflict):
    """Another worker holds the part by now, or it is done. What was not saved will be done again."""

    def __init__(self, part: Part, worker: str) -> None:
        super().__init__(
            f"Part {part.number} of {part.job} is not {worker}'s any more.",
            hint="Claim another one. What was written stays; the worker that holds the part counts it.",
        )
        self.part = part
        self.worker = worker
