"""Walks over a shard's latest cells: pages of rows, and checksums."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from schemaless_core.calls.lookups import Lookups, to_cell
from schemaless_core.cell.answers import Bucket, Row, RowPage
from schemaless_core.cell.cell import Cell, check_row_key
from schemaless_core.cell.children import Children
from schemaless_core.cell.requests import check_limit, check_shard, listed_names
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD
from schemaless_core.cell.standing import ShardState, Standing
from schemaless_core.cell.stored import StoredCell, VersionsPage
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import BucketSum, HashedCell, Node
from schemaless_core.engine.kinds import ColumnKind, kinds_of
from schemaless_core.habits import Habits
from schemaless_core.servers.routing import Router


class _Sums(NamedTuple):
    state: ShardState
    buckets: list[BucketSum]


class _Hashes(NamedTuple):
    state: ShardState
    cells: list[HashedCell]


class Walks:
    """The part of a datastore that enumerates."""

    def __init__(self, router: Router, config: DatastoreConfig, habits: Habits, standing: Standing) -> None:
        self._router = router
        self._config = config
        self._habits = habits
        self._standing = standing

    def rows(self, shard: int, after: UUID | None, limit: int, columns: Collection[str] | None) -> RowPage:
        check_shard(shard, self._config.shards)
        check_limit(limit)
        columns = listed_names(columns)
        if after is not None:
            check_row_key(after)
        start = None if after is None else after.bytes
        names, deadline = _encoded(columns), self._deadline()
        # One more than asked: whether it is there says whether a next page is.
        sighting = self._router.read(
            shard,
            lambda node: node.scan(shard, start, limit + 1, names, deadline),
            self._standing,
            self._habits.read,
            deadline,
        )
        if sighting.is_cut:
            return self._fitting(sighting.cells, limit, columns)
        cells = map(to_cell, sighting.cells)
        rows = _rows(cells)
        page = rows[:limit]
        return RowPage(page, page[-1].row_key if len(rows) > limit else None)

    def _fitting(self, stored: Sequence[StoredCell], limit: int, columns: Collection[str] | None) -> RowPage:
        """Of a page that was cut all rows but the last, which may lack cells; where it is the only one, all of it."""
        rows = _rows(map(to_cell, stored))
        page = rows[:-1][:limit]
        if not page:
            row_key = rows[0].row_key
            lookups = Lookups(self._router, self._config, self._habits, self._standing)
            page = [Row(row_key, dict(sorted(lookups.row(row_key, columns).items())))]
        return RowPage(page, page[-1].row_key)

    def versions(self, shard: int, after: bytes | None, limit: int, columns: Collection[str] | None) -> VersionsPage:
        check_shard(shard, self._config.shards)
        check_limit(limit)
        names, deadline = _encoded(listed_names(columns)), self._deadline()
        found = self._router.read(
            shard,
            lambda node: node.scan_versions(shard, after, limit, names, deadline),
            self._standing,
            self._habits.read,
            deadline,
        )
        if not found.is_cut and len(found.cells) < limit:
            return VersionsPage(found.cells, None)
        last = found.cells[-1].row_key  # it may lack versions
        whole = found.cells[: bisect_left(found.cells, last, key=lambda cell: cell.row_key)]
        return VersionsPage(whole, whole[-1].row_key) if whole else VersionsPage([], last, too_large=last)

    def checksum(self, shard: int, columns: Collection[str] | None, children: Children) -> list[Bucket]:
        check_shard(shard, self._config.shards)
        columns = listed_names(columns)
        kinds, deadline = _kinds(columns, children), self._deadline()

        def look(node: Node) -> _Sums:
            return _Sums(*node.checksum(shard, kinds, deadline))

        sums = self._router.read(shard, look, self._standing, self._habits.read, deadline)
        found = {bucket.number: bucket for bucket in sums.buckets}
        return [
            Bucket(shard, n, found[n].cells, found[n].total % 2**64) if n in found else Bucket(shard, n, 0, 0)
            for n in range(BUCKETS_PER_SHARD)
        ]

    def digests(
        self, shard: int, buckets: Collection[int], columns: Collection[str] | None, children: Children
    ) -> list[HashedCell]:
        check_shard(shard, self._config.shards)
        columns = listed_names(columns)
        kinds, deadline = _kinds(columns, children), self._deadline()

        def look(node: Node) -> _Hashes:
            return _Hashes(*node.digests(shard, buckets, kinds, deadline))

        return self._router.read(shard, look, self._standing, self._habits.read, deadline).cells

    def _deadline(self) -> Deadline:
        seconds = self._config.deadlines.scan_seconds if self._habits.deadline is None else self._habits.deadline
        return Deadline(seconds)


def _rows(cells: Iterable[Cell]) -> list[Row]:
    return [
        Row(row_key, {cell.column_name: cell for cell in of_row})
        for row_key, of_row in groupby(cells, key=lambda cell: cell.row_key)
    ]


def _kinds(columns: Collection[str] | None, children: Children) -> list[ColumnKind]:
    return kinds_of(_encoded(columns), {name.encode(): bits for name, bits in children.items()})


def _encoded(columns: Collection[str] | None) -> list[bytes] | None:
    return None if columns is None else [name.encode() for name in dict.fromkeys(columns)]
