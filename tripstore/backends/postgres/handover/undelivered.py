"""`Undelivered`: questions to the queue about what the mirror has not got yet. Looks only; parked changes count.

What is asked for a caller's sake may fail: then it is unknown, and nothing is said to have arrived.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.wire.database import LegacyDatabase

_OLDEST = """\
SELECT COALESCE(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - min(q.at)), 0) FROM tripstore.queue AS q"""
_OF_ROWS = "SELECT DISTINCT q.row_key::text FROM tripstore.queue AS q WHERE q.row_key = ANY (%s::uuid[])"
_LAST = "SELECT COALESCE(max(q.id), 0) FROM tripstore.queue AS q"
_UP_TO = "SELECT EXISTS (SELECT FROM tripstore.queue AS q WHERE q.id <= %s)"


class Undelivered:
    """The queue, as one process looks at it."""

    def __init__(self, database: LegacyDatabase, seconds: float) -> None:
        self._database = database
        self._seconds = seconds

    def oldest_seconds(self) -> float:
        """Age of the oldest change; 0: there is none."""
        return float(self._rows(_OLDEST, ())[0][0])

    def of_rows(self, row_keys: Collection[UUID]) -> set[UUID]:
        """Those rows that have changes in the queue."""
        if not row_keys:
            return set()
        found = self._rows(_OF_ROWS, ([str(row_key) for row_key in row_keys],))
        return {UUID(row_key) for (row_key,) in found}

    def mark(self) -> int:
        """A place in the queue: everything that is committed now stands at it or below."""
        return int(self._rows(_LAST, ())[0][0])

    def is_empty_up_to(self, mark: int) -> bool:
        return not self._rows(_UP_TO, (mark,))[0][0]

    def _rows(self, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._database.run(lambda connection: connection.rows(sql, parameters), Deadline(self._seconds))
