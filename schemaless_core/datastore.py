"""`Datastore`: the cell store on sharded servers. Routes each call to the part that does it, and measures it."""

from __future__ import annotations

import copy
import os
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from uuid import UUID

from schemaless_core import metrics
from schemaless_core.buffers.buffers import Buffers
from schemaless_core.buffers.keeper import keeper_of
from schemaless_core.buffers.ports import PresentPort
from schemaless_core.buffers.replayer import AnyEpoch, Replayer
from schemaless_core.calls.buffered_reads import BufferedLookups
from schemaless_core.calls.encoded_puts import LANES, EncodedPuts
from schemaless_core.calls.lookups import Lookups
from schemaless_core.calls.purged import find_purged
from schemaless_core.calls.puts import Puts
from schemaless_core.calls.shardlog import ShardLog
from schemaless_core.calls.walks import Walks
from schemaless_core.cell.answers import (
    ANY,
    Bucket,
    Condition,
    IndexPage,
    Location,
    Position,
    PutResult,
    RowPage,
    Scalar,
    ShardPage,
)
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey, check_row_key
from schemaless_core.cell.children import NO_CHILDREN, ChildKey, Children
from schemaless_core.cell.encoded import EncodedCell, EncodedOutcome
from schemaless_core.cell.put_errors import BatchFailed
from schemaless_core.cell.sharding import shard_of
from schemaless_core.cell.standing import Kind, ShardStatus, Standing
from schemaless_core.cell.stored import VersionsPage
from schemaless_core.compression.catalogue import DictionaryCatalogue
from schemaless_core.config import BufferConfig, DatastoreConfig, load_document, parse_config
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.engine.base import HashedCell
from schemaless_core.errors import (
    Conflict,
    Invalid,
    InvalidRequest,
    SchemalessError,
    StaleEpoch,
    Unavailable,
)
from schemaless_core.fsck.fsck import Fsck, FsckParts
from schemaless_core.habits import Habits, ReadFrom
from schemaless_core.health import HEALTH_SECONDS, Health, clusters_health
from schemaless_core.indexes.indexes import Indexes, IndexParts
from schemaless_core.indexes.lookup import IndexQueries
from schemaless_core.mends import Mends
from schemaless_core.promotion.failover import Failover
from schemaless_core.promotion.ports import AuthorityPort
from schemaless_core.promotion.promotions import Promotions
from schemaless_core.promotion.voters import renew
from schemaless_core.servers.authority import ShardAuthority
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.fanout import FanOut
from schemaless_core.servers.places import Places
from schemaless_core.servers.routing import Router
from schemaless_core.servers.schema import Progress, Schema, SchemaPlan
from schemaless_core.servers.shard_primaries import ShardPrimaries
from schemaless_core.store import JointStore
from schemaless_core.triggers.coordination import Coordination
from schemaless_core.triggers.deaths import Deaths
from schemaless_core.triggers.joined import Joined
from schemaless_core.triggers.offsets import Offsets
from schemaless_core.triggers.parking import Parking
from schemaless_core.triggers.timeouts import Timeouts
from schemaless_core.triggers.triggers import Triggers
from schemaless_core.unclosed import Unclosed

if TYPE_CHECKING:
    from schemaless_core.backups.backups import Backups
    from schemaless_core.compression.compress_jobs import CompressJobs
    from schemaless_core.compression.training import Training
    from schemaless_core.moves.moves import Moves
    from schemaless_core.purging.purge_jobs import PurgeJobs
    from schemaless_core.purging.purges import Purges
    from schemaless_core.replication.replication import Replication

#: For a step that reads or turns over a portion of a shard.
SCAN_SECONDS = 20.0

T = TypeVar("T")
V = TypeVar("V", bound=Scalar)


