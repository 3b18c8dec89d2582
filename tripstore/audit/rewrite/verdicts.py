"""What becomes of a use: the rewrite, or why it stays and what to do. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemaless_core.definitions.index import IndexDefinition
from tripstore.audit.findings import Remark, Use


class RewriteAssumption(StrEnum):
    """What only the company knows of its services."""

    COMMITTED_READS = "committed-reads"  #: Sessions that come from elsewhere hold no uncommitted changes.
    READ_COMMITTED = "read-committed"  #: Transactions run at READ COMMITTED, where the later writer wins.
    SEPARATE_WRITES = "separate-writes"  #: The writes of a transaction may be seen, and stay, one without the other.
    UTC_SESSIONS = "utc-sessions"  #: TimeZone of all sessions is UTC.


ASSUMPTIONS = {
    RewriteAssumption.COMMITTED_READS: "its session comes from elsewhere, and may hold uncommitted changes",
    RewriteAssumption.READ_COMMITTED: "this code names isolation levels under which no other may change what was read",
    RewriteAssumption.SEPARATE_WRITES: "its writes would be several puts, and none takes back another",
    RewriteAssumption.UTC_SESSIONS: "the driver says times in the session's zone, bodies in UTC",
}


class RewriteVerdict(StrEnum):
    """How certain the rewrite of a use is."""

    REWRITTEN = "rewritten"
    LEFT = "left"
    SCHEMA = "schema"  #: DDL, migrations, foreign keys: they go with the table.


class NotCertain(Exception):
    """No rewrite is certain: why, and what to do."""

    def __init__(self, reason: str, advice: str = "", *, need: IndexNeed | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
        self.need = need


@dataclass(frozen=True, slots=True)
class Edit:
    """The text between two offsets of a file becomes another."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class IndexNeed:
    """What a query asks of an index: fields with one value, all fields with their types, in the order of the query."""

    equal: tuple[tuple[str, str], ...]
    fields: tuple[tuple[str, str], ...]
    answered_by: str | None = None  #: An index that exists.


@dataclass(frozen=True, slots=True)
class JudgedUse:
    """A use and its verdict."""

    use: Use
    verdict: RewriteVerdict
    reason: str
    advice: str = ""
    assumes: tuple[RewriteAssumption, ...] = ()


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """A file as it would be, comments included."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class CodeRewrite:
    """Everything that `audit rewrite` proposes."""

    files: int
    uses: tuple[JudgedUse, ...]
    changed: tuple[RewrittenFile, ...]
    needs: tuple[IndexNeed, ...]
    proposed: tuple[IndexDefinition, ...]
    unread: tuple[Remark, ...]
    unclear: tuple[Remark, ...]
    untold: tuple[Remark, ...]

    def count(self, verdict: RewriteVerdict) -> int:
        return sum(each.verdict is verdict for each in self.uses)

    @property
    def share(self) -> float:
        """Of the uses that are not DDL, how many are rewritten."""
        every = len(self.uses) - self.count(RewriteVerdict.SCHEMA)
        return self.count(RewriteVerdict.REWRITTEN) / every if every else 1.0
