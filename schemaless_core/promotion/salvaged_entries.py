"""`SalvagedEntries`: entries of indexes that stand on an old primary's disk go to the shards that lead now.

An entry says of which ref keys it is, so an older one changes nothing. An entry that is gone says nothing: a purge
removes those of a forgotten row. Such rows are asked for before and after the write. Where a purge came in between, or
an earlier salvage brought an entry back, it is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemaless_core.calls.purged import AS_COPIER, find_purged
from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.standing import ShardState, Standing
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import EntrySighting, EntryWrite, IndexTable, Node
from schemaless_core.engine.purging import whole_row
from schemaless_core.errors import IndexMissing, SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.servers.routing import Router

CALL_SECONDS = 10.0
ENTRIES_PER_PAGE = 1_000


class _Entries(NamedTuple):
    """What a shard said after entries were written; in the shape the router wants."""

    state: ShardState


class SalvagedEntries:
    """Of one old primary."""

    def __init__(self, router: Router, old: Node, shards: int, tables: Sequence[IndexTable]) -> None:
        self._router = router
        self._old = old
        self._shards = shards
        self._tables = tables

    def merge(self, shards: Iterable[int], standing: Standing) -> int:
        """Write all entries of these shards; return how many."""
        return sum(self._merge(table, shard, standing) for shard in shards for table in self._tables)

    def _merge(self, table: IndexTable, shard: int, standing: Standing) -> int:
        count = 0
        after: tuple[Scalar, bytes] | None = None
        while page := self._after(table, shard, after):
            barred = self._barred(page)
            if writes := [each for each in page if each.row_key not in barred]:
                self._write(table, shard, writes, standing)
                reach("salvage.entries_written")
                barred |= self._barred(writes)
            if gone := [each for each in page if each.row_key in barred]:
                self._remove(table, shard, gone)
            count += len(page) - len(gone)
            after = page[-1].shard_value, page[-1].row_key
        return count

    def _after(self, table: IndexTable, shard: int, after: tuple[Scalar, bytes] | None) -> list[EntryWrite]:
        deadline = Deadline(CALL_SECONDS)
        try:
            _state, found = self._old.scan_entries(table, shard, after, ENTRIES_PER_PAGE, deadline)
        except IndexMissing:
            return []  # the version is younger than its death
        writes: list[EntryWrite] = []
        for each in found:
            assert each.values[0] is not None, "an entry stands under its shard value"
            writes.append(EntryWrite(each.values[0], each.row_key, each.values, each.refs, each.is_dead))
        return writes

    def _barred(self, entries: Sequence[EntryWrite]) -> set[bytes]:
        """Those of their rows that were purged as a whole."""
        keys = [whole_row(row_key) for row_key in {each.row_key for each in entries}]
        return {row_key for row_key, _name, _ref_key in find_purged(self._router, self._shards, keys)}

    def _write(self, table: IndexTable, shard: int, writes: Sequence[EntryWrite], standing: Standing) -> None:
        deadline = Deadline(CALL_SECONDS)

        def put(node: Node, part: object) -> dict[int, _Entries]:
            return {n: _Entries(state) for n, state in node.put_entries(table, {shard: writes}, deadline).items()}

        answer = self._router.write_each({shard: writes}, put, standing, deadline)[shard]
        if isinstance(answer, SchemalessError):
            raise answer

    def _remove(self, table: IndexTable, shard: int, gone: Sequence[EntryWrite]) -> None:
        deadline, keys = Deadline(CALL_SECONDS), [(each.shard_value, each.row_key) for each in gone]

        def remove(node: Node) -> EntrySighting:
            found = node.find_entries_at(table, {shard: keys}, deadline)[shard]
            if not found.entries:
                return found
            state, _removed = node.remove_entries(table, shard, found.entries, deadline)
            return EntrySighting(state, [])

        self._router.read(shard, remove, AS_COPIER, "primary_only", deadline)