class Datastore(JointStore):
    """Cells on MySQL, MariaDB or SQLite. A context manager; safe to share by threads and to inherit by forks."""

    # Made at first use: most stores of other habits are for a few calls, and have no use for them.
    _triggers: Triggers | None
    _indexes: Indexes | None

    def __init__(self, config: DatastoreConfig) -> None:
        if not isinstance(config, DatastoreConfig):
            raise InvalidRequest(
                f"Datastore() takes a DatastoreConfig, and was given a {type(config).__name__}.",
                hint="Datastore.open() takes a mapping, or the path of a file.",
            )
        self.config = config
        self.clusters = {cluster.name: Cluster(cluster, config) for cluster in config.clusters}
        self.control = ControlDatabase(config.control, config.datastore, config.tls, config.deadlines.connect_seconds)
        self.schema = Schema(config, self.clusters, self.control)
        self._places = Places(config.shards, self.clusters, self.control, config.deadlines.connect_seconds)
        self._fanout = FanOut(2 * len(self.clusters))
        self._lanes = FanOut(LANES - 1)
        self._router = Router(self.clusters, self._places, self._fanout)
        self._buffers = Buffers(self._router, config.buffer or BufferConfig(), config.shards)
        self.authority = ShardAuthority(self.clusters, self._router, self._fanout)
        self._index_parts = IndexParts(config, self.clusters, self._router, self.control)
        for cluster in self.clusters.values():
            cluster.renews_by(partial(renew, cluster, self.clusters, self.control))
        #: Where the workers of triggers agree on which of them serves which shard.
        self.coordination = Coordination(config, self.control)
        self._unclosed = Unclosed(repr(self))
        self._arrange(Habits(), Standing())
        _ALL.add(self)

    def __repr__(self) -> str:
        clusters = ", ".join(self.clusters)
        return f"<Datastore {self.config.datastore}: {self.config.shards} shards on {clusters}>"

    @classmethod
    def open(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Self:
        """Open a datastore from a configuration file or mapping. It connects when it is first used."""
        document, folder = load_document(source)
        return cls(parse_config(document, folder))

    @property
    def deadline_seconds(self) -> float | None:
        """How long each call may take, as `using` said; None: as configured for each operation."""
        return self._habits.deadline

    @property
    def triggers(self) -> Triggers:
        """Groups, workers, and what the person on call asks of them."""
        if self._triggers is None:
            self._triggers = self._new_triggers()
        return self._triggers

    @property
    def indexes(self) -> Indexes:
        """The indexes, but for their queries."""
        if self._indexes is None:
            triggers = self.triggers
            self._indexes = Indexes(
                self._index_parts, self.config, self.clusters, self._router, triggers, triggers.offsets, self._lanes
            )
        return self._indexes

    def replayer(self, present: PresentPort | None = None) -> Replayer:
        """Carries what waits in buffers; `present`: who says which authority epoch it is, where a layer above has one.

        Also where no buffer is configured (any more): what waits is not forgotten.
        """
        return Replayer(self._router, self.config.buffer, self.config.shards, present or AnyEpoch())

    @property
    def promotions(self) -> Promotions:
        """Other servers as primaries, and what the old ones alone had."""
        parts = (self.config, self.clusters, self._router, self.control, self._index_parts.catalogue)
        return Promotions(*parts, lambda: self.purges)

    def moves(self, authority: AuthorityPort | None = None) -> Moves:
        """Shards that go to other clusters; `authority`: who says which backend it is, where a layer above has one."""
        from schemaless_core.moves.moves import Moves  # no put needs it

        catalogue = self._index_parts.catalogue
        return Moves(self.config, self.clusters, self._router, self.control, catalogue, authority)

    def backups(self, authority: AuthorityPort | None = None) -> Backups:
        """All shards as files, and a datastore made of such; `authority`: as for moves."""
        from schemaless_core.backups.backups import Backups  # no put needs it

        parts = (self.config, self.clusters, self.schema, self.control, self._index_parts.catalogue)
        return Backups(*parts, self.indexes.create_missing, authority)

    def replication(self, other: Datastore, authority: AuthorityPort | None = None) -> Replication:
        """This datastore as the standby of another one, which leads; `authority`: as for moves."""
        from schemaless_core.replication.replication import Replication  # no put needs it
        from schemaless_core.replication.sides import DatastoreSide

        own, led = (
            DatastoreSide(each.config, each.clusters, each.control, each.schema, each._router, each.purges)
            for each in (self, other)
        )
        return Replication(own, led, self.indexes, authority)

    def failover(self, authority: AuthorityPort | None = None) -> Failover:
        """Keeps the leases of primaries going, and has another server lead where one is silent for too long."""
        promotions = self.promotions
        return Failover(self.clusters, self.control, lambda cluster: promotions.promoter(cluster, authority))

    def find_purged(self, keys: Sequence[CellKey]) -> dict[CellKey, int]:
        """Return those of the keys that were purged, each with the ref key up to which its column was."""
        stored = {(key.row_key.bytes, key.column_name.encode(), key.ref_key): key for key in keys}
        found = find_purged(self._router, self.config.shards, list(stored))
        return {stored[key]: up_to for key, up_to in found.items()}

    @property
    def purges(self) -> Purges:
        """Deletes rows and superseded versions for good."""
        from schemaless_core.purging.purges import Purges  # no put reads this file

        return Purges(self._router, self.config.shards, self._index_parts)

    @property
    def purge_jobs(self) -> PurgeJobs:
        """The same as jobs."""
        from schemaless_core.purging.purge_jobs import PurgeJobs  # no put reads this file
        from schemaless_core.purging.replicas import PurgeReplicas

        return PurgeJobs(self.purges, PurgeReplicas(self.clusters, self.control), self.control, self.config.shards)

    @property
    def dictionaries(self) -> DictionaryCatalogue:
        """What bodies are compressed with."""
        return DictionaryCatalogue(self.clusters)

    @property
    def training(self) -> Training:
        """Makes dictionaries from what is stored."""
        from schemaless_core.compression.training import Training  # no put reads this file

        primaries, level = ShardPrimaries(self._router, SCAN_SECONDS), self.config.compression.level
        return Training(self.dictionaries, primaries, self.control, self.config.shards, level)

    @property
    def compress_jobs(self) -> CompressJobs:
        """Stores the cells of all shards as puts store them now."""
        from schemaless_core.compression.compress_jobs import CompressJobs  # no put reads this file

        primaries = ShardPrimaries(self._router, SCAN_SECONDS)
        return CompressJobs(self.config.compression, self.dictionaries, primaries, self.control, self.config.shards)

    @property
    def mends(self) -> Mends:
        """Cells as their bytes stand, and what repair may change. As a copier's store: only where this is a mirror."""
        return Mends(self._router, self.config.shards, self._standing, self._index_parts)

    @property
    def fsck(self) -> Fsck:
        """Looks whether what stands on the servers is as the invariants want it."""
        its = FsckParts(
            self.config,
            self.clusters,
            self._router,
            self.control,
            self._index_parts,
            self.triggers,
            self.indexes,
            self.promotions,
        )
        return Fsck(its)

    def create_schema(
        self, *, status: ShardStatus = ShardStatus.RW, progress: Progress = lambda done, total: None
    ) -> SchemaPlan:
        """Create whatever is missing of the shards, the control database and the indexes. Idempotent, resumable."""
        done = self.schema.apply(status, progress)
        self.dictionaries.spread()
        self.indexes.create_missing()
        return done

    def put_cell(
        self,
        row_key: UUID,
        column_name: str,
        ref_key: int,
        body: Json,
        *,
        expect_latest: int | None | Any = ANY,
    ) -> PutResult:
        cell = Cell(row_key, column_name, ref_key, body)
        return _measured("put_cell", self._puts.put, cell, expect_latest)

    def put_checked(self, cell: Cell, body: bytes, expect_latest: Any) -> PutResult:
        """Put a cell that its caller has checked: `body` is what `checked_bytes` made of it."""
        return _measured("put_cell", self._puts.put_checked, cell, body, expect_latest)

    def put_cells(self, cells: Sequence[Cell]) -> list[PutResult]:
        return _measured("put_cells", self._puts.put_many, cells)

    def put_together(self, cells: Sequence[Cell], seen: Position) -> list[PutResult] | None:
        """Store cells of one row by one commit, all or none.

        None: one of their keys is taken, or the row has a cell after this position of its shard's log: read it again.
        Call `end_of_log` first, then read the row, both from the primary. A read by `using(read="replica")`, or by a
        store without an authority epoch, may lack cells before the position, and no check would notice.
        """
        return _measured("put_cells", self._puts.put_together, cells, seen)

    def put_encoded(self, cells: Sequence[EncodedCell]) -> EncodedOutcome:
        """Store many cells whose bodies are canonical bytes, like `put_cells`, but raise for none of them."""
        return _measured("put_encoded", self._encoded.put, cells)

    def find_unequal(self, cells: Sequence[EncodedCell]) -> list[int]:
        """Read cells from their primaries; return the positions of those that are not there byte for byte."""
        return _measured("find_unequal", self._encoded.unequal, cells)

    def append_cell(self, row_key: UUID, column_name: str, body: Json) -> PutResult:
        return _measured("append_cell", self._puts.append, row_key, column_name, body)

    def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        return _measured("get_cell", self._reads.cell, row_key, column_name, ref_key)

    def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        return _measured("get_cell_latest", self._reads.latest, row_key, column_name)

    def get_cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        return _measured("get_cells", self._reads.cells, keys)

    def get_cells_latest(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        return _measured("get_cells_latest", self._reads.latest_cells, columns)

    def get_children_latest(self, keys: Sequence[ChildKey], children: Children) -> list[Cell | None]:
        """Return the latest cell or None per child, in order; of a fact the tombstone above it, if there is one."""
        return _measured("get_cells_latest", self._lookups.latest_children, keys, children)

    def get_row(self, row_key: UUID, columns: Collection[str] | None = None) -> dict[str, Cell]:
        return _measured("get_row", self._reads.row, row_key, columns)

    def get_history(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[Cell]:
        return _measured("get_history", self._reads.history, row_key, column_name, before, limit)

    def get_newest(self, columns: Sequence[ColumnKey], limit: int) -> list[list[Cell]]:
        """Return the newest cells of each column, at most so many of each, newest first.

        Of the first columns, as many as a page of bodies has room for, and of one at least: go on with the next.
        """
        return _measured("get_history", self._lookups.newest, columns, limit)

    def get_ref_keys(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[int]:
        """Ref keys of a column's cells, newest first: of those, too, whose bytes are no body."""
        return _measured("get_history", self._lookups.ref_keys, row_key, column_name, before, limit)

    def query_index(
        self,
        index: str,
        shard_value: Scalar,
        where: Sequence[Condition] = (),
        *,
        fields: Sequence[str] | None = None,
        columns: Sequence[str] | Literal["*"] | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        consistency: Literal["fast", "verified"] = "fast",
    ) -> IndexPage:
        filters = (shard_value, where, fields, columns, order_by, descending, limit, cursor)
        return _measured("query_index", self._queries.query, index, *filters, consistency)

    def first_rows(
        self, index: str, shard_values: Iterable[V], consistency: Literal["fast", "verified"] = "fast"
    ) -> dict[V, UUID]:
        """Return the first row of each of many shard values, by row key; a value that no row has is left out.

        What `query_index(index, value, limit=1)` finds of each, with one question to each server for all of them.
        """
        return _measured("query_index", self._queries.first_rows, index, shard_values, consistency)

    def get_cells_for_shard(self, shard: int, location: Location, limit: int) -> ShardPage:
        return _measured("get_cells_for_shard", self._log.pages, {shard: location}, limit)[shard]

    def get_cells_for_shards(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        return _measured("get_cells_for_shards", self._log.pages, locations, limit)

    def end_of_log(self, shard: int) -> Position:
        """Return where a shard's log ends now, as its primary says, whatever the habits."""
        return _measured("get_cells_for_shard", self._log.end, shard)

    def resumes_at(self, positions: Mapping[int, Position]) -> dict[int, Position]:
        """Return where reading goes on behind positions, which a promotion may have taken the end from."""
        return _measured("get_cells_for_shards", self._log.resumes_at, positions)

    def scan_rows(
        self, shard: int, after: UUID | None = None, limit: int = 1000, columns: Collection[str] | None = None
    ) -> RowPage:
        return _measured("scan_rows", self._walks.rows, shard, after, limit, columns)

    def scan_versions(
        self, shard: int, after: bytes | None = None, limit: int = 1000, columns: Collection[str] | None = None
    ) -> VersionsPage:
        """Return all versions of the rows after a row key, with the bytes that stand there: about so many cells."""
        return _measured("scan_rows", self._walks.versions, shard, after, limit, columns)

    def checksum(
        self, shard: int, columns: Collection[str] | None = None, children: Children = NO_CHILDREN
    ) -> list[Bucket]:
        return _measured("checksum", self._walks.checksum, shard, columns, children)

    def digests(
        self,
        shard: int,
        buckets: Collection[int],
        columns: Collection[str] | None = None,
        children: Children = NO_CHILDREN,
    ) -> list[HashedCell]:
        """Return keys and hashes of the latest cells of some buckets: what a checksum is the sum of."""
        return _measured("digests", self._walks.digests, shard, buckets, columns, children)

    def shard_of(self, row_key: UUID) -> int:
        check_row_key(row_key)
        return shard_of(row_key, self.config.shards)

    def using(
        self,
        *,
        read: Literal["primary", "replica"] | None = None,
        deadline: float | None = None,
        include_buffered: bool | None = None,
        durability: Literal["single", "double"] | None = None,
    ) -> Self:
        """Return the same store with other habits; what is not named stays as it was."""
        habits = self._habits.with_changes(read, deadline, include_buffered, durability)
        if habits.durability == "double" and (self.config.buffer is None or len(self.clusters) == 1):
            # To accept it without doing it would be a promise broken in silence.
            hint = "Write `buffer: {}` into the configuration, of two clusters at least."
            raise InvalidRequest("durability='double' keeps second copies in buffers, and there are none.", hint=hint)
        return self._with(habits, self._standing)

    def health(self, *, deadline: float = HEALTH_SECONDS) -> Health:
        """Say whether calls can be served now, for a load balancer: each cluster is asked one short question at once.

        Nothing is raised for a server that does not answer.
        """
        return clusters_health(self._router, deadline)

    def as_owner(self, authority_epoch: int) -> Self:
        """Return the same store for an authority's calls: writes and reads count only at this epoch."""
        return self._with(self._habits, Standing(Kind.OWNER, authority_epoch))

    def as_copier(self, authority_epoch: int | None = None) -> Self:
        """Return the same store for a copier, which carries what is true elsewhere: mirror, backfill, repair."""
        return self._with(self._habits, Standing(Kind.COPIER, authority_epoch))

    def close(self) -> None:
        """Close all connections, and refuse calls from now on. Stores made by `using` share both."""
        self._unclosed.note_closed()
        self._index_parts.after_commit.close()
        self._places.close()
        self._lanes.close()
        self._fanout.close()
        for cluster in self.clusters.values():
            cluster.close()
        self.coordination.close()
        self.control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _with(self, habits: Habits, standing: Standing) -> Self:
        other = copy.copy(self)
        other._arrange(habits, standing)
        _ALL.add(other)  # it may outlive the store it was made from
        return other

    def _arrange(self, habits: Habits, standing: Standing) -> None:
        self._habits, self._standing = habits, standing
        self._lookups = Lookups(self._router, self.config, habits, standing)
        at_primary = Lookups(self._router, self.config, replace(habits, read="primary_only"), standing)
        parts = self._index_parts
        keeper = keeper_of(self._buffers, self.config, habits, standing)
        self._reads: Lookups | BufferedLookups = self._lookups
        if habits.include_buffered:  # also without the section: something may wait since it was there
            seconds = self.config.deadlines.read_seconds if habits.deadline is None else habits.deadline
            self._reads = BufferedLookups(self._lookups, self._buffers, seconds, self.config.shards)
        self._puts = Puts(self._router, self.config, habits, standing, at_primary, parts.after_commit, keeper)
        self._encoded = EncodedPuts(self._router, self.config, habits, standing, self._lanes)
        self._log = ShardLog(self._router, self.config, habits, standing)
        self._walks = Walks(self._router, self.config, habits, standing)
        self._queries = IndexQueries(self._router, self.config, parts.catalogue, habits, standing, self._lookups)
        self._triggers = None
        self._indexes = None

    def _new_triggers(self) -> Triggers:
        def log_of(read_from: ReadFrom) -> ShardLog:
            return ShardLog(self._router, self.config, Habits(read=read_from), Standing(Kind.COPIER))

        offsets = Offsets(self._router, log_of("primary"), self.config)
        parking = Parking(self._router)
        joined = Joined(self._router, self, self.config.max_body_bytes, self._index_parts.after_commit)
        lookups = Lookups(self._router, self.config, replace(self._habits, read="primary_only"), self._standing)
        deaths = Deaths(self._router, self.config.triggers)
        return Triggers(
            self,
            self.config,
            self.clusters,
            self.coordination.coordinator(),
            offsets,
            parking,
            joined,
            deaths,
            lookups,
            log_of,
            Timeouts(Documents(self.control)),
        )

    def _after_fork(self) -> None:
        self._places.after_fork()
        self._index_parts.after_fork()
        self._lanes.after_fork()
        self._fanout.after_fork()
        self.coordination.after_fork()
        for cluster in self.clusters.values():
            cluster.after_fork()


def _measured(operation: str, part: Callable[..., T], *arguments: Any) -> T:
    """Run a call and record how long it took and what came of it."""
    started = time.perf_counter()
    outcome = "ok"
    try:
        return part(*arguments)
    except SchemalessError as error:
        outcome = _outcome_of(error)
        raise
    except BaseException:
        outcome = "bug"
        raise
    finally:
        metrics.call_finished(operation, outcome, time.perf_counter() - started)


def _outcome_of(error: SchemalessError) -> str:
    for kind, name in _OUTCOMES.items():
        if isinstance(error, kind):
            return name
    return "failed"


_OUTCOMES: dict[type[SchemalessError], str] = {
    Unavailable: "unavailable",
    Conflict: "conflict",
    Invalid: "invalid",
    StaleEpoch: "stale_epoch",
    BatchFailed: "batch_failed",
}

_ALL: weakref.WeakSet[Datastore] = weakref.WeakSet()


def _after_fork() -> None:
    for datastore in list(_ALL):
        datastore._after_fork()


os.register_at_fork(after_in_child=_after_fork)
