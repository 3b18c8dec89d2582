"""`CarriedPurges`: what was purged on a server that died, or led before, is purged where its shards are led now.

The lost tail of a log may have had a purge as well as cells. Its keys are on that server's disk. They are compared
with those of the shard that leads now: one that it lacks, or has not gone through with, is a purge to be done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.purging import KeptKey, PurgedKey
from schemaless_core.errors import Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.purging.purges import Purges
from schemaless_core.purging.runner import ROWS_PER_STEP, SETTLE_SECONDS
from schemaless_core.servers.routing import Router
from schemaless_core.servers.shard_primaries import ShardPrimaries

T = TypeVar("T")

CALL_SECONDS = 20.0
KEYS_PER_PAGE = 1_000
#: Keys of columns that are kept by one transaction.
KEYS_PER_STEP = 200


class _Lacking(NamedTuple):
    """Keys of one shard: of whole rows, and of columns."""

    rows: list[UUID]
    columns: list[PurgedKey]


class CarriedPurges:
    """Of one server."""

    def __init__(
        self,
        router: Router,
        old: Node,
        purges: Purges,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """`purges`: of the datastore that leads the shards now."""
        self._primaries = ShardPrimaries(router, CALL_SECONDS)
        self._old = old
        self._purges = purges
        self._sleep = sleep

    def count(self, shard: int) -> int:
        """How many keys of a shard are to be carried."""
        return sum(len(page.rows) + len(page.columns) for page in self._lacking(shard))

    def carry(self, forks: Mapping[int, int]) -> int:
        """Purge what was purged there, to the end; return the number of keys. It may be repeated.

        `forks`: by shard the first added id that the server does not share with the one that leads now.
        """
        rows, count = list[UUID](), 0
        for shard, fork in forks.items():
            chosen = partial(self._gone, shard, fork)
            for page in self._lacking(shard):
                rows += page.rows
                count += len(page.rows) + len(page.columns)
                for some in _portions(page.rows, ROWS_PER_STEP):
                    self._purges.rows(some)
                    reach("carried.rows")
                for keys in _portions(page.columns, KEYS_PER_STEP):
                    self._purges.under(shard, keys, chosen)
                    reach("carried.columns")
        if rows and self._purges.has_indexes:
            # Another writer of entries may have read a row's cells before they were deleted.
            self._sleep(SETTLE_SECONDS)
        former = self._purges.remove_former_entries(rows) if rows else []
        for some in _portions(rows, ROWS_PER_STEP):
            if left := [*former, *self._purges.finish_rows(some)]:
                names = ", ".join(str(each.row_key) for each in left)
                raise Unavailable(f"Something of rows that were purged is left: {names}.", hint="Repeat the command.")
            reach("carried.finished")
        return count

    def _gone(self, shard: int, fork: int, cells: Sequence[StoredCell]) -> list[StoredCell]:
        """Those that both servers had, and that was purged there. What came since the fork no purge there has seen."""
        keys = [cell[1:4] for cell in cells]
        there = {cell[1:4] for cell in self._old.find_many({shard: keys}, Deadline(CALL_SECONDS))[shard].cells}
        return [cell for cell in cells if cell.added_id < fork and cell[1:4] not in there]

    def _lacking(self, shard: int) -> Iterator[_Lacking]:
        """Page by page: a key that is known, and whose lines are stripped, was gone through with."""
        after: PurgedKey | None = None
        while page := self._old.purging.kept(shard, after, KEYS_PER_PAGE, Deadline(CALL_SECONDS)):
            done = self._done(shard, after, page[-1].key)
            lacking = [key for key, _is_erased in page if done.get(key[:2], key.ref_key - 1) < key.ref_key]
            yield _Lacking(
                [UUID(bytes=key.row_key) for key in lacking if not key.column_name],
                [key for key in lacking if key.column_name],
            )
            after = page[-1].key

    def _done(self, shard: int, after: PurgedKey | None, last: PurgedKey) -> dict[tuple[bytes, bytes], int]:
        """What the shard that leads has gone through with, behind one key and up to another."""
        done = dict[tuple[bytes, bytes], int]()
        while page := self._kept(shard, after):
            done |= {key[:2]: key.ref_key for key, is_erased in page if is_erased}
            after = page[-1].key
            if after[:2] >= last[:2]:
                break
        return done

    def _kept(self, shard: int, after: PurgedKey | None) -> list[KeptKey]:
        return self._primaries.ask(shard, lambda node, end: node.purging.kept(shard, after, KEYS_PER_PAGE, end))


def _portions(listed: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (listed[first : first + size] for first in range(0, len(listed), size))
