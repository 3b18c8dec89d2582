"""`SQLiteNode`: one SQLite file that stands for a cluster's server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from schemaless_core import metrics
from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.page_bytes import bound
from schemaless_core.cell.standing import Gate, ShardHead, ShardState, ShardStatus
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine import tableformat
from schemaless_core.engine.ahead import AHEAD_SECONDS, ahead_facts
from schemaless_core.engine.base import (
    AuthorityChange,
    Batch,
    BatchAnswer,
    BucketSum,
    EntryQuery,
    EntrySighting,
    EntryWrite,
    EpochOpening,
    Fact,
    FieldError,
    HashedCell,
    IndexTable,
    KeysSeen,
    LogSlice,
    Sighting,
    Stored,
    StoredEntry,
    VersionsSighting,
    files_fact,
)
from schemaless_core.engine.beyond import beyond_facts
from schemaless_core.engine.buffers import BufferTables
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.engine.groups import GroupTables
from schemaless_core.engine.kinds import ColumnKind
from schemaless_core.engine.leases import LeaseTables
from schemaless_core.engine.mending import Mending
from schemaless_core.engine.primacy import FIRST, Candidate, Leadership
from schemaless_core.engine.purging import Purging
from schemaless_core.engine.sqlite import authority, documents, index_errors, reads, writes
from schemaless_core.engine.sqlite import entries as index_entries
from schemaless_core.engine.sqlite.buffers import SQLiteBuffers
from schemaless_core.engine.sqlite.columns import altered_columns
from schemaless_core.engine.sqlite.file import SQLiteFile, script, to_microseconds
from schemaless_core.engine.sqlite.groups import SQLiteGroups
from schemaless_core.engine.sqlite.mending import SQLiteMending
from schemaless_core.engine.sqlite.purging import SQLitePurging
from schemaless_core.engine.sqlite.turning import SQLiteTurning
from schemaless_core.engine.turning import Turning
from schemaless_core.errors import InvalidServer, SchemalessError, SchemaMissing, StaleEpoch
from schemaless_core.failpoints import reach
from schemaless_core.urls import NodeUrl

PRESENT = "SELECT shard FROM shard_state"
COUNT = "SELECT shards, format FROM datastore WHERE one = 1"
RECORD = """\
INSERT INTO datastore (one, shards, format) VALUES (1, ?, ?)
 ON CONFLICT DO UPDATE SET format = MAX(format, excluded.format)"""
OPEN_EPOCH = "INSERT INTO shard_epoch (shard, epoch, first_added_id, opened_at, why) VALUES (?, 1, 1, ?, 'created')"
OPEN_STATE = """\
INSERT INTO shard_state (shard, epoch, authority_epoch, state, next_added_id, last_created_at)
 VALUES (?, 1, 0, ?, 1, ?)"""

LOOK_SECONDS = 10.0

K = TypeVar("K")


class SQLiteNode:
    """A `Node` on one file."""

    def __init__(
        self, url: NodeUrl, config: DatastoreConfig, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.name = str(url)
        self._clock = clock
        path, compression = Path(url.folder) / f"{config.datastore}.db", config.compression
        self._file = SQLiteFile(self.name, path, compression.columns, compression.level)
        self.buffers: BufferTables = SQLiteBuffers(self._file, clock)
        self.groups: GroupTables = SQLiteGroups(self._file, clock)
        self.mending: Mending = SQLiteMending(self._file, clock)
        self.purging: Purging = SQLitePurging(self._file, clock)
        self.turning: Turning = SQLiteTurning(self._file)
        self.bodies = self._file.bodies
        self.leases: LeaseTables | None = None

    def go_by_leases(self, are_needed: bool) -> None:
        """A file is one server, which no other takes the place of."""

    def put(self, gate: Gate, cell: NewCell, expect_latest: Any, deadline: Deadline) -> Stored:
        reach("put.before_send")
        with self._file.write(deadline) as connection:
            stored = writes.put(connection, gate, cell, expect_latest, self._clock)
        reach("put.answered")
        return stored

    def put_many(self, batches: Sequence[Batch], deadline: Deadline) -> list[BatchAnswer | SchemalessError]:
        """By one transaction: a commit costs the disk as much as hundreds of cells. A refused batch wrote nothing."""
        reach("batch.before_send")
        with self._file.write(deadline) as connection:
            answers = [self._put_batch(connection, batch) for batch in batches]
        reach("batch.answered")
        return answers

    def _put_batch(self, connection: sqlite3.Connection, batch: Batch) -> BatchAnswer | SchemalessError:
        try:
            if batch.seen is not None:
                return writes.put_together(connection, batch.gate, batch.cells, batch.seen, self._clock)
            return writes.put_batch(connection, batch.gate, batch.cells, self._clock)
        except (StaleEpoch, SchemaMissing) as refusal:
            return refusal

    def find(self, shard: int, row_key: bytes, column_name: bytes, ref_key: int, deadline: Deadline) -> Sighting:
        with self._file.read(deadline) as connection:
            found = reads.find(connection, shard, row_key, column_name, ref_key)
            return _sighting(connection, shard, [found] if found else [])

    def find_latest(self, shard: int, row_key: bytes, column_name: bytes, deadline: Deadline) -> Sighting:
        with self._file.read(deadline) as connection:
            found = reads.find_latest(connection, shard, row_key, column_name)
            return _sighting(connection, shard, [found] if found else [])

    def find_many(
        self, keys: Mapping[int, Sequence[tuple[bytes, bytes, int]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._found_many(keys, lambda file, shard, key: _listed(reads.find(file, shard, *key)), deadline)

    def find_latest_many(
        self, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._found_many(
            columns, lambda file, shard, key: _listed(reads.find_latest(file, shard, *key)), deadline
        )

    def find_before_many(
        self, keys: Mapping[int, Sequence[tuple[bytes, bytes, int]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._found_many(keys, lambda file, shard, key: _listed(reads.find_before(file, shard, *key)), deadline)

    def find_not_alone(self, cells: Mapping[int, Sequence[NewCell]], deadline: Deadline) -> dict[int, KeysSeen]:
        with self._file.read(deadline) as connection:
            return {
                shard: KeysSeen(
                    reads.head_of(connection, shard).state,
                    [cell[:3] for cell in wanted if not reads.is_alone(connection, shard, cell)],
                )
                for shard, wanted in cells.items()
            }

    def find_highest_many(
        self, spans: Mapping[int, Sequence[tuple[bytes, bytes, int, int]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._found_many(
            spans, lambda file, shard, key: _listed(reads.find_highest(file, shard, *key)), deadline
        )

    def find_tombstones_many(
        self, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._found_many(
            columns, lambda file, shard, key: _listed(reads.find_tombstone(file, shard, *key)), deadline
        )

    def find_newest_many(
        self, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], limit: int, deadline: Deadline
    ) -> dict[int, Sighting]:
        room, found = bound(), dict[int, Sighting]()
        with self._file.read(deadline) as connection:
            for shard, wanted in columns.items():
                cells = list[StoredCell]()
                for key in wanted if room > 0 else ():
                    cells += (newest := reads.find_newest(connection, shard, *key, limit))
                    room -= sum(len(cell.body) for cell in newest)
                    if room <= 0:
                        break
                found[shard] = _sighting(connection, shard, cells)._replace(is_cut=room <= 0)
        return found

    def _found_many(
        self,
        keys: Mapping[int, Sequence[K]],
        find: Callable[[sqlite3.Connection, int, K], Sequence[StoredCell]],
        deadline: Deadline,
    ) -> dict[int, Sighting]:
        """What is found for each key, of all shards by one transaction."""
        with self._file.read(deadline) as connection:
            return {
                shard: _sighting(connection, shard, [cell for key in wanted for cell in find(connection, shard, key)])
                for shard, wanted in keys.items()
            }

    def rows(self, row_keys: Mapping[int, Sequence[bytes]], deadline: Deadline) -> dict[int, Sighting]:
        return self._found_many(row_keys, lambda file, shard, key: reads.row(file, shard, key, None), deadline)

    def row(self, shard: int, row_key: bytes, columns: Sequence[bytes] | None, deadline: Deadline) -> Sighting:
        with self._file.read(deadline) as connection:
            return _sighting(connection, shard, reads.row(connection, shard, row_key, columns))

    def history(
        self, shard: int, row_key: bytes, column_name: bytes, before: int | None, limit: int, deadline: Deadline
    ) -> Sighting:
        with self._file.read(deadline) as connection:
            return _portion(connection, shard, reads.history(connection, shard, row_key, column_name, before, limit))

    def heads(self, shards: Collection[int] | None, deadline: Deadline) -> dict[int, ShardHead]:
        with self._file.read(deadline) as connection:
            found = reads.heads(connection)
        return found if shards is None else {shard: found[shard] for shard in shards if shard in found}

    def heads_since(self, seconds: float, deadline: Deadline) -> dict[int, ShardHead]:
        since = to_microseconds(self._clock()) - int(seconds * 1_000_000)
        with self._file.read(deadline) as connection:
            return reads.heads_since(connection, since)

    def ahead_seconds(self, deadline: Deadline) -> float:
        now = self._clock()
        with self._file.read(deadline) as connection:
            _shards, until = reads.ahead(connection, to_microseconds(now))
        return 0.0 if until is None else (until - now).total_seconds()

    def log(self, starts: Mapping[int, int], limit: int, deadline: Deadline) -> dict[int, LogSlice]:
        with self._file.read(deadline) as connection:
            slices, left = dict[int, LogSlice](), bound()
            for shard, start in starts.items():
                slices[shard] = reads.log_slice(connection, shard, start, limit, left)
                left -= sum(len(cell.body) for cell in slices[shard].cells)
        return slices

    def first_created_at(self, shard: int, moment: datetime, deadline: Deadline) -> int:
        with self._file.read(deadline) as connection:
            return reads.first_created_at(connection, shard, to_microseconds(moment))

    def epochs(self, shard: int, deadline: Deadline) -> list[EpochOpening]:
        with self._file.read(deadline) as connection:
            return reads.epochs(connection, shard)

    def open_to_owners(self, authority_epoch: int, deadline: Deadline) -> None:
        reach("authority.before_send")
        with self._file.write(deadline) as connection:
            authority.open_to_owners(connection, authority_epoch, to_microseconds(self._clock()))
        reach("authority.answered")

    def close_to_owners(self, authority_epoch: int, deadline: Deadline) -> bool:
        reach("authority.before_send")
        with self._file.write(deadline) as connection:
            is_closed = authority.close_to_owners(connection, authority_epoch, to_microseconds(self._clock()))
        reach("authority.answered")
        return is_closed

    def leadership(self, deadline: Deadline) -> Leadership:
        return Leadership(FIRST, FIRST.server)

    def candidate(self) -> Candidate:
        raise InvalidServer(self.name, "a file has no replicas", hint="Only clusters of MySQL or MariaDB are promoted.")

    def opened_at(self, deadline: Deadline, *, ever: bool = True) -> int:
        with self._file.read(deadline) as connection:
            return authority.opened_at(connection, ever=ever)

    def make_copies(self, deadline: Deadline) -> int:
        with self._file.write(deadline) as connection:
            return authority.make_copies(connection, to_microseconds(self._clock()))

    def authority_history(self, shard: int, deadline: Deadline) -> list[AuthorityChange]:
        with self._file.read(deadline) as connection:
            return authority.history(connection, shard)

    def scan(
        self, shard: int, after: bytes | None, limit: int, columns: Sequence[bytes] | None, deadline: Deadline
    ) -> Sighting:
        with self._file.read(deadline) as connection:
            return _portion(connection, shard, reads.scan(connection, shard, after, limit, columns))

    def scan_versions(
        self, shard: int, after: bytes | None, limit: int, columns: Sequence[bytes] | None, deadline: Deadline
    ) -> VersionsSighting:
        with self._file.read(deadline) as connection:
            found = reads.scan_versions(connection, shard, after, limit, columns)
            return VersionsSighting(reads.head_of(connection, shard).state, *found)

    def checksum(
        self, shard: int, kinds: Sequence[ColumnKind], deadline: Deadline
    ) -> tuple[ShardState, list[BucketSum]]:
        with self._file.read(deadline) as connection:
            return reads.head_of(connection, shard).state, reads.checksum(connection, shard, kinds)

    def digests(
        self, shard: int, buckets: Collection[int], kinds: Sequence[ColumnKind], deadline: Deadline
    ) -> tuple[ShardState, list[HashedCell]]:
        with self._file.read(deadline) as connection:
            return reads.head_of(connection, shard).state, reads.digests(connection, shard, buckets, kinds)

    def create_index(self, table: IndexTable, shards: Sequence[int], deadline: Deadline) -> None:
        self._file.create()
        with self._file.write(deadline) as connection:
            index_entries.create_index(connection, self.name, table)

    def altered_index(self, table: IndexTable, deadline: Deadline) -> list[Fact]:
        with self._file.read(deadline) as connection:
            return list(altered_columns(connection, index_entries.create_statement(table)))

    def drop_index(self, table_name: str, shards: Sequence[int], deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            index_entries.drop_index(connection, table_name, shards)

    def put_entries(
        self, table: IndexTable, entries: Mapping[int, Sequence[EntryWrite]], deadline: Deadline
    ) -> dict[int, ShardState]:
        reach("entries.before_send")
        with self._file.write(deadline) as connection, index_entries.of_index(self.name, table.name):
            index_entries.put_entries(connection, table, entries)
            states = {shard: reads.head_of(connection, shard).state for shard in entries}
        reach("entries.answered")
        return states

    def find_entries(
        self, table: IndexTable, shard: int, query: EntryQuery, deadline: Deadline
    ) -> tuple[ShardState, list[StoredEntry]]:
        with self._file.read(deadline) as connection, index_entries.of_index(self.name, table.name):
            found = index_entries.find_entries(connection, table, shard, query)
            return reads.head_of(connection, shard).state, found

    def find_first_entries(
        self, table: IndexTable, values: Mapping[int, Sequence[Scalar]], deadline: Deadline
    ) -> dict[int, EntrySighting]:
        with self._file.read(deadline) as connection, index_entries.of_index(self.name, table.name):
            return {
                shard: EntrySighting(
                    reads.head_of(connection, shard).state,
                    [
                        entry
                        for value in wanted
                        for entry in index_entries.find_entries(connection, table, shard, EntryQuery(value, 1))
                    ],
                )
                for shard, wanted in values.items()
            }

    def find_entries_at(
        self, table: IndexTable, keys: Mapping[int, Sequence[tuple[Scalar, bytes]]], deadline: Deadline
    ) -> dict[int, EntrySighting]:
        with self._file.read(deadline) as connection, index_entries.of_index(self.name, table.name):
            return {
                shard: EntrySighting(
                    reads.head_of(connection, shard).state,
                    index_entries.find_entries_at(connection, table, shard, wanted),
                )
                for shard, wanted in keys.items()
            }

    def find_entries_of(
        self, table: IndexTable, row_keys: Mapping[int, Sequence[bytes]], deadline: Deadline
    ) -> dict[int, EntrySighting]:
        with self._file.read(deadline) as connection, index_entries.of_index(self.name, table.name):
            return {
                shard: EntrySighting(
                    reads.head_of(connection, shard).state,
                    index_entries.find_entries_of(connection, table, shard, wanted),
                )
                for shard, wanted in row_keys.items()
            }

    def scan_entries(
        self, table: IndexTable, shard: int, after: tuple[Scalar, bytes] | None, limit: int, deadline: Deadline
    ) -> tuple[ShardState, list[StoredEntry]]:
        with self._file.read(deadline) as connection, index_entries.of_index(self.name, table.name):
            found = index_entries.scan_entries(connection, table, shard, after, limit)
            return reads.head_of(connection, shard).state, found

    def remove_entries(
        self, table: IndexTable, shard: int, entries: Sequence[StoredEntry], deadline: Deadline
    ) -> tuple[ShardState, int]:
        with self._file.write(deadline) as connection, index_entries.of_index(self.name, table.name):
            removed = index_entries.remove_entries(connection, table, shard, entries)
            return reads.head_of(connection, shard).state, removed

    def put_document(self, document: StoredDocument, deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            documents.put(connection, document)

    def find_documents(self, prefix: str, deadline: Deadline) -> list[StoredDocument]:
        if not self._file.exists:
            return []
        with self._file.read(deadline) as connection:
            return documents.find(connection, prefix)

    def put_field_errors(self, errors: Sequence[FieldError], deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            index_errors.put_field_errors(connection, errors, to_microseconds(self._clock()))

    def find_field_errors(self, index_name: str, version: int, limit: int, deadline: Deadline) -> list[FieldError]:
        with self._file.read(deadline) as connection:
            return index_errors.find_field_errors(connection, index_name, version, limit)

    def count_field_errors(self, index_name: str, version: int, deadline: Deadline) -> int:
        with self._file.read(deadline) as connection:
            return index_errors.count_field_errors(connection, index_name, version)

    def drop_field_errors(self, index_name: str, version: int, deadline: Deadline) -> None:
        with self._file.write(deadline) as connection:
            index_errors.drop_field_errors(connection, index_name, version)

    def create_shards(self, shards: Sequence[int], status: ShardStatus) -> int:
        self._file.create()
        reach("schema.tables_created")
        now = to_microseconds(self._clock())
        with self._file.write(Deadline(LOOK_SECONDS)) as connection:
            missing = sorted(set(shards) - {shard for (shard,) in connection.execute(PRESENT)})
            connection.executemany(OPEN_EPOCH, [(shard, now) for shard in missing])
            connection.executemany(OPEN_STATE, [(shard, status.value, now) for shard in missing])
            authority.begin_history(connection, now)
        reach("schema.shards_opened")
        metrics.shards_created(len(missing))
        return len(missing)

    def record_shard_count(self, count: int) -> int:
        self._file.create()
        with self._file.write(Deadline(LOOK_SECONDS)) as connection:
            connection.execute(RECORD, (count, tableformat.FORMAT))
            authority.begin_history(connection, to_microseconds(self._clock()))
            documents.put(connection, tableformat.document())
            known, _format = connection.execute(COUNT).fetchone()
            return int(known)

    def shard_count(self, deadline: Deadline) -> int | None:
        if not self._file.exists:
            return None
        try:
            with self._file.read(deadline) as connection:
                found = connection.execute(COUNT).fetchone()
                if found is None:
                    return None
                count, number = found
                tableformat.check(self.name, number, lambda: documents.find(connection, tableformat.DOCUMENT))
                return int(count)
        except SchemaMissing:
            return None

    def shards_present(self) -> set[int]:
        if self.shard_count(Deadline(LOOK_SECONDS)) is None:
            return set()
        with self._file.read(Deadline(LOOK_SECONDS)) as connection:
            return {shard for (shard,) in connection.execute(PRESENT)}

    def tables_missing(self) -> list[str]:
        return self._file.tables_missing(Deadline(LOOK_SECONDS)) if self._file.exists else []

    def facts(self, *, is_replica: bool, shards: int, has_replicas: bool = False) -> list[Fact]:
        version = sqlite3.sqlite_version
        is_fine = sqlite3.sqlite_version_info >= (3, 35)
        found = [Fact("version", f"SQLite {version}", is_fine, True, "Use a Python with SQLite 3.35 or later.")]
        found.append(Fact("synchronous", "FULL", True, True))
        found.append(files_fact(self._file.path))
        if not is_replica and self.shard_count(Deadline(LOOK_SECONDS)) is not None:
            found += beyond_facts(self.groups.find_beyond(Deadline(LOOK_SECONDS)))
            now = to_microseconds(self._clock())
            with self._file.read(Deadline(LOOK_SECONDS)) as connection:
                found += altered_columns(connection, script())
                found += ahead_facts(*reads.ahead(connection, now + AHEAD_SECONDS * 1_000_000))
        return found

    def close(self) -> None:
        self._file.close()


def _portion(connection: sqlite3.Connection, shard: int, portion: reads.CutCells) -> Sighting:
    return _sighting(connection, shard, portion.cells)._replace(is_cut=portion.is_cut)


def _listed(found: StoredCell | None) -> list[StoredCell]:
    return [] if found is None else [found]


def _sighting(connection: sqlite3.Connection, shard: int, cells: list[StoredCell]) -> Sighting:
    return Sighting(reads.head_of(connection, shard).state, cells)
