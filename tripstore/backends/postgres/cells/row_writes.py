"""`RowWrites`: inserts and updates rows of one mapped column, and takes back what came out as another body."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from schemaless_core.canonical import from_canonical
from schemaless_core.cell import Cell
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.bodies import Bodies, Stored, difference
from tripstore.backends.postgres.cells.free import NewCell
from tripstore.backends.postgres.cells.rows import ColumnRows, Found, escaped, quoted_int, quoted_uuid, text
from tripstore.backends.postgres.errors import Unrepresentable
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, quoted
from tripstore.backends.postgres.wire.translation import Again
from tripstore.backends.postgres.wire.wire import LegacyConnection

#: What the captured columns of a row are to hold.
Texts = Mapping[str, str | None]

#: A row that this very transaction wrote.
MINE = " AND r.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid"


class CameBefore(NamedTuple):
    """A cell of a child that was put before there was a row of its parent."""

    column_name: str
    ref_key: int
    data: bytes


def came_before(cell: Cell, children: Collection[MappedColumn]) -> str:
    """FROM and WHERE of the cells of children that wait for the row of this cell, and are not deleted."""
    numbers = {text(column.name): column.number_sql("c.ref_key") for column in children}
    number = " ".join(f"WHEN {name} THEN {each}" for name, each in numbers.items())
    return (
        f"FROM tripstore.cell AS c WHERE c.row_key = {quoted_uuid(cell.row_key)} "
        f"AND c.column_name IN ({', '.join(numbers)}) AND NOT EXISTS (SELECT FROM tripstore.tomb AS t "
        f"WHERE t.row_key = c.row_key AND t.column_name = c.column_name AND t.n = CASE c.column_name {number} END "
        "AND t.ref_key >= c.ref_key)"
    )


class RowWrites:
    """Writes within the caller's transaction."""

    def __init__(self, layout: Layout, rows: ColumnRows, bodies: Bodies) -> None:
        self._layout = layout
        self._rows = rows
        self._column = rows.column
        self._bodies = bodies

    def update(
        self, connection: LegacyConnection, new: NewCell, texts: Texts, expected: int | None, begin: str = ""
    ) -> bool:
        """Move a row to a higher version, which is the expected one if that is given; False: there is none such."""
        update, parameters = self._update(new.cell, texts, expected)
        found = connection.rows(escaped(begin) + update, parameters)
        if not found:
            return False
        reach("put.updated")
        self._compare(connection, new, Found(*found[0]))
        return True

    def insert(self, connection: LegacyConnection, new: NewCell, texts: Texts) -> None:
        """Insert the row, and read it once more: a tombstone that came meanwhile lifts it above its ref key."""
        insert, values = self._insert(new.cell, texts)
        found = connection.rows(f"{insert}; {escaped(self._row(new.cell))}", values)
        self._inserted(connection, new, [Found(*row) for row in found])

    def insert_first(
        self, connection: LegacyConnection, new: NewCell, texts: Texts, begin: str, children: Collection[MappedColumn]
    ) -> list[CameBefore] | None:
        """Insert the row if nothing was ever there, in the packet that begins the transaction; None: something was.

        Says which cells of children came before it.
        """
        cell, rows = new.cell, self._rows
        number, _version = self._column.split(cell.ref_key)
        key = quoted_uuid(cell.row_key)
        insert, values = self._insert(cell, texts)
        # Queue and log need not be asked: of a change that is there the row is, or what its deletion left.
        nothing = [
            f"SELECT FROM {rows.table} AS r WHERE {rows.is_row(key, str(number))}",
            f"SELECT FROM ({rows.own.at(key, quoted_int(cell.ref_key))}) AS own",
            *(
                f"SELECT FROM {table} AS t WHERE t.row_key = {key} AND t.column_name = {rows.name}"
                for table in ("tripstore.tomb", "tripstore.kept")
            ),
        ]
        conditions = " AND ".join(f"NOT EXISTS ({each})" for each in nothing)
        insert += f" {'AND' if self._column.is_child else 'WHERE'} {escaped(conditions)}"
        # Its own row, not one that somebody else inserted.
        look = f"SELECT 'row', found.* FROM ({self._row(cell, MINE)}) AS found"
        if children:
            waiting = (
                f"SELECT 'child ' || c.column_name, c.ref_key, NULL, NULL, c.body, NULL {came_before(cell, children)}"
            )
            look += f" UNION ALL {waiting}"
        found = connection.rows(f"{escaped(begin)}; {insert}; {escaped(look)}", values)
        rows_found = [Found(*row) for kind, *row in found if kind == "row"]
        if not rows_found:
            return None
        self._inserted(connection, new, rows_found)
        return [CameBefore(kind.removeprefix("child "), row[0], bytes(row[3])) for kind, *row in found if kind != "row"]

    def _inserted(self, connection: LegacyConnection, new: NewCell, found: Sequence[Found]) -> None:
        reach("put.inserted")
        if not found or found[0].ref_key != new.cell.ref_key:
            raise Again("the row was deleted or lifted meanwhile")
        self._compare(connection, new, found[0])

    def _row(self, cell: Cell, more: str = "") -> str:
        rows, number = self._rows, self._column.split(cell.ref_key)[0]
        is_row = rows.is_row(quoted_uuid(cell.row_key), str(number))
        return f"SELECT {rows.current} FROM {rows.table} AS r WHERE {is_row}{more}"

    def _insert(self, cell: Cell, texts: Texts) -> tuple[str, list[Any]]:
        rows, column = self._rows, self._column
        number, version = column.split(cell.ref_key)
        values: dict[str, Any] = {quoted(name): value for name, value in texts.items() if not self._is_key(name)}
        if rows.number is not None:
            values[rows.number] = number
        if rows.version is not None:
            values[rows.version] = version
        key = quoted_uuid(cell.row_key)
        names = [rows.uuid, *values]
        markers = ["%s"] * len(values)
        source = f"SELECT {', '.join([key, *markers])}"
        if column.parent is not None:
            names.insert(0, quoted(column.parent))
            parent = self._layout.row_key
            source = (
                f"SELECT {', '.join(['p.' + escaped(quoted(parent.id)), key, *markers])} "
                f"FROM {escaped(parent.table.sql)} AS p WHERE p.{escaped(quoted(parent.uuid))} = {key}"
            )
        return f"INSERT INTO {escaped(rows.table)} ({escaped(', '.join(names))}) {source}", list(values.values())

    def _update(self, cell: Cell, texts: Texts, expected: int | None) -> tuple[str, list[Any]]:
        """Set the captured columns and the version of a row whose version is lower."""
        rows, column = self._rows, self._column
        number, version = column.split(cell.ref_key)
        assert rows.version is not None  # facts are never changed
        values = {name: value for name, value in texts.items() if not self._is_key(name)}
        assignments = [f"{escaped(quoted(name))} = %s" for name in values] + [f"{escaped(rows.version)} = '{version}'"]
        key = quoted_uuid(cell.row_key)
        where = f"{rows.is_row(key, str(number))} AND r.{rows.version} < {quoted_int(version)}"
        if expected is not None:
            where += f" AND r.{rows.version} = {quoted_int(column.split(expected)[1])}"
        own = rows.own.at(key, quoted_int(cell.ref_key))
        sql = (
            f"UPDATE {escaped(rows.table)} AS r SET {', '.join(assignments)} "
            f"WHERE {escaped(where)} AND NOT EXISTS ({escaped(own)}) RETURNING {escaped(rows.current)}"
        )
        return sql, list(values.values())

    def _compare(self, connection: LegacyConnection, new: NewCell, row: Found) -> None:
        """Refuse when the row that came of a put holds another body: whoever raises rolls back."""
        stored = Stored(new.cell.row_key, new.cell.column_name, row)
        data = self._bodies.data(connection, stored)
        if data != new.data:
            path = difference(new.cell.body, from_canonical(data))
            hint = "Write it as Postgres gives it back, or map it to another type."
            raise Unrepresentable(path, "Postgres gives back another value", hint=hint)

    def _is_key(self, physical: str) -> bool:
        """Whether a physical column is part of the row's key, and so set by it."""
        source = self._column.ref_key
        return physical in (self._column.uuid, self._column.parent, source.column, source.version)
