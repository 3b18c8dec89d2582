"""`Rebuilding`: makes the entries of a row right after repair changed or deleted one of its cells.

Entries only move forward, by ref keys. A cell that got other bytes has the ref key that it had, and a cell that is gone
left an entry that none of the row's cells explains: such entries are removed first, then written as for any row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.cell import Cell
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.values import index_shard_of
from schemaless_core.engine.base import EntrySighting, EntryWrite, Node, StoredEntry
from schemaless_core.errors import Unavailable
from schemaless_core.indexes.entries import IndexVersion, dead_entry, living_entry
from schemaless_core.indexes.rows import AS_COPIER, Rows
from schemaless_core.indexes.writer import EntryWriter
from schemaless_core.servers.routing import Router

#: Another writer of the row's entries may have read its cells before the change.
TRIES = 5


class Rebuilding:
    """The entries of one index version."""

    def __init__(self, version: IndexVersion, router: Router, shards: int, writer: EntryWriter) -> None:
        self._version = version
        self._router = router
        self._shards = shards
        self._rows = Rows(router, shards)
        self._writer = writer

    def rebuild(self, row_key: bytes, shard_values: Collection[Scalar], deadline: Deadline) -> None:
        """Make right what stands under the row's shard value and under these, which it may have had."""
        for _attempt in range(TRIES):
            if self._is_right(row_key, shard_values, deadline):
                return
        raise Unavailable(
            f"The entries of row {row_key.hex()} in index {self._version.name} were written by others all the time.",
            hint="Repeat the repair.",
        )

    def _is_right(self, row_key: bytes, shard_values: Collection[Scalar], deadline: Deadline) -> bool:
        """Look, and if something is wrong, write it anew."""
        version = self._version
        rows = self._rows.latest([row_key], version.definition.column_names, deadline)
        rows.raise_first()
        latest = rows.of(row_key)
        living = living_entry(version, row_key, latest)
        newest = latest.get(version.shard_column)
        places = {*shard_values, *([] if living is None else [living.shard_value])}
        found = self._at(places, row_key, deadline)
        wrong = [entry for entry in found if not _is_explained(entry, living, newest)]
        if not wrong and (living is None or living.shard_value in map(_shard_value, found)):
            return True
        for entry in wrong:
            self._remove(entry, deadline)
        writes: list[EntryWrite] = [] if living is None else [living]
        if newest is not None:
            writes += [
                dead_entry(version, row_key, value, newest.ref_key)
                for value in places
                if living is None or value != living.shard_value
            ]
        for error in self._writer.put(version, writes, deadline).values():
            raise error
        return False

    def _remove(self, entry: StoredEntry, deadline: Deadline) -> None:
        shard = self._shard_of(_shard_value(entry))

        def remove(node: Node) -> EntrySighting:
            state, _removed = node.remove_entries(self._version.table, shard, [entry], deadline)
            return EntrySighting(state, [])

        self._router.read(shard, remove, AS_COPIER, "primary_only", deadline)

    def _at(self, values: Iterable[Scalar], row_key: bytes, deadline: Deadline) -> list[StoredEntry]:
        wanted: defaultdict[int, list[tuple[Scalar, bytes]]] = defaultdict(list)
        for value in values:
            wanted[self._shard_of(value)].append((value, row_key))

        def find(node: Node, part: Mapping[int, list[tuple[Scalar, bytes]]]) -> dict[int, EntrySighting]:
            return node.find_entries_at(self._version.table, part, deadline)

        answers = self._router.read_many(wanted, find, AS_COPIER, "primary_only", deadline)
        return [entry for sighting in answers.values() for entry in sighting.entries]

    def _shard_of(self, value: Scalar) -> int:
        return index_shard_of(self._version.definition.shard_field.kind, value, self._shards)


def _is_explained(entry: StoredEntry, living: EntryWrite | None, newest: Cell | None) -> bool:
    """Whether an entry may stand: the living one as it must be, or a dead one no newer than the shard column's cell."""
    if living is not None and entry.values[0] == living.shard_value:
        return not entry.is_dead and (entry.values, entry.refs) == (living.values, living.refs)
    ref_key = entry.refs[0]
    return entry.is_dead and (ref_key is None or (newest is not None and ref_key <= newest.ref_key))


def _shard_value(entry: StoredEntry) -> Scalar:
    value = entry.values[0]
    assert value is not None  # it is part of the primary key
    return value
