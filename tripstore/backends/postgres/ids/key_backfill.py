"""Row keys of the rows that were there before: filled in short transactions along the primary key, leaf by leaf.

Rows that another transaction holds are passed over and visited again at the end, so a batch never waits and never
stands in a circle of waiting. It looks only for rows without a key; begun again, it passes quickly over those that have
one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.ddl.ddl import PATIENT, LockWaiting, Patience, limited, literal
from tripstore.backends.postgres.ddl.relations import Key, Relation, key_of, leaves
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.layout.layout import quoted
from tripstore.backends.postgres.wire.connections import rows

_LAST_OF_PAGE = """\
SELECT {texts}, place FROM (SELECT {columns}, row_number() OVER (ORDER BY {columns}) AS place
  FROM (SELECT {columns} FROM {table} WHERE {range} ORDER BY {columns} LIMIT {limit}) AS page) AS placed
 ORDER BY place DESC LIMIT 1"""

# The rows are joined by key, not by ctid: one that was moved by an update meanwhile is followed to where it is.
_FILL = """\
WITH empty AS (SELECT {keys} FROM {table} AS t WHERE {range} AND t.{uuid} IS NULL),
 free AS (SELECT {keys}, {value} AS tripstore_value FROM {table} AS t
   WHERE {range} AND t.{uuid} IS NULL FOR NO KEY UPDATE SKIP LOCKED),
 filled AS (UPDATE {table} AS t SET {uuid} = free.tripstore_value FROM free
   WHERE {same} AND t.{uuid} IS NULL AND free.tripstore_value IS NOT NULL RETURNING 1)
SELECT pg_catalog.set_config(
 'tripstore.filled', ((SELECT count(*) FROM empty) = (SELECT count(*) FROM filled))::text, true)"""
_IS_WHOLE = "SELECT pg_catalog.current_setting('tripstore.filled')::boolean"

_ANY_EMPTY = "SELECT EXISTS (SELECT FROM {table} WHERE {uuid} IS NULL)"
_HOPELESS = """\
SELECT count(*), (array_agg({id}::text ORDER BY {id}))[1:5] FROM {table} AS t
 WHERE t.{uuid} IS NULL AND {value} IS NULL"""


@dataclass(frozen=True, slots=True)
class FillPace:
    """How much of the server a back-fill takes."""

    batch_seconds: float = 0.1  #: A row of a batch may be waited for so long.
    share: float = 0.5  #: Of the time it is at work; the rest is pauses.
    first_rows: int = 200
    most_rows: int = 10_000
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


STEADY = FillPace()


class Range(NamedTuple):
    """Keys of a leaf, as texts: after the first, up to the second; None: from the beginning, to the end."""

    after: tuple[str, ...] | None
    to: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class FillOldRows:
    """Fill what is empty, in batches of a tenth of a second."""

    column: KeyColumn
    pace: FillPace = STEADY
    patience: Patience = PATIENT

    @property
    def title(self) -> str:
        return f"{self.column.title}: fill the rows that are there"

    def is_done(self, connection: Connection) -> bool:
        found = self.column.find(connection)
        if found is None:
            return False
        return found.is_not_null or not any(
            _has_empty(connection, self.column, leaf) for leaf in self._leaves(connection)
        )

    def statements(self) -> Sequence[str]:
        table, uuid = self.column.table.sql, quoted(self.column.uuid)
        value = self.column.value_sql("t", is_parent_ours=True)
        return [f"UPDATE {table} AS t SET {uuid} = {value} WHERE t.{uuid} IS NULL  -- in batches along the primary key"]

    def apply(self, connection: Connection, progress: Progress) -> None:
        count = _Count(progress, self._leaves(connection))
        is_ours = self.column.is_parent_ours(connection)
        with _quietly(connection):
            for leaf in self._leaves(connection):
                walk = _Walk(connection, self.column, leaf, is_ours, self.pace, self.patience)
                for seen in walk.run():
                    count.add(seen)
        self._complain_of_orphans(connection, is_ours)
        count.finish()

    def revert(self, connection: Connection) -> None:
        """Nothing: the values go with the column, or stay with the company's."""

    def _leaves(self, connection: Connection) -> list[Relation]:
        return leaves(connection, self.column.table)

    def _complain_of_orphans(self, connection: Connection, is_ours: bool) -> None:
        names = {"table": self.column.table.sql, "uuid": quoted(self.column.uuid), "id": quoted(self.column.id)}
        value = self.column.value_sql("t", is_parent_ours=is_ours)
        [(count, sample)] = rows(connection, _HOPELESS.format(value=value, **names))
        if count:
            ids = ", ".join(str(each) for each in sample if each is not None) or "NULL"
            raise InvalidLayout(
                f"{count:,} rows of {self.column.table} have no parent: {self.column.id} is {ids}.",
                hint=f"Each row needs one in {self.column.source.table}: delete these rows or mend them.",
            )


