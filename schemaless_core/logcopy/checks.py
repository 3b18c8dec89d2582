"""Whether a copy is the log: sums of its parts, and another copy of a part that differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from schemaless_core.errors import CopyDiffers
from schemaless_core.logcopy.ends import LogSink, LogSource

#: Added ids whose sums are compared at once.
IDS_PER_SUM = 20_000
CELLS_PER_PAGE = 2_000
#: A part that repair changes meanwhile is copied again; one that differs always is no copy.
TRIES = 3


def check(
    source: LogSource, sink: LogSink, shard: int, first: int, last: int, hear: Callable[[], object] = lambda: None
) -> int:
    """Compare a part of a copy with the log, and copy again what differs; return how many parts that were.

    `hear`: is called before each of them; may end it by raising.
    """
    differed = 0
    for part in _parts(first, last):
        hear()
        differed += _check(source, sink, shard, *part)
    return differed


def _check(source: LogSource, sink: LogSink, shard: int, first: int, last: int) -> bool:
    for attempt in range(TRIES):
        if source.sum(shard, first, last) == sink.sum(shard, first, last):
            return attempt > 0
        recopy(source, sink, shard, first, last)
    raise CopyDiffers(shard, first, last)


def recopy(source: LogSource, sink: LogSink, shard: int, first: int, last: int) -> None:
    """Copy a part of a log anew, as it is now."""
    while first <= last:
        page = source.page(shard, first - 1, min(CELLS_PER_PAGE, last - first + 1))
        cells = [cell for cell in page.slice.cells if cell.added_id <= last]
        is_end = len(cells) < len(page.slice.cells) or page.end <= first - 1 or page.end >= last
        end = last if is_end else page.end
        purged = frozenset(added_id for added_id in page.slice.purged if first <= added_id <= end)
        sink.replace(shard, first, page._replace(slice=page.slice._replace(cells=cells, purged=purged)), end)
        first = end + 1


def _parts(first: int, last: int) -> Iterator[tuple[int, int]]:
    for start in range(first, last + 1, IDS_PER_SUM):
        yield start, min(start + IDS_PER_SUM - 1, last)
