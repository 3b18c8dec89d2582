"""`RowStatements`: the statements that write rows of one mapped column, most of them prepared.

To parse and plan them costs more than to run them. A value comes as a text without a type. Of a prepared statement's
parameters Postgres takes the types of the columns they are written to, so that a text is read by the column's own type
and then fitted to its length or precision, as when it stands in the statement itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from tripstore.backends.postgres.cells.rows import ColumnRows, text
from tripstore.backends.postgres.layout.layout import (
    LEGACY_ID,
    VERSION_BITS,
    VERSION_MAX,
    Layout,
    MappedColumn,
    RefKeyKind,
    quoted,
)
from tripstore.backends.postgres.wire.wire import Prepared

#: A row that this very transaction wrote.
MINE = "r.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid"


class CellPlace(NamedTuple):
    """Where a cell goes, as SQL: row key, number and version of the row, and its ref key."""

    key: str
    number: str
    version: str
    ref_key: str


_PLACE = CellPlace("$1", "$2", "$3", "$4")
_EXPECTED = "$5"
_TYPES = "uuid, bigint, bigint, bigint, bigint"


class RowStatements:
    """One mapped column's. The prepared ones take a place and what is expected, then the values in their order."""

    def __init__(self, layout: Layout, rows: ColumnRows) -> None:
        self._rows = rows
        self._column = rows.column
        self._row_key = layout.row_key
        self._children = () if rows.column.is_child else layout.children
        #: The captured columns that values are written to; those of the row's key get theirs from it.
        self.written = tuple(name for name in rows.column.captured if not _is_key(rows.column, name))

    def insert(self, place: CellPlace, values: Sequence[str], legacy_id: int | None = None) -> str:
        """An INSERT of one row, with the legacy id of an earlier life; more conditions may be added with AND."""
        column, rows = self._column, self._rows
        names, sources = [rows.uuid], [place.key]
        for name, source in ((rows.number, place.number), (rows.version, place.version)):
            if name is not None:
                names.append(name)
                sources.append(source)
        names += map(quoted, self.written)
        sources += values
        found = "WHERE true"
        if column.parent is not None:
            names.append(quoted(column.parent))
            sources.append(f"p.{quoted(self._row_key.id)}")
            found = self._from_parent(place.key)
        # An identity that is always generated takes the number that the cell has.
        overriding = "OVERRIDING SYSTEM VALUE " if rows.number is not None else ""
        if legacy_id is not None and self._row_key.id not in self.written:
            names.append(quoted(self._row_key.id))
            sources.append(f"'{legacy_id}'")
            overriding = "OVERRIDING SYSTEM VALUE "
        return f"INSERT INTO {rows.table} ({', '.join(names)}) {overriding}SELECT {', '.join(sources)} {found}"

    def legacy_id(self, key: str) -> str | None:
        """The legacy id that a row had before it was deleted; children have none."""
        if self._column.is_child:
            return None
        body = "pg_catalog.convert_from(c.body, 'UTF8')::pg_catalog.json"
        return (
            f"SELECT pg_catalog.json_extract_path_text({body}, 'id')::bigint FROM tripstore.cell AS c "
            f"WHERE c.row_key = {key} AND c.column_name = '{LEGACY_ID}'"
        )

    def row(self, place: CellPlace) -> str:
        return f"SELECT {self._rows.current} FROM {self._rows.table} AS r WHERE {self._is_row(place)}"

    def parent(self, key: str) -> str:
        return f"SELECT 1 {self._from_parent(key)}"

    @cached_property
    def types(self) -> Prepared:
        """Nothing, in the types of all columns that are written: it fails once one of them has another type.

        The others keep the types that columns had when they were prepared, and this one was prepared before them. It
        also keeps the table from being altered until the transaction ends.
        """
        columns = ", ".join(f"r.{quoted(name)}" for name in self.written)
        return Prepared("", f"SELECT {columns} FROM {self._rows.table} AS r WHERE false")

    @cached_property
    def insert_first(self) -> Prepared:
        """An INSERT where nothing was ever there.

        Queue and log need not be asked: of a change that is there the row is, or what its deletion left.
        """
        rows, place = self._rows, _PLACE
        name, n = rows.name, place.number if self._column.ref_key.kind is RefKeyKind.CHILD else "0"
        nothing = [
            f"SELECT FROM {rows.table} AS r WHERE {self._is_row(place)}",
            f"SELECT FROM tripstore.cell AS c WHERE c.row_key = {place.key} AND c.column_name = {name} "
            f"AND {self._is_from_here_on(place)}",
            *(
                f"SELECT FROM {table} AS t WHERE t.row_key = {place.key} AND t.column_name = {name} AND t.n = {n}"
                for table in ("tripstore.tomb", "tripstore.kept")
            ),
        ]
        conditions = " AND ".join(f"NOT EXISTS ({each})" for each in nothing)
        return Prepared(_TYPES, f"{self.insert(_PLACE, self._values)} AND {conditions}")

    @cached_property
    def look(self) -> Prepared:
        """The row that this transaction has inserted, if it has, and whether cells of children were there before it."""
        rows, came_before = self._rows, self._came_before(_PLACE.key)
        return Prepared(
            "uuid, bigint",
            f"SELECT {rows.current}, {came_before} FROM {rows.table} AS r WHERE {self._is_row(_PLACE)} AND {MINE}",
        )

    @cached_property
    def look_at_many(self) -> Prepared:
        """The same of many rows, inserted or moved; in front the place of each among those that were asked for."""
        rows, came_before = self._rows, self._came_before("k.key")
        return Prepared(
            "uuid[], bigint[]",
            f"SELECT k.n, {rows.current}, {came_before} FROM unnest($1, $2) WITH ORDINALITY AS k (key, number, n) "
            f"JOIN {rows.table} AS r ON {rows.is_row('k.key', 'k.number')} AND {MINE}",
        )

    @cached_property
    def update(self) -> Prepared:
        """Sets the captured columns and the version of a row whose version is lower, and the expected one if any is."""
        rows, place = self._rows, _PLACE
        assert rows.version is not None  # facts are never changed
        assignments = [f"{quoted(name)} = {value}" for name, value in zip(self.written, self._values, strict=True)]
        assignments.append(f"{rows.version} = {place.version}")
        return Prepared(
            _TYPES,
            f"UPDATE {rows.table} AS r SET {', '.join(assignments)} WHERE {self._is_row(place)} "
            f"AND r.{rows.version} < {place.version} AND ({_EXPECTED} IS NULL OR r.{rows.version} = {_EXPECTED}) "
            f"AND NOT EXISTS ({rows.own.at(place.key, place.ref_key)}) RETURNING {rows.current}",
        )

    @property
    def _values(self) -> list[str]:
        first = len(_TYPES.split(",")) + 1
        return [f"${first + n}" for n in range(len(self.written))]

    def _from_parent(self, key: str) -> str:
        return f"FROM {self._row_key.table.sql} AS p WHERE p.{quoted(self._row_key.uuid)} = {key}"

    def _came_before(self, key: str) -> str:
        """Whether cells of children are there: of a row that is new they were there before it."""
        if not self._children:
            return "false"
        names = ", ".join(text(column.name) for column in self._children)
        return f"EXISTS (SELECT FROM tripstore.cell AS c WHERE c.row_key = {key} AND c.column_name IN ({names}))"

    def _is_row(self, place: CellPlace) -> str:
        return self._rows.is_row(place.key, place.number)

    def _is_from_here_on(self, place: CellPlace) -> str:
        """Whether a cell of our own stands under the row's number at or above the ref key: it would be the latest."""
        match self._column.ref_key.kind:
            case RefKeyKind.FACT:
                return f"c.ref_key = {place.ref_key}"
            case RefKeyKind.VERSION:
                return f"c.ref_key >= {place.ref_key}"
        last = f"({place.number} << {VERSION_BITS} | {VERSION_MAX})"
        return f"c.ref_key BETWEEN {place.ref_key} AND {last}"


def literal(value: str | None) -> str:
    """A text as it stands in SQL without a type, whatever standard_conforming_strings is; None: NULL."""
    if value is None:
        return "NULL"
    doubled = value.replace("'", "''")
    if "\\" in value:
        return "E'" + doubled.replace("\\", "\\\\") + "'"
    return f"'{doubled}'"


def _is_key(column: MappedColumn, physical: str) -> bool:
    """Whether a physical column is part of the row's key, and so set by it."""
    source = column.ref_key
    return physical in (column.uuid, column.parent, source.column, source.version)
