"""`Purges`: deletes whole rows, or superseded versions, for good. The protocol: docs/decisions/0084.

The keys are recorded first, under each shard's counter row: from then on no put stores one of them, whatever way it
comes. Then the cells are deleted, with a line each in the audit table, and the entries of indexes made right. Last the
lines are stripped of bodies. Each step looks at what is there and may be repeated, so a purge may be killed anywhere.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.sharding import shard_of
from schemaless_core.cell.standing import Gate
from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.purging import FORMER_SECONDS, PurgedKey, RowTraces, Unerased, whole_row
from schemaless_core.errors import SchemalessError, SchemaMissing
from schemaless_core.failpoints import reach
from schemaless_core.indexes.former_entries import FormerEntries
from schemaless_core.indexes.indexes import IndexParts
from schemaless_core.indexes.left_entries import LeftEntries
from schemaless_core.mends import Mends, RawCell
from schemaless_core.servers.routing import Router
from schemaless_core.servers.shard_primaries import ShardPrimaries

CALL_SECONDS = 20.0
#: Keys that are read at once.
ROWS_PER_PAGE = 5_000
#: Cells of one transaction, whose shard's writers wait for it.
CELLS_PER_STEP = 200


class PurgedCells(NamedTuple):
    """What a step did: cells it deleted, their rows, and what waited elsewhere for those rows."""

    cells: int
    rows: int
    waiting: int = 0
    conflicts: int = 0


class SupersededStep(NamedTuple):
    """What a step did in a shard's log, and up to which added id it has come."""

    cells: int
    reached: int


class Leftover(NamedTuple):
    """Something of a row that is still there."""

    row_key: UUID
    what: str


