"""`ReturnedRows`: rows that stand below their tombstones. They came back unseen by capture: their partition was
attached again, or a restore had disabled the triggers. By key they are deleted, and SQL sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from schemaless_core.cell.children import ChildKey
from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.rows import ColumnRows, escaped
from tripstore.backends.postgres.layout.layout import RefKeyKind
from tripstore.backends.postgres.wire.database import LegacyDatabase

_RETURNED = """\
SELECT r.{uuid}::pg_catalog.text, {number} FROM tripstore.tomb AS t JOIN {table} AS r ON r.{uuid} = t.row_key{child}
WHERE t.column_name = {name} AND t.ref_key > {ref_key}"""
_OF_ROWS = " AND t.row_key = ANY (%s::pg_catalog.uuid[])"
#: Tombstones of one statement.
PAGE = 20_000
PAGE_END = f"SELECT row_key FROM tripstore.tomb WHERE row_key > %s ORDER BY row_key OFFSET {PAGE - 1} LIMIT 1"
_OF_PAGE = " AND t.row_key BETWEEN %s AND %s"
_FIRST, _LAST = str(UUID(int=0)), str(UUID(int=(1 << 128) - 1))


class ReturnedRows:
    """Of one legacy store."""

    def __init__(self, database: LegacyDatabase, places: ColumnPlaces) -> None:
        self._database = database
        self._columns = places.columns

    def all(self, seconds: float) -> list[ChildKey]:
        """Those of all mapped columns, by pages that take so long at most. Costs a look at each tombstone."""
        found, place = dict[ChildKey, None](), _FIRST
        while place != _LAST:
            deadline = Deadline(seconds)
            end = self._page_end(place, deadline)
            for name in self._columns:
                found |= dict.fromkeys(self._of_column(name, _OF_PAGE, (place, end), deadline))
            place = end
        return list(found)

    def _page_end(self, place: str, deadline: Deadline) -> str:
        ends = self._database.run(lambda connection: connection.rows(PAGE_END, (place,)), deadline)
        return str(ends[0][0]) if ends else _LAST

    def among(self, keys: Sequence[ChildKey], deadline: Deadline) -> set[ChildKey]:
        """Which of these are such rows."""
        found = set[ChildKey]()
        for name in {key.column_name for key in keys if key.column_name in self._columns}:
            row_keys = list({str(key.row_key) for key in keys if key.column_name == name})
            found.update(self._of_column(name, _OF_ROWS, (row_keys,), deadline))
        return found.intersection(keys)

    def _of_column(self, name: str, more: str, values: Any, deadline: Deadline) -> list[ChildKey]:
        sql = _statement(self._columns[name])
        found = self._database.run(lambda connection: connection.rows(escaped(sql) + more, values), deadline)
        return [ChildKey(UUID(key), name, number) for key, number in found]


def _statement(rows: ColumnRows) -> str:
    is_child = rows.column.ref_key.kind is RefKeyKind.CHILD
    return _RETURNED.format(
        uuid=rows.uuid,
        number=f"r.{rows.number}::bigint" if rows.number else "NULL::bigint",
        table=rows.table,
        child=f" AND r.{rows.number} = t.n" if is_child else "",
        name=rows.name,
        ref_key=rows.ref_key,
    )
