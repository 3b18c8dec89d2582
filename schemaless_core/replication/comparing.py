"""`compare`: whether two datastores have the same logs, by sums of ranges that the servers make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from schemaless_core.logcopy.checks import IDS_PER_SUM
from schemaless_core.logcopy.ends import ClusterEnd

#: Ranges that are compared at a time.
THREADS = 4


class DifferingRange(NamedTuple):
    """Added ids at which two logs are not the same."""

    shard: int
    first: int
    last: int
    cells: int
    cells_there: int


class ComparedLogs(NamedTuple):
    """What was compared: up to the end of the shorter log of each shard."""

    shards: int
    #: Added ids.
    compared: int
    #: Cells that the other one has behind the end of the copies, and cells that are here behind the end of its logs.
    behind: int
    ahead: int
    differs: tuple[DifferingRange, ...]
    #: Shards that one of the two has no row of: nothing of them was compared.
    missing: tuple[int, ...] = ()


class LogEnds(NamedTuple):
    """One shard in both datastores: where its logs are, and where they end."""

    shard: int
    own: ClusterEnd
    own_head: int
    other: ClusterEnd
    other_head: int


def compare(ends: Iterable[LogEnds], hear: Callable[[int, int], object] = lambda done, total: None) -> ComparedLogs:
    """Compare them. `hear`: how many added ids are done, of how many."""
    listed = list(ends)
    total = sum(min(each.own_head, each.other_head) for each in listed)
    done, differs = 0, list[DifferingRange]()
    with ThreadPoolExecutor(THREADS) as threads:
        for part, found in threads.map(_compared, _parts(listed)):
            done += part
            if found is not None:
                differs.append(found)
            hear(done, total)
    return ComparedLogs(
        len(listed),
        total,
        sum(max(0, each.other_head - each.own_head) for each in listed),
        sum(max(0, each.own_head - each.other_head) for each in listed),
        tuple(differs),
    )


def _parts(ends: list[LogEnds]) -> Iterator[tuple[LogEnds, int, int]]:
    for each in ends:
        last = min(each.own_head, each.other_head)
        for first in range(1, last + 1, IDS_PER_SUM):
            yield each, first, min(first + IDS_PER_SUM - 1, last)


def _compared(part: tuple[LogEnds, int, int]) -> tuple[int, DifferingRange | None]:
    each, first, last = part
    own, other = each.own.sum(each.shard, first, last), each.other.sum(each.shard, first, last)
    found = None if own == other else DifferingRange(each.shard, first, last, own.cells, other.cells)
    return last - first + 1, found