class Purges:
    """Of one datastore."""

    def __init__(
        self,
        router: Router,
        shards: int,
        index_parts: IndexParts,
        job: str = "",
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._router = router
        self._primaries = ShardPrimaries(router, CALL_SECONDS)
        self._shards = shards
        self._parts = index_parts
        self._job = job
        self._sleep = sleep
        self._left = LeftEntries(index_parts, router, shards)

    def of_job(self, job: str) -> Purges:
        """The same, on behalf of a job."""
        return Purges(self._router, self._shards, self._parts, job, self._sleep)

    @property
    def has_indexes(self) -> bool:
        """Whether cells of any column have entries."""
        return any(True for _version in self._parts.catalogue.kept())

    # ---- whole rows --------------------------------------------------------------------------------------------

    def rows(self, row_keys: Iterable[UUID]) -> PurgedCells:
        """Delete rows, whatever they have and whatever waits for them; nothing of them is stored again."""
        cells = rows = 0
        for shard, keys in self._by_shard(row_keys).items():
            self._keep(shard, [whole_row(key.bytes) for key in keys])
            for key in keys:
                count = self._delete_row(shard, key)
                cells, rows = cells + count, rows + bool(count)
        traces = self._everywhere(row_keys, lambda node, keys, end: node.purging.forget(keys, end))
        self._forget_in_copies(row_keys)
        return PurgedCells(cells, rows, traces.waiting, traces.conflicts)

    def finish_rows(self, row_keys: Iterable[UUID]) -> list[Leftover]:
        """Make the entries of purged rows right once more, strip the audit lines, and say what is left of the rows.

        Another writer of entries may have read a row's cells before they were deleted: what it wrote goes now.
        """
        left = list[Leftover]()
        for shard, keys in self._by_shard(row_keys).items():
            mends = self._mends(shard)
            columns = mends.indexed_columns
            for key in keys:
                if columns:
                    mends.rebuild(key, columns)
                if self._versions(shard, key, 1):
                    left.append(Leftover(key, "cells"))
            self._left.remove(keys, mends.shard_values)  # the lines tell the values as long as they have bodies
            barred = [whole_row(key.bytes) for key in keys]
            reach("purge.before_erase")
            self._primaries.write(shard, lambda node, gate, end: node.purging.erase(gate, barred, end))  # noqa: B023  # called at once
        self._everywhere(row_keys, lambda node, keys, end: node.purging.forget(keys, end))
        self._forget_in_copies(row_keys)
        return left

    def whole_rows(self) -> Iterator[list[UUID]]:
        """All rows that were purged, in portions; some twice, where a move has left a copy."""
        for cluster in self._router.holders(Deadline(CALL_SECONDS)):
            after = (0, b"")
            while True:
                found = cluster.ask(partial(_whole_rows, after))
                if not found:
                    break
                after = found[-1]
                yield [UUID(bytes=row_key) for _shard, row_key in found]

    def remove_former_entries(self, row_keys: Collection[UUID]) -> list[Leftover]:
        """Entries of purged rows under values that only superseded versions had; return what is left of them.

        Before the first `finish_rows`, which leaves no body that tells a row's values.
        """
        left = FormerEntries(self._parts, self._router, self._shards).remove(row_keys)
        return [Leftover(key, f"entries in index {name}") for key, name in left.items()]

    def count_rows(self, row_keys: Iterable[UUID]) -> PurgedCells:
        """What `rows` would delete; nothing is changed."""
        cells = rows = 0
        for shard, keys in self._by_shard(row_keys).items():
            for key in keys:
                count = len(self._versions(shard, key, 1_000_000))
                cells, rows = cells + count, rows + bool(count)
        traces = self._everywhere(row_keys, lambda node, keys, end: node.purging.traces(keys, end))
        return PurgedCells(cells, rows, traces.waiting, traces.conflicts)

    def _forget_in_copies(self, row_keys: Iterable[UUID]) -> None:
        """A move leaves one on the cluster that the shard has left, and the way back goes on with it."""
        deadline = Deadline(CALL_SECONDS)
        rows = {shard: [key.bytes for key in keys] for shard, keys in self._by_shard(row_keys).items()}
        for answer in self._router.ask_all(lambda node: node.purging.forget_in_copies(rows, deadline)).values():
            if isinstance(answer, SchemalessError) and not isinstance(answer, SchemaMissing):
                raise answer

    def _delete_row(self, shard: int, row_key: UUID) -> int:
        count, mends = 0, self._mends(shard)
        while cells := self._versions(shard, row_key, CELLS_PER_STEP):
            reach("purge.before_delete")
            count += sum(mends.purge_all(cells))
        return count

    def _versions(self, shard: int, row_key: UUID, limit: int) -> list[RawCell]:
        found = self._primaries.ask(shard, lambda node, end: node.purging.versions(shard, row_key.bytes, limit, end))
        return [RawCell(cell) for cell in found.cells]

    # ---- superseded versions -----------------------------------------------------------------------------------

    def last_before(self, shard: int, moment: datetime) -> int:
        """The last added id that was given before a moment."""
        return self._primaries.ask(shard, lambda node, end: node.first_created_at(shard, moment, end)) - 1

    def superseded(self, shard: int, columns: Sequence[str], after: int, last: int) -> SupersededStep:
        """Delete versions with a later one in their column, from behind one added id, up to another: a portion."""
        self._finish_columns(shard)
        names = [name.encode() for name in columns]
        found = self._primaries.ask(
            shard, lambda node, end: node.purging.superseded(shard, names, after, last, CELLS_PER_STEP, end)
        )
        count = 0
        if found.cells:
            highest = dict[tuple[bytes, bytes], int]()
            for cell in found.cells:
                key = cell.row_key, cell.column_name
                highest[key] = max(cell.ref_key, highest.get(key, cell.ref_key))
            self._keep(shard, [PurgedKey(*key, ref_key) for key, ref_key in highest.items()])
            reach("purge.before_delete")
            count = sum(self._mends(shard).purge_all([RawCell(cell) for cell in found.cells]))
            self._finish_columns(shard)
        return SupersededStep(count, found.reached)

    def under(
        self, shard: int, keys: Sequence[PurgedKey], chosen: Callable[[Sequence[StoredCell]], Sequence[StoredCell]]
    ) -> int:
        """Have keys of columns kept that another server kept before, and delete superseded versions that they bar.

        `chosen`: says of some which are to go.
        """
        self._keep(shard, keys)
        count, mends = 0, self._mends(shard)
        for key in keys:
            before = key.ref_key + 1
            while cells := self._primaries.ask(shard, partial(_superseded, shard, key, before)):
                before = cells[-1].ref_key
                if those := chosen(cells):
                    reach("purge.before_delete")
                    count += sum(mends.purge_all([RawCell(cell) for cell in those]))
        self._finish_columns(shard)
        return count

    def count_superseded(self, shard: int, columns: Sequence[str], last: int) -> int:
        """How many it would delete."""
        names, count, after = [name.encode() for name in columns], 0, 0
        while after < last:
            found = self._primaries.ask(
                shard,
                lambda node, end: node.purging.superseded(shard, names, after, last, CELLS_PER_STEP, end),  # noqa: B023  # called at once
            )
            count, after = count + len(found.cells), found.reached
        return count

    def _finish_columns(self, shard: int) -> None:
        """Entries and lines of versions that were deleted, by whichever purge: it may have been killed, or go on now.

        Lines that another one writes behind the look have their bodies still when it makes its own entries right.
        """
        mends = self._mends(shard)
        while (seen := self._unerased(shard)).keys:
            columns = defaultdict[bytes, set[str]](set)
            for row_key, name, _ref_key in seen.keys:
                if name.decode() in mends.indexed_columns:
                    columns[row_key].add(name.decode())
            for row_key, names in columns.items():
                mends.rebuild(UUID(bytes=row_key), names)
            reach("purge.before_erase")
            self._primaries.write(shard, partial(_erase, seen))

    def _unerased(self, shard: int) -> Unerased:
        return self._primaries.ask(shard, lambda node, end: node.purging.unerased(shard, CELLS_PER_STEP, end))

    # ---- what both do ------------------------------------------------------------------------------------------

    def _keep(self, shard: int, keys: Sequence[PurgedKey]) -> None:
        while not self._primaries.ask(shard, lambda node, end: node.purging.is_known(end)):
            # A process that has seen the server's tables as an earlier version made them looks again by then.
            self._sleep(FORMER_SECONDS)
        reach("purge.before_keep")
        self._primaries.write(shard, lambda node, gate, end: node.purging.keep(gate, keys, end))
        reach("purge.kept")

    def _everywhere(
        self, row_keys: Iterable[UUID], verb: Callable[[Node, list[bytes], Deadline], RowTraces]
    ) -> RowTraces:
        """Ask each cluster: what waits for a row waits elsewhere. One that does not answer raises."""
        deadline, keys = Deadline(CALL_SECONDS), [key.bytes for key in row_keys]
        found = [0, 0, 0]
        for answer in self._router.ask_all(lambda node: verb(node, keys, deadline)).values() if keys else ():
            if isinstance(answer, SchemaMissing):
                continue  # a cluster without the tables of a buffer: nothing was ever kept there
            if isinstance(answer, SchemalessError):
                raise answer
            found = [known + more for known, more in zip(found, answer, strict=True)]
        return RowTraces(*found)

    def _by_shard(self, row_keys: Iterable[UUID]) -> Mapping[int, list[UUID]]:
        found = defaultdict[int, list[UUID]](list)
        for key in row_keys:
            found[shard_of(key, self._shards)].append(key)
        return found

    def _mends(self, shard: int) -> Mends:
        return Mends(self._router, self._shards, self._primaries.standing(shard), self._parts, self._job)


def _erase(seen: Unerased, node: Node, gate: Gate, deadline: Deadline) -> None:
    """Unless the shard has gone elsewhere since the look, where lines have other numbers: then look again."""
    if gate.epoch == seen.epoch:
        node.purging.erase(gate, seen.keys, deadline, seen.last_line)


def _whole_rows(after: tuple[int, bytes], node: Node) -> list[tuple[int, bytes]]:
    return node.purging.whole_rows(after, ROWS_PER_PAGE, Deadline(CALL_SECONDS))


def _superseded(shard: int, key: PurgedKey, before: int, node: Node, deadline: Deadline) -> list[StoredCell]:
    """A portion of a column's versions below a ref key, the highest first, without the latest of all."""
    latest = node.history(shard, key.row_key, key.column_name, None, 1, deadline).cells
    if not latest:
        return []
    below = min(latest[0].ref_key, before)
    return node.history(shard, key.row_key, key.column_name, below, CELLS_PER_STEP, deadline).cells
