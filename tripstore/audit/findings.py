"""What an audit of code finds: uses, and what it could not look at. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from tripstore.audit.names import LegacyTable


class Access(StrEnum):
    """What a use does to the rows of its table."""

    READ = "read"
    WRITE = "write"
    UNKNOWN = "unknown"  #: The code hands the table on; what is done to it cannot be seen here.


class UseKind(StrEnum):
    """How a table is used. The names of models stand for their tables."""

    QUERY = "orm.query"  #: session.query(Trip), Trip.query
    GET = "orm.get"  #: session.get(Trip, 7)
    NEW = "orm.new"  #: Trip(…)
    INSTANCE = "orm.instance"  #: trip.status = …, session.delete(trip)
    BULK = "orm.bulk"  #: session.bulk_insert_mappings(Trip, …)
    RELATIONSHIP = "orm.relationship"  #: relationship(Trip), driver.trips
    SELECT = "select"  #: select(Trip), select(trips)
    INSERT = "insert"  #: insert(Trip), trips.insert()
    UPDATE = "update"
    DELETE = "delete"
    REFERENCE = "reference"  #: the model or table is named otherwise: an annotation, an argument of another function
    NAME = "name"  #: insert_row("trips", …), where insert_row is of the same code base
    FOREIGN_KEY = "foreign_key"  #: another table points to it
    SCHEMA = "schema"  #: op.add_column("trips", …)
    SQL_SELECT = "sql.select"
    SQL_SELECT_STAR = "sql.select_star"  #: SELECT *, RETURNING *, TABLE trips
    SQL_INSERT = "sql.insert"
    SQL_INSERT_WITHOUT_COLUMNS = "sql.insert_without_columns"
    SQL_UPDATE = "sql.update"
    SQL_DELETE = "sql.delete"
    SQL_TRUNCATE = "sql.truncate"
    SQL_MERGE = "sql.merge"
    SQL_COPY = "sql.copy"
    SQL_COPY_WITHOUT_COLUMNS = "sql.copy_without_columns"
    SQL_SCHEMA = "sql.schema"  #: ALTER TABLE, CREATE INDEX, LOCK, GRANT …

    @property
    def is_brittle(self) -> bool:
        """Whether it may break on the day when the table gets one more column."""
        return self in (UseKind.SQL_SELECT_STAR, UseKind.SQL_INSERT_WITHOUT_COLUMNS, UseKind.SQL_COPY_WITHOUT_COLUMNS)


@dataclass(frozen=True, slots=True)
class Use:
    """One use of one table, at one place."""

    file: str
    line: int
    column: int
    kind: UseKind
    table: LegacyTable
    access: Access
    excerpt: str
    allowed: str | None = None  #: The reason that a comment gives.
    statement: str | None = None  #: Its SQL, where the code says it.


@dataclass(frozen=True, slots=True)
class Definition:
    """Where a model or a table object is defined. It is no use, but where the uses come from."""

    file: str
    line: int
    name: str
    table: LegacyTable


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that was not, or could not be, looked at; line 0 is the whole file."""

    file: str
    line: int
    reason: str
    hides_uses: bool = False  #: A model or a reflection whose tables cannot be told: any number of uses may be its.


@dataclass(frozen=True)
class CodeAudit:
    """Everything that an audit of code found."""

    tables: tuple[LegacyTable, ...]
    files: int  #: That were read.
    found: tuple[Use, ...]
    definitions: tuple[Definition, ...]
    unread: tuple[Remark, ...]  #: Files that could not be read or do not parse: nothing is known of them.
    unclear: tuple[Remark, ...]  #: Places whose table is known at run time only, and comments that give no reason.

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """What counts."""
        return tuple(finding for finding in self.found if finding.allowed is None)

    @cached_property
    def allowed(self) -> tuple[Use, ...]:
        return tuple(finding for finding in self.found if finding.allowed is not None)

    @cached_property
    def untold(self) -> tuple[Remark, ...]:
        """Models and reflections whose tables cannot be told."""
        return tuple(remark for remark in self.unclear if remark.hides_uses)

    @property
    def is_complete(self) -> bool:
        """Whether there was code, and all of it was looked at. No use is no news while a model cannot be told.

        A text that happens to be the name of a table is no sign that the models were found.
        """
        is_used = any(use.kind is not UseKind.NAME for use in self.uses)
        return self.files > 0 and not self.unread and not (self.untold and not is_used)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many uses of something there are."""

    uses: int
    reads: int
    writes: int
    unknown: int


def counts(findings: Iterable[Use]) -> Counts:
    of = Counter(finding.access for finding in findings)
    return Counts(of.total(), of[Access.READ], of[Access.WRITE], of[Access.UNKNOWN])
