"""`CopyRows`: a shard's row, held while its copy is changed.

Whatever changes a copy holds its row, and looks first whether it is a copy, and its own: a process that was stopped
changes nothing of a shard that was opened meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemaless_core.engine.copies import CopySeen, Rows
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection, bound
from schemaless_core.engine.mysql.wire.sessions import Sessions

LOOK = "SELECT epoch, state, CAST(next_added_id AS SIGNED) - 1 FROM {state} WHERE shard = %s"
HOLD = f"{LOOK} FOR UPDATE"
CLAIMED = "SELECT 1 FROM {history} WHERE shard = %s AND epoch = 0 AND first_added_id = %s"

#: Cells in one INSERT, and rows of what stands beside them.
ROWS_PER_STATEMENT = 500


class CopyRows:
    """What all verbs on copies do."""

    def __init__(self, sessions: Sessions, names: Names) -> None:
        self._sessions = sessions
        self.names = names

    @contextmanager
    def _held(self, connection: DeadlineConnection, shard: int) -> Iterator[CopySeen | None]:
        """A transaction under the shard's row; it says nothing of the shard any more when the block fails."""
        connection.begin()
        try:
            if connection.may_write:
                sent(connection, connection.may_write)
            found = self._rows(connection, HOLD, (shard,))
            yield CopySeen(int(found[0][0]), str(found[0][1]), int(found[0][2])) if found else None
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def _may(self, connection: DeadlineConnection, shard: int, seen: CopySeen | None, claim: int) -> bool:
        """Whether it is a copy that this claim writes."""
        is_mine = self._rows(connection, CLAIMED, (shard, claim))
        return seen is not None and seen.state == "MOVED" and bool(is_mine)

    def _look(self, connection: DeadlineConnection, shard: int) -> CopySeen | None:
        found = self._rows(connection, LOOK, (shard,))
        return CopySeen(int(found[0][0]), str(found[0][1]), int(found[0][2])) if found else None

    def _rows(self, connection: DeadlineConnection, statement: str, values: tuple[Any, ...] = ()) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(self._of(statement), values or None)
            return cursor.fetchall()

    def _do(self, connection: DeadlineConnection, statement: str, values: tuple[Any, ...] = ()) -> None:
        with connection.cursor() as cursor:
            cursor.execute(self._of(statement), values or None)

    def _of(self, template: str, shard: int | None = None) -> str:
        if "{" not in template:
            return template
        filled = template if shard is None else template.replace("{cell}", self.names.cell(shard))
        return self.names.meta_sql(filled)

    def _fill(self, connection: DeadlineConnection, insert: str, update: str, rows: Rows) -> None:
        for first in range(0, len(rows), ROWS_PER_STATEMENT):
            sent(
                connection,
                self._filled(connection, self._of(insert), self._of(update), rows[first : first + ROWS_PER_STATEMENT]),
            )

    def _filled(self, connection: DeadlineConnection, insert: str, update: str, rows: Rows) -> bytes:
        places = f"({', '.join(['%s'] * len(rows[0]))})"
        listed = b", ".join(bound(connection, places, row) for row in rows)
        return b"%s VALUES %s %s" % (insert.encode(), listed, update.encode())


def sent(connection: DeadlineConnection, statement: bytes) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)  # type: ignore[call-overload]  # PyMySQL takes bytes as they are; its stubs say str
