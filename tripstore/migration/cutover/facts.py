"""`Facts`: the numbers behind every gate, read at one moment. `Unknown`: the server did not answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import NamedTuple

from tripstore.handover.authority import Authority, HandOverFacts
from tripstore.phase import Phase


@dataclass(frozen=True, slots=True)
class Unknown:
    """The server that knows it did not answer."""

    reason: str
    #: The command that leads out of it, if one is known.
    hint: str = ""


class BreachFacts(NamedTuple):
    """The newest moment at which rows may have come, gone or changed unseen."""

    number: int
    at: datetime
    what: str


@dataclass(frozen=True, slots=True)
class CaptureFacts:
    """Whether the legacy store misses nothing."""

    since: datetime | None
    broken: str | None = None
    #: What is not as `schema apply` leaves it.
    complaints: tuple[str, ...] = ()
    #: None: there never was one.
    breach: BreachFacts | None = None
    #: Tables and partitions that a subscription fills.
    subscribed: tuple[str, ...] = ()
    #: Sequences of numbers that our role may not draw from: why, and the statement that lets it.
    barred: tuple[tuple[str, str], ...] = ()


class DiffScope(NamedTuple):
    """How closely a diff looked: of each 0 is not at all. A backfill looks at none of it."""

    older: float = 0.0
    decoded: int = 0
    indexes: int = 0

    def joined(self, other: DiffScope) -> DiffScope:
        """What looks as closely as both."""
        return DiffScope(
            max(self.older, other.older), max(self.decoded, other.decoded), max(self.indexes, other.indexes)
        )

    def covers(self, other: DiffScope) -> bool:
        """Whether it would have found whatever the other found."""
        return all(ours >= theirs for ours, theirs in zip(self, other, strict=True))


class LookedBack(NamedTuple):
    """Which diffs another one knew of as it was planned: what their samples found it looks at again."""

    at: datetime
    #: Those that had not ended.
    running: tuple[str, ...]

    def knows(self, job: str, ended_at: datetime) -> bool:
        """Whether it knew all that a diff found which ended then."""
        return ended_at < self.at and job not in self.running


class LeftJob(NamedTuple):
    """A job that left something which no later one has seen to."""

    #: "": noted before jobs had ids.
    job: str
    open: int
    not_compared: int
    scope: DiffScope
    is_ended: bool


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """Whether child rows carry their parent's row key, of one table."""

    table: str
    different: int
    compared: int
    #: Whether every row was compared, or a sample.
    is_all: bool


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The last backfill or diff of everything; the last one at all while there is none."""

    begun_at: datetime
    is_complete: bool
    rows: int
    #: Quarantined, or different; by later jobs of a part, too.
    open: int = 0
    not_compared: int = 0
    ended_at: datetime | None = None
    #: When the capture began that it relied on. None: the job did not note it.
    capture_since: datetime | None = None
    is_partial: bool = False
    #: Of the authority row when it began. None: the job did not note it.
    epoch: int | None = None
    #: The highest number of a breach that a diff of everything answers for: it began later and left nothing, whatever
    #: a later one found. 0: there was no breach; None: no diff answers for any.
    answered: int | None = None
    scope: DiffScope = field(default_factory=DiffScope)
    job: str = ""
    #: The jobs that left what is open or was not compared, the newest first.
    left: tuple[LeftJob, ...] = ()
    #: Of a diff: whether each row was compared. One of an earlier version compared one child of each parent.
    compares_rows: bool = True
    #: Rows of the company's tables, as Postgres counted them, and those that were compared. None: not counted.
    table_rows: int | None = None
    table_rows_compared: int | None = None
    #: Of a diff. None: it did not note it.
    looked_back: LookedBack | None = None


@dataclass(frozen=True, slots=True)
class MirrorFacts:
    """The queue of the legacy store."""

    queued: int
    parked: int
    #: Age of the oldest change that is not parked.
    oldest_seconds: float


class PurgedFacts(NamedTuple):
    """Rows that were purged from Schemaless, and that Postgres has; some of their keys."""

    rows: int = 0
    first: tuple[str, ...] = ()


NONE_PURGED = PurgedFacts()


@dataclass(frozen=True, slots=True)
class ReverseFacts:
    """The group that carries what Schemaless has back into the legacy tables, or compares it with them."""

    is_running: bool
    shards: int
    unserved: int
    #: Shards whose servers did not answer.
    unknown: int
    lag_cells: int
    lag_seconds: float
    parked: int
    #: Cells that it compared with what the legacy store has, while that was the authority.
    equal: int = 0
    different: int = 0
    not_compared: int = 0


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """An index of the configuration, and the version that answers its queries."""

    name: str
    version: int | None
    verified_at: datetime | None = None
    differences: int = 0
    not_compared: int = 0
    lag_cells: int = 0


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """What was compared of an operation class."""

    operation: str
    compared: int
    mismatches: int
    not_compared: int = 0
    #: Comparisons, lately.
    per_second: float = 0.0
    #: They differed, and a rule explains it: no comparisons.
    ignored: int = 0
    #: Why they were not compared, as far as that was counted.
    by_reason: Mapping[str, int] = field(default_factory=dict)
    #: Of services, sampled or not; None: they were not counted.
    calls: int | None = None


class UseFacts(NamedTuple):
    """What an audit of a code base found last."""

    code: str
    uses: int
    #: Where those are that the operator does not account for.
    unnamed: tuple[str, ...]
    is_complete: bool
    #: The day of the audit; what was written since, it does not know.
    on: date | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server that a hand-over needs."""

    name: str
    #: None: it answers.
    trouble: str | None = None
    #: Shards that a primary does not have, or that are in another state than they should be.
    shards_missing: int = 0


