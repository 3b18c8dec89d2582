"""Cells that wait for a shard of another cluster, and those that met another body there, as a backup reads them.

Each portion is one statement: an answer without a cell says that none is behind the number that was asked for.
"""

from __future__ import annotations

from typing import Any

from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.copies import Rows
from schemaless_core.engine.mysql.copies.rows import CopyRows
from schemaless_core.engine.mysql.rows import utc

#: BodyForms may be of some MiB each.
CELLS_PER_PORTION = 32
_CELL = "number, row_key, column_name, ref_key, body, kept_at"
WAITING = f"SELECT {_CELL} FROM {{buffered}} WHERE shard = %s AND number > %s ORDER BY number LIMIT {CELLS_PER_PORTION}"
CONFLICTS = f"SELECT {_CELL} FROM {{conflict}} WHERE number > %s ORDER BY number LIMIT {CELLS_PER_PORTION}"


class CopiedWaiting(CopyRows):
    """The verbs about them."""

    def waiting(self, shard: int, after: int, deadline: Deadline) -> list[StoredCell]:
        return self._cells(WAITING, (shard, after), deadline)

    def conflicts(self, after: int, deadline: Deadline) -> list[StoredCell]:
        return self._cells(CONFLICTS, (after,), deadline)

    def _cells(self, statement: str, values: tuple[Any, ...], deadline: Deadline) -> list[StoredCell]:
        found: Rows = self._sessions.run(lambda connection: self._rows(connection, statement, values), deadline)
        return [StoredCell(number, row, column, ref, body, utc(at)) for number, row, column, ref, body, at in found]
