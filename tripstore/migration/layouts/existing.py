"""Whether a column has cells, anywhere: in Schemaless, or in what Postgres keeps of changes and of deleted rows.

All of it is walked once, while writers go on. Behind the fence only what came since is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline

#: Ask Postgres; a log of many days is read.
Ask = Callable[[str, tuple[Any, ...]], Sequence[Sequence[Any]]]

SCAN_SECONDS = 3600.0
LOOK_SECONDS = 5.0
LOG_PAGE = 1_000
_NOW = "SELECT pg_catalog.clock_timestamp()"
_KEPT = """
SELECT place FROM (
    SELECT 'queue' AS place, EXISTS (SELECT FROM tripstore.queue WHERE column_name = %s) AS has
    UNION ALL SELECT 'log', EXISTS (SELECT FROM tripstore.log WHERE column_name = %s AND at >= %s::timestamptz)
    UNION ALL SELECT 'tomb', EXISTS (SELECT FROM tripstore.tomb WHERE column_name = %s)
    UNION ALL SELECT 'cell', EXISTS (SELECT FROM tripstore.cell WHERE column_name = %s)
) AS places WHERE has
"""


class LogMark(NamedTuple):
    """Up to where there were no cells."""

    heads: dict[int, int]
    at: datetime


@dataclass(frozen=True, slots=True)
class Existing:
    """Of one datastore."""

    store: Datastore
    ask: Ask

    def mark(self) -> LogMark:
        """From where a later look has to begin: taken before the walk."""
        heads: dict[int, int] = {}
        for cluster in self.store.clusters.values():
            found = cluster.primary.ask(lambda node: node.heads(None, Deadline(LOOK_SECONDS)))
            heads |= {shard: head.head for shard, head in found.items()}
        return LogMark(heads, self.ask(_NOW, ())[0][0])

    def places(self, column: str) -> list[str]:
        """Where cells of a column are; all of it is walked."""
        reader = self.store.using(deadline=SCAN_SECONDS)
        shards = range(self.store.config.shards)
        has_cells = any(reader.scan_rows(shard, None, 1, [column]).rows for shard in shards)
        return [*(["Schemaless"] if has_cells else []), *self._waiting(column), *self._kept(column, None)]

    def places_since(self, column: str, mark: LogMark) -> list[str]:
        """The same of what came after a mark."""
        has_cells = any(self._is_in_log(shard, column, mark) for shard in range(self.store.config.shards))
        return [*(["Schemaless"] if has_cells else []), *self._waiting(column), *self._kept(column, mark.at)]

    def _is_in_log(self, shard: int, column: str, mark: LogMark) -> bool:
        location = mark.heads.get(shard, 0)
        while True:
            page = self.store.get_cells_for_shard(shard, location, LOG_PAGE)
            if any(cell.column_name == column for cell in page.cells):
                return True
            if page.next_location >= page.head:
                return False
            location = page.next_location

    def _waiting(self, column: str) -> list[str]:
        """A cell that waits in a buffer will be one of its shard."""
        return ["a buffer"] if column in self.store.replayer().columns() else []

    def _kept(self, column: str, since: datetime | None) -> list[str]:
        found = self.ask(_KEPT, (column, column, since or "-infinity", column, column))
        return [f"tripstore.{place}" for (place,) in found]
