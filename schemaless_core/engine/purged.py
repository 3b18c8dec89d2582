"""Slices of a log with gaps: which of their added ids repair has purged, as far as one look says."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.engine.base import LogSlice
from schemaless_core.engine.mending import PURGED_PER_LOOK


def has_gap(start: int, found: LogSlice, limit: int) -> bool:
    """Whether a slice lacks added ids between its start and its end: the head, or the last of so many cells."""
    last = found.cells[-1].added_id if len(found.cells) == limit else found.head.head
    return last > start + len(found.cells)


def with_purged(found: LogSlice, purged: Sequence[int]) -> LogSlice:
    """A slice with what a look at the purged ids up to its head brought. What lies behind a full look is left out."""
    cells = found.cells
    if len(purged) == PURGED_PER_LOOK:
        cells = [cell for cell in cells if cell.added_id <= purged[-1]]
    return found._replace(cells=cells, purged=frozenset(purged))


def page_end(found: LogSlice, after: int) -> int:
    """The last added id that a page leads to. What was purged behind its last cell belongs to the next one."""
    return found.cells[-1].added_id if found.cells else max(found.purged, default=after)
