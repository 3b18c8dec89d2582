"""`Report`: everything that the report says, as one document. `gather` fills it; drawing it needs nothing else.

It is version 1 of a published schema: a field may be added within a version; to take one away or to change what it
means raises `SCHEMA_VERSION`. What is unknown is absent from its list and stands under `unknown` (I12).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec

SCHEMA_VERSION = 1
#: The operation of what a diff found.
DIFF = "diff"

#: With its offset, which is that of UTC.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class ReportVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer that the report was made for."""

    #: `switch`, `reverse` or `complete`: what it is about.
    direction: str
    question: str
    is_allowed: bool
    #: One sentence with the numbers.
    answer: str
    #: What to run next.
    command: str


class ReportGate(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate says: what was found, what it wants, and how to get there."""

    name: str
    is_passed: bool
    said: str
    wanted: str
    hint: str


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """What the authority row was at an epoch; `target` is where a hand-over led, null: it was open."""

    epoch: int
    authority: str
    target: str | None
    since: Moment | None
    who: str


class ReportStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How far the migration is."""

    phase: str
    authority: str
    epoch: int
    capture_since: Moment | None
    #: The latest first.
    history: list[Epoch]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation class: how often it was called, how much of it was compared, and what came of that."""

    name: str
    #: By callers, of whichever backend; counted by the processes themselves.
    calls: int
    #: Whether such calls can be replayed and compared: reads can, a write cannot.
    is_comparable: bool
    compared: int
    equal: int
    #: Differed, and no more once the mirror had caught up.
    in_flight: int
    #: Differed, and a rule explains it.
    ignored: int
    mismatches: int
    by_class: dict[str, int]
    #: Never part of those that are equal.
    not_compared: int
    by_reason: dict[str, int]
    #: The upper end of the mismatch rate's confidence interval; 1 when nothing was compared.
    rate_below: float
    #: So many more comparisons, all equal, would bring it below the threshold.
    missing: int


class ExperimentSide(msgspec.Struct, frozen=True, kw_only=True):
    """How long a side of an experiment took; `failed` ones are in no quantile. Null: it was not asked."""

    answered: int
    failed: int
    p50_seconds: float | None
    p99_seconds: float | None


class ReportExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """A rewritten query against the old one; its evidence has the words of an operation's."""

    name: str
    #: Of its callers, so many per cent get the rewrite's answer.
    percent: float
    is_compared: bool
    #: Its code is gone: no gate waits for it.
    is_retired: bool
    #: The hour in which a process had it last.
    seen: Moment | None
    calls: int
    #: Those that the old query answered: what is left of it.
    calls_by_control: int
    evidence: Operation
    control: ExperimentSide
    candidate: ExperimentSide
    #: On a thread beside callers.
    candidate_beside: ExperimentSide


class ReportUses(msgspec.Struct, frozen=True, kw_only=True):
    """The uses of the tables that an audit of a code base found last."""

    code: str
    at: Moment
    #: Whether it could read and tell everything.
    is_complete: bool
    uses: int
    #: Where those are that no reason is given for.
    unnamed: list[str]


class RateHour(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared of an operation class in an hour, and what is known of its mismatch rate by its end."""

    hour: Moment
    compared: int
    mismatches: int
    #: The bound over everything from the report's beginning to the end of this hour.
    rate_below: float


class RateSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The hours of an operation class in which something was compared, the oldest first."""

    operation: str
    hours: list[RateHour]


class LagHour(msgspec.Struct, frozen=True, kw_only=True):
    """How late the mirror was in an hour, over all looks at it."""

    direction: str
    hour: Moment
    looks: int
    p50_seconds: float
    p99_seconds: float


class LagNow(msgspec.Struct, frozen=True, kw_only=True):
    """What the mirror lacks as the report is made. Of the direction that is not in use: a rehearsal."""

    direction: str
    changes: int
    oldest_seconds: float
    parked: int


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill, diff or repair."""

    id: str
    kind: str
    #: running, paused, cancelled or done.
    state: str
    begun_at: Moment
    ended_at: Moment | None
    who: str
    why: str
    #: Whether it was to cover only a part of the rows.
    is_partial: bool
    parts: int
    parts_done: int
    #: What was counted, by name: exact, whatever was killed meanwhile.
    counts: dict[str, int]
    #: Rows there are to do, where that was estimated.
    estimate: int | None
    findings_open: int
    #: Of all its workers, as they told last.
    rate_per_second: float | None
    throttle: str | None


class ReportLatency(msgspec.Struct, frozen=True, kw_only=True):
    """How long a backend took for an operation class; of what it answered."""

    operation: str
    backend: str
    #: `callers`, who waited for it, or `shadow`, on a thread beside them.
    asked_by: str
    answered: int
    unanswered: int
    p50_seconds: float | None
    p99_seconds: float | None


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend has as the report is made: under the key, or as the latest of its row, if that differed.

    `trouble`: why it is unknown.
    """

    backend: str
    is_there: bool
    ref_key: int | None
    #: Of the canonical bytes.
    bytes: int | None
    #: Equal within a report where the bytes are; salted, so that no reader finds a body by trying.
    digest: str | None
    #: Only with bodies; else null, as a tombstone's is.
    body: msgspec.Raw
    trouble: str | None


class ReportMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """An answer or a cell that differs: where, and how to look at it."""

    at: Moment
    #: `shadow`, or the id of the job that found it.
    found_by: str
    #: An operation class, or `diff`.
    operation: str
    #: missing, extra, field, order, error, timeout, differs …
    kind: str
    entry: str
    #: Where in it, as a field path; empty: the whole.
    path: str
    #: So many differences in this one answer.
    differences: int
    row_key: UUID | None
    column_name: str | None
    ref_key: int | None
    #: Run the first one to see the same; another one shows what both have.
    commands: list[str]
    #: Null: they were not asked.
    sides: list[Side] | None


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A row that could not be copied."""

    at: Moment
    job: str
    kind: str
    row_key: UUID | None
    column_name: str | None
    ref_key: int | None
    path: str
    reason: str
    command: str


class ReportConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A change that could not be delivered and was set aside, or a copy that met another body."""

    at: Moment
    #: `forward`, `reverse`, or the id of a job.
    found_by: str
    kind: str
    row_key: UUID | None
    column_name: str | None
    ref_key: int | None
    reason: str
    attempts: int | None
    command: str


class ReportWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """How much needs attention, whether it is listed or not."""

    #: Rows that could not be copied, or not compared.
    quarantine: int
    conflicts: int


class ReportUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """What is unknown, and why."""

    what: str
    reason: str
    #: The report's lists that lack it; empty ones are not complete then.
    missing_from: list[str]


class ReportLimits(msgspec.Struct, frozen=True, kw_only=True):
    """From which numbers on a switch is safe, and how much of each list was asked for."""

    mismatch_rate_max: float
    confidence: float
    comparisons_min: int
    lag_seconds_max: float
    evidence_hours: int
    #: Of mismatches, quarantine and conflicts, each; there may be more.
    listed_max: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The document. Times are UTC, durations seconds, rates shares of 1."""

    schema_version: int = SCHEMA_VERSION
    made_at: Moment
    made_by: str
    datastore: str
    #: The one that is moved from, the one that is moved to.
    backends: list[str]
    #: Comparisons, latency and lag are counted from this hour on; comparisons not from before the last hand-over.
    since: Moment
    has_bodies: bool
    verdict: ReportVerdict
    limits: ReportLimits
    standing: ReportStanding | None
    gates: list[ReportGate]
    operations: list[Operation]
    #: A store against itself: what differs by itself, as time and writes go on.
    noise: list[Operation]
    #: Rewritten queries, and what is left of the code that is not rewritten.
    experiments: list[ReportExperiment]
    remaining_uses: list[ReportUses]
    rates: list[RateSeries]
    lag_now: list[LagNow]
    lag: list[LagHour]
    #: The newest first.
    jobs: list[JobReport]
    latency: list[ReportLatency]
    mismatches: list[ReportMismatch]
    quarantine: list[Quarantined]
    conflicts: list[ReportConflict]
    #: Null: it is unknown.
    waiting: ReportWaiting | None
    unknown: list[ReportUnknown]

    def is_known(self, *lists: str) -> bool:
        """Whether nothing is missing from these: only then an empty one says that there is nothing."""
        return not any(name in each.missing_from for each in self.unknown for name in lists)
