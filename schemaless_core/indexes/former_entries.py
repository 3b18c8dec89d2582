"""`FormerEntries`: entries of rows under shard values that no cell and no line of the audit table knows any more.

A purge of superseded versions strips the lines of bodies, and leaves a dead entry under the value that a version had.
When the whole row is purged later, only a walk through the tables of the index finds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import ShardState
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import EntrySighting, Node, StoredEntry
from schemaless_core.engine.mending import Mended, MendLine
from schemaless_core.failpoints import reach
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.indexes import IndexParts
from schemaless_core.indexes.left_entries import LeftEntries
from schemaless_core.indexes.rows import AS_COPIER
from schemaless_core.servers.routing import Router

#: Shards whose tables one call walks, and how long it may take.
SHARDS_PER_WALK = 32
WALK_SECONDS = 120.0
LOOK_SECONDS = 20.0
#: Another writer of entries may come between the look and the removal.
TRIES = 5


class _LinesSeen(NamedTuple):
    """Lines of a row, in the shape the router wants."""

    state: ShardState
    lines: list[MendLine]


class FormerEntries:
    """Of rows that have no cells and get none any more."""

    def __init__(self, parts: IndexParts, router: Router, shards: int) -> None:
        self._parts = parts
        self._router = router
        self._shards = shards
        self._left = LeftEntries(parts, router, shards)

    def remove(self, row_keys: Collection[UUID]) -> dict[UUID, str]:
        """Remove them; return rows with an index that has entries of them still. For other rows nothing is walked."""
        left = dict[UUID, str]()
        versions = self._parts.catalogue.kept()
        stripped = {key: columns for key in row_keys if versions and (columns := self._stripped(key.bytes))}
        for version in versions:
            rows = [key.bytes for key, columns in stripped.items() if version.shard_column.encode() in columns]
            for row_key in self._remove(version, rows) if rows else ():
                left[UUID(bytes=row_key)] = version.name
            if rows:
                self._left.remove_all(version, rows)
        return left

    def _stripped(self, row_key: bytes) -> set[bytes]:
        """Columns of a row whose purged cells left no body in the lines."""
        shard, deadline = shard_of_bytes(row_key, self._shards), Deadline(LOOK_SECONDS)

        def look(node: Node) -> _LinesSeen:
            lines = node.mending.of_row(shard, row_key, deadline)
            return _LinesSeen(node.heads([shard], deadline)[shard].state, lines)

        lines = self._router.read(shard, look, AS_COPIER, "primary_only", deadline).lines
        gone = (line for line in lines if line.action is Mended.PURGE and line.old_body is None)
        return {line.column_name for line in gone if line.column_name is not None}

    def _remove(self, version: IndexVersion, row_keys: Collection[bytes]) -> set[bytes]:
        """Rows of which something was there at the last look."""
        left = set[bytes]()
        for first in range(0, self._shards, SHARDS_PER_WALK):
            shards = range(first, min(first + SHARDS_PER_WALK, self._shards))
            for _attempt in range(TRIES):
                found = self._found(version, shards, row_keys)
                if not found:
                    break
                reach("former.before_remove")
                for shard, entries in found.items():
                    self._remove_at(version, shard, entries)
            else:
                left |= {entry.row_key for entries in found.values() for entry in entries}
        return left

    def _found(
        self, version: IndexVersion, shards: Collection[int], row_keys: Collection[bytes]
    ) -> dict[int, list[StoredEntry]]:
        deadline, wanted = Deadline(WALK_SECONDS), list(row_keys)

        def find(node: Node, part: Mapping[int, list[bytes]]) -> dict[int, EntrySighting]:
            return node.find_entries_of(version.table, part, deadline)

        answers = self._router.read_many(dict.fromkeys(shards, wanted), find, AS_COPIER, "primary_only", deadline)
        return {shard: list(sighting.entries) for shard, sighting in answers.items() if sighting.entries}

    def _remove_at(self, version: IndexVersion, shard: int, entries: list[StoredEntry]) -> None:
        deadline = Deadline(LOOK_SECONDS)

        def remove(node: Node) -> EntrySighting:
            state, _removed = node.remove_entries(version.table, shard, entries, deadline)
            return EntrySighting(state, [])

        self._router.read(shard, remove, AS_COPIER, "primary_only", deadline)
