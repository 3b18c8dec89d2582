"""`TableSums`: the legacy store as sums and hashes of many shards, each table read once.

Whatever is hashed is rendered here, by the one encoder: Postgres would not do it faster, nor in the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.sharding import BUCKETS_PER_SHARD
from tripstore.backends.postgres.cells.places import ColumnPlaces
from tripstore.backends.postgres.cells.sums_sinks import Listing, Sink, Summing
from tripstore.backends.postgres.cells.sums_walk import SumsWalk, Tables, Wanted
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.connections import connected
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import translating
from validation.buckets import CellDigest, Place, Sums

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class TableSums:
    """The `Digests` of a legacy store."""

    def __init__(
        self, database: LegacyDatabase, layout: Layout, places: ColumnPlaces, lookups: LookupCache, shards: int
    ) -> None:
        codecs = {
            name: ColumnarCodec(column, ColumnCodec(column, lookups), lookups)
            for name, column in layout.columns.items()
        }
        self._tables = Tables(database, places, codecs, lookups, shards)

    def checksums(self, shards: range, columns: Collection[str] | None) -> Sums:
        """The sums of all buckets of these shards, as of one moment."""
        sink = Summing(self._tables.shards)
        buckets = None
        if len(shards) < self._tables.shards:
            buckets = set(range(shards.start * BUCKETS_PER_SHARD, shards.stop * BUCKETS_PER_SHARD))
        self._walk(Wanted(shards, buckets, columns), sink)
        return sink.sums(shards)

    def digests(self, places: Collection[Place], columns: Collection[str] | None) -> Iterable[CellDigest]:
        """The hashes of all cells of these buckets, as of one moment."""
        sink = Listing()
        buckets = {place.shard * BUCKETS_PER_SHARD + place.number for place in places}
        self._walk(Wanted(sorted({place.shard for place in places}), buckets, columns), sink)
        return sink.found

    def _walk(self, wanted: Wanted, sink: Sink) -> None:
        if wanted.shards:
            with self._snapshot() as connection:
                SumsWalk(connection, self._tables, wanted, sink).run()

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        url = self._tables.database.url
        with translating(), connected(url, "diff", statement_timeout="0", row_security="off") as connection:
            with connection.cursor() as cursor:
                cursor.execute(_SNAPSHOT)
            yield connection