class _Walk:
    """One leaf, from its first key to its last."""

    def __init__(
        self,
        connection: Connection,
        column: KeyColumn,
        leaf: Relation,
        is_parent_ours: bool,
        pace: FillPace,
        patience: Patience,
    ) -> None:
        self._connection = connection
        self._column = column
        self._leaf = leaf
        self._key = key_of(connection, leaf)
        self._value = column.value_sql("t", is_parent_ours=is_parent_ours)
        self._pace = pace
        self._patience = patience
        self._rows = pace.first_rows
        self._passed_over: list[Range] = []

    def run(self) -> Iterator[int]:
        """Yield the number of rows after each batch."""
        after: tuple[str, ...] | None = None
        while True:
            last, seen = self._last_of_page(after)
            if last is None:
                break
            self._fill_at_pace(Range(after, last))
            after = last
            yield seen
        self._visit_again()

    def _last_of_page(self, after: tuple[str, ...] | None) -> tuple[tuple[str, ...] | None, int]:
        statement = _LAST_OF_PAGE.format(
            texts=", ".join(f"{quoted(name)}::text" for name in self._key.columns),
            columns=_list(self._key, ""),
            table=self._leaf.name.sql,
            range=_range_sql(self._key, Range(after, None), ""),
            limit=self._rows,
        )
        found = rows(self._connection, statement)
        return (tuple(found[0][:-1]), int(found[0][-1])) if found else (None, 0)

    def _fill_at_pace(self, keys: Range) -> None:
        started = self._pace.clock()
        if not self._fill(keys):
            self._passed_over.append(keys)
        reach("ids.batch_filled")
        took = self._pace.clock() - started
        self._rows = _next_size(self._rows, took, self._pace)
        self._pace.sleep(took * (1 - self._pace.share) / self._pace.share)

    def _fill(self, keys: Range) -> bool:
        """Fill what is free in a range; return whether nothing was passed over."""
        statement = _FILL.format(
            table=self._leaf.name.sql,
            uuid=quoted(self._column.uuid),
            value=self._value,
            keys=_list(self._key, "t."),
            same=" AND ".join(f"t.{quoted(name)} = free.{quoted(name)}" for name in self._key.columns),
            range=_range_sql(self._key, keys, "t."),
        )
        try:
            [(is_whole,)] = rows(self._connection, limited([statement], self._patience, last=_IS_WHOLE))
        except (postgres.LockNotAvailable, postgres.QueryCanceled, postgres.DeadlockDetected):
            return False
        return bool(is_whole)

    def _visit_again(self) -> None:
        """Until no transaction holds a row of those passed over; rows that no key can be found for stay as they are."""
        waiting = LockWaiting(self._leaf.name, "a row", self._patience)
        left = self._passed_over
        while left := [keys for keys in left if not self._fill(keys) and self._has_empty(keys)]:
            waiting.pause(self._connection)

    def _has_empty(self, keys: Range) -> bool:
        statement = (
            f"SELECT EXISTS (SELECT FROM {self._leaf.name.sql} AS t WHERE {_range_sql(self._key, keys, 't.')}"
            f" AND t.{quoted(self._column.uuid)} IS NULL AND {self._value} IS NOT NULL)"
        )
        return bool(rows(self._connection, statement)[0][0])


@dataclass
class _Count:
    """Rows seen, of an estimate that is never less than what was seen."""

    progress: Progress
    leaves: Sequence[Relation]
    done: int = field(default=0)

    def add(self, seen: int) -> None:
        self.done += seen
        estimate = sum(max(leaf.estimated_rows, 0) for leaf in self.leaves)
        self.progress(self.done, max(estimate, self.done + 1) if estimate else None)

    def finish(self) -> None:
        self.progress(self.done, self.done)


@contextmanager
def _quietly(connection: Connection) -> Iterator[None]:
    """Without the company's own triggers, where we may: a key is no change that `updated_at` should tell of.

    Triggers of ours are ENABLE ALWAYS and fire all the same.
    """
    rows(connection, "SET statement_timeout = 0")
    with suppress(postgres.InsufficientPrivilege):
        rows(connection, "SET session_replication_role = replica")
    try:
        yield
    finally:
        rows(connection, "RESET statement_timeout")
        with suppress(postgres.InsufficientPrivilege):
            rows(connection, "RESET session_replication_role")


def _next_size(size: int, took: float, pace: FillPace) -> int:
    """At most twice as many, at least a quarter, towards the target."""
    factor = min(2.0, max(0.25, pace.batch_seconds / max(took, 0.001)))
    return max(1, min(pace.most_rows, int(size * factor)))


def _has_empty(connection: Connection, column: KeyColumn, leaf: Relation) -> bool:
    statement = _ANY_EMPTY.format(table=leaf.name.sql, uuid=quoted(column.uuid))
    return bool(rows(connection, statement)[0][0])


def _list(key: Key, row: str) -> str:
    return ", ".join(row + quoted(name) for name in key.columns)


def _range_sql(key: Key, keys: Range, row: str) -> str:
    """A condition on rows."""
    parts: list[str] = []
    for operator, bound in ((">", keys.after), ("<=", keys.to)):
        if bound is not None:
            values = ", ".join(f"{literal(text)}::{kind}" for text, kind in zip(bound, key.types, strict=True))
            parts.append(f"({_list(key, row)}) {operator} ({values})")
    return " AND ".join(parts) or "true"
