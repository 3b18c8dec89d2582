"""`RowWrites`: inserts and updates rows of one mapped column, and takes back what came out as another body."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import Cell
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.put.row_statements import CellPlace, RowStatements, literal
from tripstore.backends.postgres.cells.put.unmapped import UnmappedCell
from tripstore.backends.postgres.cells.read.bodies import Bodies, StoredRow
from tripstore.backends.postgres.cells.rows import ColumnRows, Found, quoted_int, quoted_uuid, text
from tripstore.backends.postgres.errors import LegacyRefused, UnreadableRow, Unrepresentable
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn
from tripstore.backends.postgres.wire.translation import SERVER, Again
from tripstore.backends.postgres.wire.wire import LegacyConnection
from tripstore.engines.validation.compare import first_difference

#: What the captured columns of a row are to hold.
Texts = Mapping[str, str | None]


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


def find_came_before(connection: LegacyConnection, cell: Cell, children: Collection[MappedColumn]) -> list[CameBefore]:
    """The cells of children that wait for the row of this cell."""
    found = connection.rows(f"SELECT c.column_name, c.ref_key, c.body {came_before(cell, children)}")
    return [CameBefore(name, ref_key, bytes(body)) for name, ref_key, body in found]


class RowWrites:
    """Writes within the caller's transaction."""

    def __init__(self, layout: Layout, rows: ColumnRows, bodies: Bodies, *, is_exact: bool) -> None:
        self._rows = rows
        self._is_exact = is_exact
        self._column = rows.column
        self._statements = RowStatements(layout, rows)
        self._bodies = bodies

    def update(
        self, connection: LegacyConnection, new: UnmappedCell, texts: Texts, expected: int | None, begin: str = ""
    ) -> bool:
        """Move a row to a higher version, which is the expected one if that is given; False: there is none such."""
        types = self.types_sql(connection)
        found = connection.rows(f"{begin}{types}; {self.update_sql(connection, new.cell, texts, expected)}")
        if not found:
            return False
        reach("put.updated")
        self._compare(connection, new, Found(*found[0]))
        if self._is_exact:
            self._look_again(connection, new.cell)
        return True

    def insert(self, connection: LegacyConnection, new: UnmappedCell, texts: Texts) -> None:
        """Insert the row, and read it once more: a tombstone that came meanwhile lifts it above its ref key."""
        statements, place = self._statements, self._place(new.cell)
        earlier = statements.legacy_id(place.key)
        found = connection.rows(earlier) if earlier else []
        insert = statements.insert(place, self._values(texts), found[0][0] if found else None)
        self._inserted(connection, new, connection.rows(f"{insert}; {statements.row(place)}"))

    def insert_first(
        self,
        connection: LegacyConnection,
        new: UnmappedCell,
        texts: Texts,
        begin: str,
        children: Collection[MappedColumn],
    ) -> list[CameBefore] | None:
        """Insert the row if nothing was ever there, in the packet that begins the transaction; None: something was.

        Says which cells of children came before it.
        """
        cell, statements = new.cell, self._statements
        number, _version = self._column.split(cell.ref_key)
        types, insert = self.types_sql(connection), self.insert_first_sql(connection, cell, texts)
        look = connection.call(statements.look, f"'{cell.row_key}', '{number}'")
        found = connection.rows(f"{begin}; {types}; {insert}; {look}")
        if not found:  # not even one that another session inserted meanwhile: it would not be this transaction's
            return None
        *row, has_children = found[0]
        self._inserted(connection, new, [row])
        return find_came_before(connection, cell, children) if has_children else []

    def types_sql(self, connection: LegacyConnection) -> str:
        """Comes first in a transaction that writes rows by prepared statements."""
        return connection.call(self._statements.types)

    def prepare(self, connection: LegacyConnection) -> str:
        """The same, for a look at many rows before the end: to prepare that while they are locked takes time."""
        connection.call(self._statements.look_at_many)
        return self.types_sql(connection)

    def update_sql(self, connection: LegacyConnection, cell: Cell, texts: Texts, expected: int | None) -> str:
        """Move a row to a higher version, which is the expected one if that is given."""
        return connection.call(self._statements.update, self._arguments(cell, texts, expected))

    def insert_first_sql(self, connection: LegacyConnection, cell: Cell, texts: Texts) -> str:
        """Insert the row if nothing was ever there."""
        return connection.call(self._statements.insert_first, self._arguments(cell, texts, None))

    def not_as_put(self, connection: LegacyConnection, cells: Sequence[UnmappedCell]) -> set[UUID]:
        """The rows of these that this transaction has not written, or that are not exactly what was put by now.

        A new row that children waited for is among them: they are to be brought in.
        """
        keys = ", ".join(f'"{new.cell.row_key}"' for new in cells)
        numbers = ", ".join(str(self._column.split(new.cell.ref_key)[0]) for new in cells)
        found = connection.execute(self._statements.look_at_many, f"'{{{keys}}}', '{{{numbers}}}'")
        seen = {n: (Found(*row), has_children) for n, *row, has_children in found}
        return {
            new.cell.row_key
            for n, new in enumerate(cells, 1)
            if n not in seen or not self._is_as_put(connection, new, *seen[n])
        }

    def _is_as_put(self, connection: LegacyConnection, new: UnmappedCell, row: Found, has_children: bool) -> bool:
        cell = new.cell
        if row.ref_key != cell.ref_key or (has_children and self._column.is_first(cell.ref_key)):
            return False
        return self._bodies.data(connection, StoredRow(cell.row_key, cell.column_name, row)) == new.data

    def _inserted(self, connection: LegacyConnection, new: UnmappedCell, found: Sequence[Sequence[Any]]) -> None:
        reach("put.inserted")
        if not found:
            raise self._kept_out(connection, new.cell)
        row = Found(*found[0])
        if row.ref_key != new.cell.ref_key:
            row = self._replaced(connection, new.cell)
            if self._is_exact:
                raise self._changed_again()
        self._compare(connection, new, row)

    def _look_again(self, connection: LegacyConnection, cell: Cell) -> None:
        """An UPDATE says what the row was before triggers that run after it."""
        found = connection.rows(self._statements.row(self._place(cell)))
        if not found or Found(*found[0]).ref_key != cell.ref_key:
            raise self._changed_again()

    def _changed_again(self) -> Unrepresentable:
        hint = "The mirror would not be what it mirrors: let the trigger leave rows alone that tripstore writes."
        return Unrepresentable("", f"a trigger of {self._column.table} changes the row once more", hint=hint)

    def _place(self, cell: Cell) -> CellPlace:
        number, version = self._column.split(cell.ref_key)
        return CellPlace(quoted_uuid(cell.row_key), quoted_int(number), quoted_int(version), quoted_int(cell.ref_key))

    def _kept_out(self, connection: LegacyConnection, cell: Cell) -> Again | LegacyRefused:
        """Why there is no row after its INSERT."""
        if self._column.is_child and not connection.rows(self._statements.parent(quoted_uuid(cell.row_key))):
            return Again("the parent's row was deleted meanwhile")
        table = self._column.table
        return LegacyRefused(
            f"{SERVER} refuses the write: a trigger or policy of {table} keeps the row out.",
            hint=f"Rows of {cell.column_name} must be what is inserted; look at the triggers of {table}.",
        )

    def _replaced(self, connection: LegacyConnection, cell: Cell) -> Found:
        """What a row was before a trigger of the company's changed it: to capture that is another version."""
        found = connection.rows(self._rows.at(quoted_uuid(cell.row_key), quoted_int(cell.ref_key)))
        if not found:
            raise Again("the row was lifted meanwhile")
        return Found(*found[0])

    def _arguments(self, cell: Cell, texts: Texts, expected: int | None) -> str:
        """What the prepared statements take."""
        number, version = self._column.split(cell.ref_key)
        expected_version = "NULL" if expected is None else f"'{self._column.split(expected)[1]}'"
        place = f"'{cell.row_key}', '{number}', '{version}', '{cell.ref_key}', {expected_version}"
        return ", ".join([place, *self._values(texts)])

    def _values(self, texts: Texts) -> list[str]:
        return [literal(texts[name]) for name in self._statements.written]

    def _compare(self, connection: LegacyConnection, new: UnmappedCell, row: Found) -> None:
        """Refuse when the row that came of a put holds another body, or none: the caller rolls back."""
        stored = StoredRow(new.cell.row_key, new.cell.column_name, row)
        hint = "Write it as Postgres gives it back, or map it to another type."
        reason = "Postgres gives back another value"
        try:
            data = self._bodies.data(connection, stored)
        except UnreadableRow as unreadable:
            raise Unrepresentable(unreadable.path, f"{reason}: {unreadable.reason}", hint=hint) from unreadable
        if data != new.data:
            path = first_difference(new.cell.body, from_canonical(data))
            raise Unrepresentable(path or "", reason, hint=hint)
