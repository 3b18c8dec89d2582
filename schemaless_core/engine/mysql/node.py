"""`MySQLNode`: one MySQL or MariaDB server. Leases a connection per verb and leaves the work to the verb's file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from schemaless_core import metrics
from schemaless_core.cell.answers import Scalar
from schemaless_core.cell.page_bytes import bound
from schemaless_core.cell.standing import Gate, ShardHead, ShardState, ShardStatus
from schemaless_core.cell.stored import NewCell
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
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
)
from schemaless_core.engine.beyond import beyond_facts
from schemaless_core.engine.bodies import BodyForms
from schemaless_core.engine.buffers import BufferTables
from schemaless_core.engine.copies import CopyTables
from schemaless_core.engine.dictionaries import PREFIX
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.engine.groups import GroupTables
from schemaless_core.engine.kinds import ColumnKind
from schemaless_core.engine.leases import LeaseTables
from schemaless_core.engine.mending import Mending
from schemaless_core.engine.mysql import (
    authority,
    columns,
    documents,
    facts,
    log,
    primacy,
    reads,
    scan,
    schema,
    writes,
)
from schemaless_core.engine.mysql.batches import put_many
from schemaless_core.engine.mysql.buffers import MySQLBuffers
from schemaless_core.engine.mysql.groups.groups import MySQLGroups
from schemaless_core.engine.mysql.indexes import alone
from schemaless_core.engine.mysql.indexes import entries as index_entries
from schemaless_core.engine.mysql.indexes import field_errors as index_errors
from schemaless_core.engine.mysql.indexes import tables as index_tables
from schemaless_core.engine.mysql.leases import MySQLLeases
from schemaless_core.engine.mysql.mending import MySQLMending
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.purging import MySQLPurging
from schemaless_core.engine.mysql.turning import MySQLTurning
from schemaless_core.engine.mysql.wire.connection import Login
from schemaless_core.engine.mysql.wire.sessions import Sessions
from schemaless_core.engine.primacy import Candidate, Leadership
from schemaless_core.engine.purging import Purging
from schemaless_core.engine.turning import Turning
from schemaless_core.errors import SchemalessError, missing_shard
from schemaless_core.urls import NodeUrl

if TYPE_CHECKING:
    from schemaless_core.engine.mysql.copies.copies import MySQLCopies

#: DDL and the doctor have no caller that waits on a cell.
ADMIN_SECONDS = 600.0
LOOK_SECONDS = 10.0


class MySQLNode:
    """A `Node` on MySQL or MariaDB."""

    def __init__(self, url: NodeUrl, config: DatastoreConfig) -> None:
        self.name = str(url)
        self._config = config
        self.bodies = BodyForms(self.name, config.compression.columns, config.compression.level, self._dictionaries)
        self._names = Names(config.datastore, bodies=self.bodies)
        self._login = Login(url, config.tls, config.deadlines, f"tripstore {config.datastore}")
        login = replace(self._login, may_write=self._names.may_write)
        self._sessions = Sessions(self.name, login, config.pool, facts.packet_bytes(config))
        self._buffers = MySQLBuffers(self._sessions, self._names)
        self._groups = MySQLGroups(self._sessions, self._names)
        self._mending = MySQLMending(self._sessions, self._names)
        self._purging = MySQLPurging(self._sessions, self._names)
        self._turning = MySQLTurning(self._sessions, self._names)
        self._copies: MySQLCopies | None = None
        self.buffers: BufferTables = self._buffers
        self.groups: GroupTables = self._groups
        self.mending: Mending = self._mending
        self.purging: Purging = self._purging
        self.turning: Turning = self._turning
        self.leases: LeaseTables | None = MySQLLeases(self._login, Names(config.datastore))

    @property
    def copies(self) -> CopyTables:
        """Made at first use: a put has none."""
        from schemaless_core.engine.mysql.copies.copies import MySQLCopies  # no put reads this file

        if self._copies is None:
            self._copies = MySQLCopies(self._sessions, self._names)
        return self._copies

    def go_by_leases(self, are_needed: bool) -> None:
        """The next verb does; one that is on its way goes by what it began with, and its epochs are older."""
        if are_needed != self._names.is_leased:
            names = Names(self._config.datastore, is_leased=are_needed, bodies=self.bodies)
            self._names = self._buffers.names = self._groups.names = self._mending.names = self._purging.names = names
            self._turning.names = names
            if self._copies is not None:
                self._copies.names = names

    def put(self, gate: Gate, cell: NewCell, expect_latest: Any, deadline: Deadline) -> Stored:
        if self.bodies.is_on:
            cell = self.bodies.kept_one(cell)
        verb = partial(writes.put, names=self._names, gate=gate, cell=cell, expect_latest=expect_latest)
        return self._sessions.write(verb, deadline)

    def put_many(self, batches: Sequence[Batch], deadline: Deadline) -> list[BatchAnswer | SchemalessError]:
        kept = [batch._replace(cells=self.bodies.kept(batch.cells)) for batch in batches]
        return self._sessions.write(lambda connection: put_many(connection, self._names, kept, deadline), deadline)

    def _dictionaries(self, deadline: Deadline) -> list[StoredDocument]:
        return documents.find_alone(self._login, self._names, PREFIX, deadline)

    def find(self, shard: int, row_key: bytes, column_name: bytes, ref_key: int, deadline: Deadline) -> Sighting:
        return self._sessions.run(
            lambda connection: reads.find(connection, self._names, shard, row_key, column_name, ref_key),
            deadline,
        )

    def find_latest(self, shard: int, row_key: bytes, column_name: bytes, deadline: Deadline) -> Sighting:
        return self._sessions.run(
            lambda connection: reads.find_latest(connection, self._names, shard, row_key, column_name),
            deadline,
        )

    def find_many(
        self, keys: Mapping[int, Sequence[tuple[bytes, bytes, int]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._sessions.run(lambda connection: reads.find_many(connection, self._names, keys), deadline)

    def find_latest_many(
        self, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._sessions.run(lambda connection: reads.find_latest_many(connection, self._names, columns), deadline)

    def find_before_many(
        self, keys: Mapping[int, Sequence[tuple[bytes, bytes, int]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._sessions.run(lambda connection: reads.find_before_many(connection, self._names, keys), deadline)

    def find_not_alone(self, cells: Mapping[int, Sequence[NewCell]], deadline: Deadline) -> dict[int, KeysSeen]:
        return self._sessions.run(lambda connection: alone.find_not_alone(connection, self._names, cells), deadline)

    def find_highest_many(
        self, spans: Mapping[int, Sequence[tuple[bytes, bytes, int, int]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._sessions.run(lambda connection: reads.find_highest_many(connection, self._names, spans), deadline)

    def find_tombstones_many(
        self, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], deadline: Deadline
    ) -> dict[int, Sighting]:
        return self._sessions.run(
            lambda connection: reads.find_tombstones_many(connection, self._names, columns), deadline
        )

    def find_newest_many(
        self, columns: Mapping[int, Sequence[tuple[bytes, bytes]]], limit: int, deadline: Deadline
    ) -> dict[int, Sighting]:
        found = self._sessions.run(
            lambda connection: reads.find_newest_many(connection, self._names, columns, limit), deadline
        )
        return {shard: self._looked(shard, of_shard, deadline) for shard, of_shard in found.items()}

    def rows(self, row_keys: Mapping[int, Sequence[bytes]], deadline: Deadline) -> dict[int, Sighting]:
        return self._sessions.run(lambda connection: reads.rows(connection, self._names, row_keys), deadline)

    def row(self, shard: int, row_key: bytes, columns: Sequence[bytes] | None, deadline: Deadline) -> Sighting:
        return self._sessions.run(
            lambda connection: reads.row(connection, self._names, shard, row_key, columns), deadline
        )

    def history(
        self,
        shard: int,
        row_key: bytes,
        column_name: bytes,
        before: int | None,
        limit: int,
        deadline: Deadline,
    ) -> Sighting:
        found = self._sessions.run(
            lambda connection: reads.history(connection, self._names, shard, row_key, column_name, before, limit),
            deadline,
        )
        return self._looked(shard, found, deadline)

    def _looked(self, shard: int, found: reads.Bounded, deadline: Deadline) -> Sighting:
        """The look behind the cells, on another connection where theirs was left in the midst of the answer."""
        return Sighting(found.state or self._state_of(shard, deadline), found.cells, found.is_cut)

    def _state_of(self, shard: int, deadline: Deadline) -> ShardState:
        heads = self.heads([shard], deadline)
        if shard not in heads:
            raise missing_shard(shard)
        return heads[shard].state

    def heads(self, shards: Collection[int] | None, deadline: Deadline) -> dict[int, ShardHead]:
        return self._sessions.run(lambda connection: reads.heads(connection, self._names, shards), deadline)

    def heads_since(self, seconds: float, deadline: Deadline) -> dict[int, ShardHead]:
        return self._sessions.run(lambda connection: reads.heads_since(connection, self._names, seconds), deadline)

    def ahead_seconds(self, deadline: Deadline) -> float:
        return self._sessions.run(lambda connection: reads.ahead_seconds(connection, self._names), deadline)

    def log(self, starts: Mapping[int, int], limit: int, deadline: Deadline) -> dict[int, LogSlice]:
        """What one connection could not bring, another one does: of each shard a cell at least."""
        slices: dict[int, LogSlice] = {}
        rest, left = dict(starts), bound()
        while rest:
            read = partial(log.log, names=self._names, starts=rest, limit=limit if left > 0 else 1, left=max(left, 1))
            page = self._sessions.run(read, deadline)
            slices |= page.slices
            if page.unseen:
                seen = self.heads(page.unseen.keys(), deadline)
                slices |= self._sessions.run(
                    partial(log.seen, names=self._names, starts=starts, page=page, heads=seen), deadline
                )
            left -= page.size
            rest = {shard: start for shard, start in rest.items() if shard not in slices}
        return slices

    def first_created_at(self, shard: int, moment: datetime, deadline: Deadline) -> int:
        return self._sessions.run(
            lambda connection: log.first_created_at(connection, self._names, shard, moment), deadline
        )

    def epochs(self, shard: int, deadline: Deadline) -> list[EpochOpening]:
        return self._sessions.run(lambda connection: log.epochs(connection, self._names, shard), deadline)

    def open_to_owners(self, authority_epoch: int, deadline: Deadline) -> None:
        self._sessions.write(
            lambda connection: authority.open_to_owners(connection, self._names, authority_epoch, deadline), deadline
        )

    def close_to_owners(self, authority_epoch: int, deadline: Deadline) -> bool:
        return self._sessions.write(
            lambda connection: authority.close_to_owners(connection, self._names, authority_epoch, deadline), deadline
        )

    def leadership(self, deadline: Deadline) -> Leadership:
        return self._sessions.run(lambda connection: primacy.leadership(connection, self._names), deadline)

    def candidate(self) -> Candidate:
        return primacy.MySQLCandidate(self._login, self._names)

    def opened_at(self, deadline: Deadline, *, ever: bool = True) -> int:
        return self._sessions.run(lambda connection: authority.opened_at(connection, self._names, ever=ever), deadline)

    def make_copies(self, deadline: Deadline) -> int:
        return self._sessions.write(
            lambda connection: authority.make_copies(connection, self._names, deadline), deadline
        )

    def authority_history(self, shard: int, deadline: Deadline) -> list[AuthorityChange]:
        return self._sessions.run(lambda connection: authority.history(connection, self._names, shard), deadline)

    def scan(
        self, shard: int, after: bytes | None, limit: int, columns: Sequence[bytes] | None, deadline: Deadline
    ) -> Sighting:
        found = self._sessions.run(
            lambda connection: scan.scan(connection, self._names, shard, after, limit, columns), deadline
        )
        return self._looked(shard, found, deadline)

    def scan_versions(
        self, shard: int, after: bytes | None, limit: int, columns: Sequence[bytes] | None, deadline: Deadline
    ) -> VersionsSighting:
        state, cells, is_cut = self._sessions.run(
            lambda connection: scan.scan_versions(connection, self._names, shard, after, limit, columns), deadline
        )
        return VersionsSighting(state or self._state_of(shard, deadline), cells, is_cut)

    def checksum(
        self, shard: int, kinds: Sequence[ColumnKind], deadline: Deadline
    ) -> tuple[ShardState, list[BucketSum]]:
        return self._sessions.run(lambda connection: scan.checksum(connection, self._names, shard, kinds), deadline)

    def digests(
        self, shard: int, buckets: Collection[int], kinds: Sequence[ColumnKind], deadline: Deadline
    ) -> tuple[ShardState, list[HashedCell]]:
        return self._sessions.run(
            lambda connection: scan.digests(connection, self._names, shard, buckets, kinds), deadline
        )

    def create_index(self, table: IndexTable, shards: Sequence[int], deadline: Deadline) -> None:
        self._sessions.write(lambda connection: schema.create_meta(connection, self._names), deadline)
        for packet in _packets(shards, index_tables.TABLES_PER_PACKET):
            self._sessions.write(
                partial(index_tables.create_tables, names=self._names, table=table, shards=packet), deadline
            )
        self._sessions.run(lambda connection: index_tables.check_columns(connection, self._names, table), deadline)

    def altered_index(self, table: IndexTable, deadline: Deadline) -> list[Fact]:
        return self._sessions.run(lambda connection: columns.altered_index(connection, self._names, table), deadline)

    def drop_index(self, table_name: str, shards: Sequence[int], deadline: Deadline) -> None:
        for packet in _packets(shards, index_tables.TABLES_PER_PACKET):
            self._sessions.write(
                partial(index_tables.drop_tables, names=self._names, table_name=table_name, shards=packet), deadline
            )

    def put_entries(
        self, table: IndexTable, entries: Mapping[int, Sequence[EntryWrite]], deadline: Deadline
    ) -> dict[int, ShardState]:
        return self._sessions.write(
            lambda connection: index_entries.put_entries(connection, self._names, table, entries, deadline), deadline
        )

    def find_entries(
        self, table: IndexTable, shard: int, query: EntryQuery, deadline: Deadline
    ) -> tuple[ShardState, list[StoredEntry]]:
        return self._sessions.run(
            lambda connection: index_entries.find_entries(connection, self._names, table, shard, query), deadline
        )

    def find_first_entries(
        self, table: IndexTable, values: Mapping[int, Sequence[Scalar]], deadline: Deadline
    ) -> dict[int, EntrySighting]:
        return self._sessions.run(
            lambda connection: index_entries.find_first_entries(connection, self._names, table, values), deadline
        )

    def find_entries_at(
        self, table: IndexTable, keys: Mapping[int, Sequence[tuple[Scalar, bytes]]], deadline: Deadline
    ) -> dict[int, EntrySighting]:
        return self._sessions.run(
            lambda connection: index_entries.find_entries_at(connection, self._names, table, keys), deadline
        )

    def find_entries_of(
        self, table: IndexTable, row_keys: Mapping[int, Sequence[bytes]], deadline: Deadline
    ) -> dict[int, EntrySighting]:
        return self._sessions.run(
            lambda connection: index_entries.find_entries_of(connection, self._names, table, row_keys), deadline
        )

    def scan_entries(
        self, table: IndexTable, shard: int, after: tuple[Scalar, bytes] | None, limit: int, deadline: Deadline
    ) -> tuple[ShardState, list[StoredEntry]]:
        return self._sessions.run(
            lambda connection: index_entries.scan_entries(connection, self._names, table, shard, after, limit), deadline
        )

    def remove_entries(
        self, table: IndexTable, shard: int, entries: Sequence[StoredEntry], deadline: Deadline
    ) -> tuple[ShardState, int]:
        return self._sessions.write(
            lambda connection: index_entries.remove_entries(connection, self._names, table, shard, entries, deadline),
            deadline,
        )

    def put_document(self, document: StoredDocument, deadline: Deadline) -> None:
        self._sessions.write(lambda connection: documents.put(connection, self._names, document), deadline)

    def find_documents(self, prefix: str, deadline: Deadline) -> list[StoredDocument]:
        return self._sessions.run(lambda connection: documents.find(connection, self._names, prefix), deadline)

    def put_field_errors(self, errors: Sequence[FieldError], deadline: Deadline) -> None:
        self._sessions.write(
            lambda connection: index_errors.put_field_errors(connection, self._names, errors, deadline), deadline
        )

    def find_field_errors(self, index_name: str, version: int, limit: int, deadline: Deadline) -> list[FieldError]:
        return self._sessions.run(
            lambda connection: index_errors.find_field_errors(connection, self._names, index_name, version, limit),
            deadline,
        )

    def count_field_errors(self, index_name: str, version: int, deadline: Deadline) -> int:
        return self._sessions.run(
            lambda connection: index_errors.count_field_errors(connection, self._names, index_name, version), deadline
        )

    def drop_field_errors(self, index_name: str, version: int, deadline: Deadline) -> None:
        self._sessions.write(
            lambda connection: index_errors.drop_field_errors(connection, self._names, index_name, version, deadline),
            deadline,
        )

    def create_shards(self, shards: Sequence[int], status: ShardStatus) -> int:
        deadline = Deadline(ADMIN_SECONDS)
        self._sessions.write(lambda connection: schema.create_meta(connection, self._names), deadline)
        missing = sorted(set(shards) - self.shards_present())
        for first in range(0, len(missing), schema.SHARDS_PER_PACKET):
            packet = missing[first : first + schema.SHARDS_PER_PACKET]
            self._create(packet, status, deadline)
            metrics.shards_created(len(packet))
        return len(missing)

    def _create(self, packet: Sequence[int], status: ShardStatus, deadline: Deadline) -> None:
        self._sessions.write(lambda connection: schema.create_shards(connection, self._names, packet, status), deadline)

    def record_shard_count(self, count: int) -> int:
        deadline = Deadline(ADMIN_SECONDS)
        self._sessions.write(lambda connection: schema.create_meta(connection, self._names), deadline)
        self._sessions.write(lambda connection: authority.begin_history(connection, self._names), deadline)
        return self._sessions.write(
            lambda connection: schema.record_shard_count(connection, self._names, count), deadline
        )

    def shard_count(self, deadline: Deadline) -> int | None:
        return self._sessions.run(lambda connection: schema.shard_count(connection, self._names), deadline)

    def shards_present(self) -> set[int]:
        return self._sessions.run(
            lambda connection: schema.shards_present(connection, self._names), Deadline(LOOK_SECONDS)
        )

    def tables_missing(self) -> list[str]:
        return self._sessions.run(
            lambda connection: schema.tables_missing(connection, self._names), Deadline(LOOK_SECONDS)
        )

    def facts(self, *, is_replica: bool, shards: int, has_replicas: bool = False) -> list[Fact]:
        found = self._sessions.run(
            lambda connection: facts.facts(
                connection, self._config, is_replica=is_replica, shards=shards, has_replicas=has_replicas
            ),
            Deadline(LOOK_SECONDS),
        )
        if not is_replica and self.shard_count(Deadline(LOOK_SECONDS)) is not None:
            found += self._sessions.run(
                lambda connection: columns.altered_columns(connection, self._names), Deadline(LOOK_SECONDS)
            )
            found += self._sessions.run(
                lambda connection: list(facts.lost_shards(connection, self._names)), Deadline(LOOK_SECONDS)
            )
            found += beyond_facts(self.groups.find_beyond(Deadline(LOOK_SECONDS)))
            found += self._sessions.run(lambda connection: facts.ahead(connection, self._names), Deadline(LOOK_SECONDS))
        return found

    def close(self) -> None:
        self._sessions.close()
        if self.leases is not None:
            self.leases.close()


def _packets(shards: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (shards[first : first + size] for first in range(0, len(shards), size))
