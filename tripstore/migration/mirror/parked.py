"""`Parked`: changes that were set aside, in either direction, as a person looks at them and has them tried again.

Forward they stay in the queue of Postgres, and claims pass them by. Backwards they stand beside the offsets of the
reverse mirror, in Schemaless; those that only wait behind another of their row go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from schemaless_core.cell.cell import CellKey
from schemaless_core.datastore import Datastore
from schemaless_core.engine.groups import ParkedRow
from tripstore.backends.postgres.handover.queue import ParkedChange
from tripstore.backends.schemaless.shards import REVERSE_GROUP

#: Looked through when changes of a row are asked for; a group halts long before.
PARKED_MAX = 100_000


class Parked(NamedTuple):
    """One change."""

    key: CellKey
    #: conflict, refused or unreadable; backwards failed, or waiting behind another of its row.
    kind: str
    because: str
    attempts: int
    at: datetime


#: A row key alone is that of all changes of the row.
Wanted = Callable[[CellKey], bool]


class ParkedChanges(Protocol):
    """Those of one direction."""

    def listed(self, limit: int) -> list[Parked]:
        """The oldest first."""
        ...

    def find(self, key: CellKey) -> Parked | None: ...

    def retry(self, is_wanted: Wanted | None) -> int:
        """Have these tried again, or all; how many."""
        ...


class ParkingQueue(Protocol):
    """What the queue of Postgres knows of them."""

    def parked(self, limit: int) -> list[ParkedChange]: ...

    def find_parked(self, key: CellKey) -> ParkedChange | None: ...

    def unpark(self, keys: Sequence[CellKey] | None = None) -> int: ...


class ForwardParked:
    """In the queue of Postgres."""

    def __init__(self, queue: ParkingQueue) -> None:
        self._queue = queue

    def listed(self, limit: int) -> list[Parked]:
        return [_of_change(change) for change in self._queue.parked(limit)]

    def find(self, key: CellKey) -> Parked | None:
        found = self._queue.find_parked(key)
        return None if found is None else _of_change(found)

    def retry(self, is_wanted: Wanted | None) -> int:
        if is_wanted is None:
            return self._queue.unpark()
        keys = [change.key for change in self._queue.parked(PARKED_MAX) if is_wanted(change.key)]
        return self._queue.unpark(keys) if keys else 0


class ReverseParked:
    """Beside the offsets of the reverse mirror."""

    def __init__(self, datastore: Datastore) -> None:
        self._datastore = datastore

    def listed(self, limit: int) -> list[Parked]:
        return [_of_row(row) for row in self._rows(limit)]

    def find(self, key: CellKey) -> Parked | None:
        shard = self._datastore.shard_of(key.row_key)
        return next((_of_row(row) for row in self._rows(PARKED_MAX, shard) if _key(row) == key), None)

    def retry(self, is_wanted: Wanted | None) -> int:
        """With a row's order kept, the first of each row is what has to be due."""
        if is_wanted is None:
            return self._datastore.triggers.retry(REVERSE_GROUP)
        rows = [row for row in self._rows(PARKED_MAX) if is_wanted(_key(row))]
        first = self._first_of_rows({row.row_key for row in rows})
        return sum(
            self._datastore.triggers.retry(REVERSE_GROUP, shard=row.shard, added_id=row.added_id)
            for row in {*rows, *first}
        )

    def _first_of_rows(self, row_keys: Collection[bytes]) -> list[ParkedRow]:
        first: dict[bytes, ParkedRow] = {}
        for row in self._rows(PARKED_MAX):
            if row.row_key in row_keys:
                first.setdefault(row.row_key, row)
        return list(first.values())

    def _rows(self, limit: int, shard: int | None = None) -> list[ParkedRow]:
        if self._datastore.triggers.coordinator.find_group(REVERSE_GROUP) is None:
            return []
        return self._datastore.triggers.parked(REVERSE_GROUP, shard=shard, limit=limit)


def _of_change(change: ParkedChange) -> Parked:
    return Parked(change.key, change.kind, change.because, change.attempts, change.at)


def _of_row(row: ParkedRow) -> Parked:
    return Parked(_key(row), "waiting" if row.is_waiting else "failed", row.error, row.attempts, row.parked_at)


def _key(row: ParkedRow) -> CellKey:
    return CellKey(UUID(bytes=row.row_key), row.column_name.decode(), row.ref_key)