@dataclass(frozen=True, slots=True)
class WriterFacts:
    """A transaction that has written mapped tables and has not ended."""

    #: None: it is prepared, and has no session.
    pid: int | None
    seconds: float
    application: str = ""
    #: The name that a prepared one was given.
    prepared: str = ""


class StandbyFacts(NamedTuple):
    """A standby that follows Postgres."""

    name: str
    #: async, or what confirms commits: sync, quorum; potential becomes sync when another goes.
    sync_state: str
    #: Bytes that it has not flushed yet.
    behind: int


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it."""

    at: datetime
    authority: Authority | Unknown
    phase: Phase | Unknown
    capture: CaptureFacts | Unknown
    #: None: none was recorded.
    backfill: JobFacts | None | Unknown
    diff: JobFacts | None | Unknown
    mirror: MirrorFacts | Unknown
    #: None: there is no such group.
    reverse: ReverseFacts | None | Unknown
    buffered: int | Unknown
    indexes: tuple[IndexFacts, ...] | Unknown
    operations: tuple[OperationFacts, ...] | Unknown
    servers: tuple[ServerFacts, ...]
    writers: tuple[WriterFacts, ...] | Unknown
    #: Changes that direct writers of the tables made since the legacy store is not the authority any more.
    direct_changes: int | Unknown = 0
    #: Processes that are connected and go by another layout than the one in force.
    stale: tuple[str, ...] | Unknown = ()
    #: None: the legacy store was the authority ever since.
    handed_over: HandOverFacts | None | Unknown = None
    #: The last acceptance of a Postgres that was promoted; None: there was none.
    accepted: HandOverFacts | None | Unknown = None
    #: The last look for what such a one had lost.
    losses: JobFacts | None | Unknown = None
    purged: PurgedFacts | Unknown = NONE_PURGED
    standbys: tuple[StandbyFacts, ...] | Unknown = ()
    #: Of rewritten queries: each by the name of its experiment.
    experiments: tuple[OperationFacts, ...] | Unknown = ()
    #: Of code bases: none was registered.
    uses: tuple[UseFacts, ...] | Unknown = ()
    #: Of each table of child rows.
    keys: tuple[KeyFacts, ...] | Unknown = ()
