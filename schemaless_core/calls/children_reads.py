"""`find_children`: the latest stored cells of many children, in bounded portions, each over all shards at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from schemaless_core.cell.children import FACTS, ChildKey, Children
from schemaless_core.cell.sharding import shard_of
from schemaless_core.cell.stored import StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node, Sighting

#: Keys in one statement.
KEYS_PER_CALL = 1000

#: By shard, in the shape that the verb of a node wants.
Wanted = Mapping[int, list[Any]]
Verb = Callable[[Node, Wanted, Deadline], dict[int, Sighting]]


class Ask(Protocol):
    """Asks the nodes that hold these shards, within the caller's deadline."""

    def __call__(self, verb: Verb, wanted: Wanted) -> Iterable[StoredCell]: ...


def find_children(keys: Sequence[ChildKey], children: Children, shards: int, ask: Ask) -> list[StoredCell | None]:
    """One cell or None per key, in order. Of a fact it is the tombstone above it, if there is one."""
    found: list[StoredCell | None] = []
    for first in range(0, len(keys), KEYS_PER_CALL):
        found += _Portion(keys[first : first + KEYS_PER_CALL], children, shards).find(ask)
    return found


class _Portion:
    """Keys that are asked for together, each once."""

    def __init__(self, keys: Sequence[ChildKey], children: Children, shards: int) -> None:
        self._keys = keys
        self._children = children
        self._shards = shards

    def find(self, ask: Ask) -> list[StoredCell | None]:
        found: dict[tuple[object, ...], StoredCell] = {}
        for cell in ask(_find_latest, self._wanted(None, _column)):
            found[(*cell[1:3], None)] = cell
        for cell in ask(_find_highest, self._wanted(False, self._span)):
            found[(*cell[1:3], cell.ref_key >> self._children[cell.column_name.decode()])] = cell
        for cell in ask(_find, self._wanted(True, _fact)):
            found[cell[1:4]] = cell
        ended = {cell[1:3]: cell for cell in ask(_find_tombstones, self._wanted(True, _column))}
        return [self._of(key, found, ended) for key in self._keys]

    def _of(
        self,
        key: ChildKey,
        found: Mapping[tuple[object, ...], StoredCell],
        ended: Mapping[tuple[bytes, bytes], StoredCell],
    ) -> StoredCell | None:
        column = _column(key)
        bits = self._bits(key)
        if bits == FACTS and key.child is not None:
            end = ended.get(column)
            if end is not None and end.ref_key >= key.child:
                return end
        return found.get((*column, None if bits is None else key.child))

    def _wanted(self, is_fact: bool | None, shape: Callable[[ChildKey], Any]) -> Wanted:
        """The keys of one kind; None: of columns that are one row."""
        wanted: defaultdict[int, dict[Any, None]] = defaultdict(dict)
        for key in self._keys:
            bits = self._bits(key)
            if (None if bits is None else bits == FACTS) == is_fact:
                wanted[shard_of(key.row_key, self._shards)][shape(key)] = None
        return {shard: list(part) for shard, part in wanted.items()}

    def _span(self, key: ChildKey) -> tuple[bytes, bytes, int, int]:
        assert key.child is not None
        bits = self._children[key.column_name]
        low = key.child << bits
        return (*_column(key), low, low + (1 << bits) - 1)

    def _bits(self, key: ChildKey) -> int | None:
        return None if key.child is None else self._children.get(key.column_name)


def _column(key: ChildKey) -> tuple[bytes, bytes]:
    return key.row_key.bytes, key.column_name.encode()


def _fact(key: ChildKey) -> tuple[bytes, bytes, int]:
    assert key.child is not None
    return (*_column(key), key.child)


def _find_latest(node: Node, wanted: Wanted, deadline: Deadline) -> dict[int, Sighting]:
    return node.find_latest_many(wanted, deadline)


def _find_highest(node: Node, wanted: Wanted, deadline: Deadline) -> dict[int, Sighting]:
    return node.find_highest_many(wanted, deadline)


def _find(node: Node, wanted: Wanted, deadline: Deadline) -> dict[int, Sighting]:
    return node.find_many(wanted, deadline)


def _find_tombstones(node: Node, wanted: Wanted, deadline: Deadline) -> dict[int, Sighting]:
    return node.find_tombstones_many(wanted, deadline)
