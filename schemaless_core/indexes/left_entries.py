"""`LeftEntries`: entries of purged rows in the copies that moves have left, or are making.

A copy has the index tables that its shard had then. No reader asks them, and the way back of a move goes on with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from schemaless_core.cell.answers import Scalar
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.values import index_shard_of
from schemaless_core.engine.base import IndexTable, Node
from schemaless_core.engine.copies import HoldsCopies
from schemaless_core.errors import IndexMissing, SchemalessError, SchemaMissing
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.indexes import IndexParts
from schemaless_core.servers.routing import Router

T = TypeVar("T")

#: How long one cluster may take, and the look at one table of a copy from its first entry to its last.
CALL_SECONDS = 20.0
WALK_SECONDS = 120.0

#: Shard values and row keys, by the shard whose table they are in.
_Keys = Mapping[int, Sequence[tuple[Scalar, bytes]]]


class LeftEntries:
    """Of all clusters. Each call may be repeated; one that does not answer raises."""

    def __init__(self, parts: IndexParts, router: Router, shards: int) -> None:
        self._parts = parts
        self._router = router
        self._shards = shards

    def remove(self, row_keys: Collection[UUID], values: Callable[[IndexVersion, UUID], Collection[Scalar]]) -> None:
        """Remove them under the shard values that rows have or had, as long as these are known."""
        if not any(self._each(_there)):
            return
        for version in self._parts.catalogue.kept():
            kind, keys = version.definition.shard_field.kind, defaultdict[int, list[tuple[Scalar, bytes]]](list)
            for row_key in row_keys:
                for value in values(version, row_key):
                    keys[index_shard_of(kind, value, self._shards)].append((value, row_key.bytes))
            self._done(partial(_forget, version.table, keys))

    def remove_all(self, version: IndexVersion, row_keys: Sequence[bytes]) -> None:
        """The same under whatever values: each table of a copy is looked through."""
        self._done(partial(_forget_all, version.table, row_keys))

    def _done(self, verb: Callable[[Node], object]) -> None:
        for _answer in self._each(verb):
            pass

    def _each(self, verb: Callable[[Node], T]) -> Iterator[T]:
        for answer in self._router.ask_all(verb).values():
            if isinstance(answer, SchemaMissing):
                continue  # a cluster that never had a shard
            if isinstance(answer, SchemalessError):
                raise answer
            yield answer


def _there(node: Node) -> list[int]:
    return node.copies.there(Deadline(CALL_SECONDS)) if isinstance(node, HoldsCopies) else []


def _forget(table: IndexTable, keys: _Keys, node: Node) -> None:
    if isinstance(node, HoldsCopies):
        for shard in keys.keys() & set(_there(node)):
            node.copies.forget_entries(shard, table, keys[shard], Deadline(CALL_SECONDS))


def _forget_all(table: IndexTable, row_keys: Sequence[bytes], node: Node) -> None:
    for shard in _there(node):
        try:
            seen = node.find_entries_of(table, {shard: row_keys}, Deadline(WALK_SECONDS))[shard]
        except IndexMissing:
            continue  # the copy is older than the index
        keys = [(value, entry.row_key) for entry in seen.entries if (value := entry.values[0]) is not None]
        if keys:
            _forget(table, {shard: keys}, node)
