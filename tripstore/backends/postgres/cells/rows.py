"""Where the cells of one column stand in Postgres, as SQL: its table, tombs, changes, and cells of our own.

Every SELECT made here answers `Found` rows in the order of its fields. Row keys and ref keys come in as SQL
expressions ($1, a column of a join), so that the same text serves one key and a thousand. Column names stand in the
text: they come from a checked layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from tripstore.backends.postgres.layout.layout import CURRENT, LEGACY_ID, Layout, MappedColumn, RefKeyKind, quoted
from tripstore.backends.postgres.layout.layout import VERSION_BITS as BITS

FIELDS = "ref_key, layout, row, body, at"
_CELL = "c.ref_key, NULL::int, NULL::pg_catalog.text, c.body, c.created_at"
_NOT_OURS = "NULL::pg_catalog.bytea, NULL::pg_catalog.timestamptz"
_TOMB = f"t.ref_key, NULL::int, NULL::pg_catalog.text, {_NOT_OURS}"
_CHANGE = "q.ref_key, q.layout, q.row, NULL::pg_catalog.bytea, q.at"
#: What capture wrote: it says which ref key it replaced. Cells of our own that were queued say nothing of others.
CAPTURED = "NOT (q.layout IS NULL AND q.row IS NOT NULL)"
#: The body of a tombstone among cells of our own.
TOMBSTONE_SQL = "'null'::pg_catalog.bytea"
CHANGES = ("tripstore.queue", "tripstore.log")


class Found(NamedTuple):
    """A cell as Postgres holds it. A body; else a row and the layout to read it by, None: it is the canonical body.

    Neither is a tombstone.
    """

    ref_key: int
    layout: int | None
    row: str | None
    body: memoryview | None
    created_at: datetime | None


def text(value: str) -> str:
    """A text as it stands in SQL (standard_conforming_strings is on in our sessions)."""
    return "'" + value.replace("'", "''") + "'"


class OwnCells:
    """The part of a column that is in tripstore.cell: all of a free column."""

    def __init__(self, name: str) -> None:
        #: The column's name as SQL; of a free column an expression, of a mapped one a literal.
        self.name = name

    def at(self, key: str, ref_key: str) -> str:
        return (
            f"SELECT {_CELL} FROM tripstore.cell AS c WHERE c.row_key = {key} AND c.column_name = {self.name} "
            f"AND c.ref_key = {ref_key}"
        )

    def latest(self, key: str) -> str:
        return (
            f"(SELECT {_CELL} FROM tripstore.cell AS c WHERE c.row_key = {key} AND c.column_name = {self.name} "
            "ORDER BY c.ref_key DESC LIMIT 1)"
        )

    def newest(self, key: str, limit: int) -> str:
        """The newest cells, at most so many."""
        return self.below(key, "NULL::bigint", str(limit))

    def below(self, key: str, before: str, limit: str) -> str:
        return (
            f"(SELECT {_CELL} FROM tripstore.cell AS c WHERE c.row_key = {key} AND c.column_name = {self.name} "
            f"AND ({before} IS NULL OR c.ref_key < {before}) ORDER BY c.ref_key DESC LIMIT {limit})"
        )


class ColumnRows:
    """One mapped column."""

    def __init__(self, column: MappedColumn) -> None:
        self.column = column
        self.name = text(column.name)
        self.own = OwnCells(self.name)
        self.table = column.table.sql
        self.uuid = quoted(column.uuid)
        self.number = quoted(column.ref_key.column) if column.ref_key.column else None
        self.version = quoted(column.ref_key.version) if column.ref_key.version else None

    @cached_property
    def current(self) -> str:
        """What to select of `r`, a row of the table."""
        column = self.column
        return f"{column.ref_key_sql('r')}, {CURRENT}, {column.row_sql('r')}, {_NOT_OURS}"

    @cached_property
    def ref_key(self) -> str:
        """The ref key of `r`."""
        return self.column.ref_key_sql("r")

    def is_row(self, key: str, number: str) -> str:
        """Whether `r` is the row with this key and number."""
        return f"r.{self.uuid} = {key}" + (f" AND r.{self.number} = {number}" if self.number else "")

    def row(self, key: str, ref_key: str) -> str:
        """The row that holds this ref key now, if it does."""
        kind = self.column.ref_key.kind
        if kind is RefKeyKind.CHILD:
            place = f"r.{self.number} = ({ref_key} >> {BITS}) AND r.{self.version} = ({ref_key} & {2**BITS - 1})"
        else:
            place = f"r.{self.number or self.version} = {ref_key}"
        return f"SELECT {self.current} FROM {self.table} AS r WHERE r.{self.uuid} = {key} AND {place}"

    def elsewhere(self, key: str, ref_key: str) -> list[str]:
        """A ref key that no row holds now: in its tomb, among cells of our own, among the changes."""
        tomb = f"SELECT {_TOMB} FROM tripstore.tomb AS t WHERE {self._of('t', key)} AND t.ref_key = {ref_key}"
        changes = [
            f"SELECT {_CHANGE} FROM {table} AS q WHERE {self._of('q', key)} AND q.ref_key = {ref_key}"
            for table in CHANGES
        ]
        return [tomb, self.own.at(key, ref_key), *changes]

    def at(self, key: str, ref_key: str) -> str:
        """A row comes before what is kept of it, and that before its changes."""
        return _first_of([self.row(key, ref_key), *self.elsewhere(key, ref_key)])

    def latest(self, key: str) -> str:
        parts = " UNION ALL ".join([self.latest_row(key), self.latest_tomb(key), self.own.latest(key)])
        return f"SELECT {FIELDS} FROM ({parts}) AS cells ({FIELDS}) ORDER BY ref_key DESC LIMIT 1"

    def latest_row(self, key: str) -> str:
        last = f" ORDER BY r.{self.number} DESC LIMIT 1" if self.number else ""
        return f"(SELECT {self.current} FROM {self.table} AS r WHERE r.{self.uuid} = {key}{last})"

    def latest_tomb(self, key: str) -> str:
        return f"(SELECT {_TOMB} FROM tripstore.tomb AS t WHERE {self._of('t', key)} ORDER BY t.n DESC LIMIT 1)"

    def latest_child(self, key: str, number: str) -> str:
        """The latest cell of the child with a number; of a fact the tombstone above it, if there is one."""
        is_fact = self.column.ref_key.kind is RefKeyKind.FACT
        row = f"SELECT {self.current} FROM {self.table} AS r WHERE {self.is_row(key, number)}"
        tomb = f"SELECT {_TOMB} FROM tripstore.tomb AS t WHERE {self._of('t', key)} AND "
        own = f"SELECT {_CELL} FROM tripstore.cell AS c WHERE {self._of('c', key)} AND "
        if is_fact:
            tomb += f"t.ref_key >= {number}"
            own += f"(c.ref_key = {number} OR c.ref_key > {number} AND c.body = {TOMBSTONE_SQL})"
        else:
            tomb += f"t.n = {number}"
            own += f"c.ref_key BETWEEN {number} << {BITS} AND ({number} << {BITS}) + {2**BITS - 1}"
        parts = " UNION ALL ".join([row, tomb, own])
        return f"SELECT {FIELDS} FROM ({parts}) AS cells ({FIELDS}) ORDER BY ref_key DESC LIMIT 1"

    def newest(self, key: str, limit: int) -> str:
        """The newest versions that are known, at most so many: each once, whatever is missing between them."""
        parts = " UNION ALL ".join(self.below(key, "NULL::bigint", str(limit)))
        return (
            f"SELECT DISTINCT ON (ref_key) {FIELDS} FROM ({parts}) AS cells ({FIELDS}, in_chain, is_change, previous) "
            f"ORDER BY ref_key DESC, is_change DESC, in_chain DESC LIMIT {limit}"
        )

    def below(self, key: str, before: str, limit: str) -> list[str]:
        """The newest below a ref key from each place; three more fields say what they are in the chain of versions:
        whether they are part of it, whether they say what was before them, and what."""

        def part(select: str, source: str, where: str, order: str) -> str:
            return (
                f"(SELECT {select} FROM {source} WHERE {where} AND ({before} IS NULL OR {order} < {before}) "
                f"ORDER BY {order} DESC LIMIT {limit})"
            )

        tombs = part(_TOMB + ", true, false, NULL::bigint", "tripstore.tomb AS t", self._of("t", key), "t.ref_key")
        rows = part(
            self.current + ", true, false, NULL::bigint", f"{self.table} AS r", f"r.{self.uuid} = {key}", self.ref_key
        )
        own = part(
            _CELL + ", false, false, NULL::bigint",
            "tripstore.cell AS c",
            f"c.row_key = {key} AND c.column_name = {self.name}",
            "c.ref_key",
        )
        changes = [
            part(f"{_CHANGE}, {CAPTURED}, {CAPTURED}, q.previous", f"{table} AS q", self._of("q", key), "q.ref_key")
            for table in CHANGES
        ]
        return [tombs, rows, own, *changes]

    def above(self, key: str, ref_key: str, upper: str) -> str:
        """The nearest link of the chain of versions above a ref key: (ref key, is a change, previous)."""
        within = f"> {ref_key} AND {{0}} <= {upper}"

        def part(select: str, source: str, where: str, order: str) -> str:
            return (
                f"(SELECT {select} FROM {source} WHERE {where} AND {order} {within.format(order)} "
                f"ORDER BY {order} LIMIT 1)"
            )

        parts = [
            part("t.ref_key, false, NULL::bigint", "tripstore.tomb AS t", self._of("t", key), "t.ref_key"),
            part(
                f"{self.ref_key}, false, NULL::bigint",
                f"{self.table} AS r",
                f"r.{self.uuid} = {key}",
                self.ref_key,
            ),
        ]
        parts += [
            part("q.ref_key, true, q.previous", f"{table} AS q", f"{self._of('q', key)} AND {CAPTURED}", "q.ref_key")
            for table in CHANGES
        ]
        return (
            f"SELECT ref_key, is_change, previous FROM ({' UNION ALL '.join(parts)}) AS links "
            "(ref_key, is_change, previous) ORDER BY ref_key, is_change DESC LIMIT 1"
        )

    def _of(self, alias: str, key: str) -> str:
        return f"{alias}.row_key = {key} AND {alias}.column_name = {self.name}"


class LegacyIds:
    """The column that pairs the legacy id of a row with its UUID."""

    def __init__(self, layout: Layout) -> None:
        source = layout.row_key
        self.name = text(LEGACY_ID)
        self.table, self.uuid, self.id = source.table.sql, quoted(source.uuid), quoted(source.id)

    def latest(self, key: str) -> str:
        """Of a row that was deleted the pair is a cell of our own, which stays when it comes back with another id."""
        return _first_of([OwnCells(self.name).latest(key), self.row(key)])

    def newest(self, key: str, _limit: int) -> str:
        """There is one version only."""
        return self.latest(key)

    def row(self, key: str) -> str:
        return f"SELECT {self.current} FROM {self.table} AS r WHERE r.{self.uuid} = {key}"

    @property
    def current(self) -> str:
        """What to select of `r`, a row of the table."""
        body = f"""'{{"id":' || r.{self.id} || '}}'"""
        return f"0::bigint, NULL::int, {body}, {_NOT_OURS}"


def _first_of(parts: Sequence[str]) -> str:
    """What the first of these SELECTs finds, else the next."""
    ranked = " UNION ALL ".join(f"SELECT {rank}, part.* FROM ({part}) AS part" for rank, part in enumerate(parts))
    return f"SELECT {FIELDS} FROM ({ranked}) AS cells (rank, {FIELDS}) ORDER BY rank LIMIT 1"


def quoted_uuid(value: UUID) -> str:
    """A UUID as it stands in SQL."""
    return f"'{value}'::pg_catalog.uuid"


def quoted_int(number: int) -> str:
    """A bigint as it stands in SQL: without quotes the lowest one would be none."""
    return f"'{number}'::bigint"


def escaped(sql: str) -> str:
    """SQL that stands in a statement with parameters."""
    return sql.replace("%", "%%")
