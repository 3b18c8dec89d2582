"""`TableSums`: the legacy store as sums and hashes of many shards, each table read once.

Whatever is hashed is rendered here, by the one encoder: Postgres would not do it faster, nor in the same bytes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.children import Children
from schemaless_core.cell.sharding import BUCKETS_PER_SHARD
from tripstore.backends.postgres.cells.past.held_tables import hold_all
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.sums.counts import rows_there
from tripstore.backends.postgres.cells.sums.sinks import Listing, Summing
from tripstore.backends.postgres.cells.sums.tables import Tables
from tripstore.backends.postgres.cells.sums.turns import Turns
from tripstore.backends.postgres.cells.sums.versions import VersionsReader
from tripstore.backends.postgres.cells.sums.walk import SumsWalk, WantedSums
from tripstore.backends.postgres.cells.sums.written import WrittenLayouts
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.wire.connections import connected
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import translating
from tripstore.engines.validation.diff.buckets import BucketPlace, CellDigest, Sums, TableRows
from tripstore.errors import StaleLayout

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_IN_FORCE = "SELECT layout FROM tripstore.authority"
#: Of statements that are many and short. Each asks for a few thousand rows by their sorted keys: by an index, unless
#: they are a good part of a table. The default supposes a disk that turns, and would have the whole log read each time.
VERSIONS_SESSION = {"jit": "off", "random_page_cost": "1.1"}


class TableSums:
    """The `Digests` of a legacy store. `StaleLayout`: another layout is in force, whose columns are not in them."""

    def __init__(
        self, database: LegacyDatabase, layout: Layout, places: ColumnPlaces, lookups: LookupCache, shards: int
    ) -> None:
        codecs = {
            name: ColumnarCodec(column, ColumnCodec(column, lookups), lookups)
            for name, column in layout.columns.items()
        }
        self._tables = Tables(database, places, codecs, lookups, shards, layout.child_bits)
        self._layout, self._held = layout.digest, hold_all(layout)
        self._written = WrittenLayouts(layout, lookups)

    def by(self, children: Children) -> TableSums:
        """The same, in which every child of these columns counts, and of others the one with the highest number."""
        other = copy.copy(self)
        other._tables = self._tables._replace(children=children)
        return other

    def by_turns(self, turns: Turns) -> TableSums:
        """The same, whose tables are read by turns, so that services are spared."""
        other = copy.copy(self)
        other._tables = self._tables._replace(turns=turns)
        return other

    def checksums(self, shards: range, columns: Collection[str] | None) -> Sums:
        """The sums of all buckets of these shards, and how many rows their tables have, as of one moment."""
        sink = Summing(self._tables.shards)
        buckets = None
        if len(shards) < self._tables.shards:
            buckets = set(range(shards.start * BUCKETS_PER_SHARD, shards.stop * BUCKETS_PER_SHARD))
        with self._snapshot() as connection:
            walk = SumsWalk(connection, self._tables, WantedSums(shards, buckets, columns), sink)
            walk.run()
            there = rows_there(connection, walk.tables, shards, self._tables.shards, self._tables.turns)
        seen = {name: TableRows(rows, walk.rows_seen[name]) for name, rows in there.items()}
        return sink.sums(shards, seen)

    def digests(self, places: Collection[BucketPlace], columns: Collection[str] | None) -> Iterable[CellDigest]:
        """The hashes of all cells of these buckets, as of one moment."""
        sink = Listing()
        buckets = {place.shard * BUCKETS_PER_SHARD + place.number for place in places}
        wanted = WantedSums(sorted({place.shard for place in places}), buckets, columns)
        if wanted.shards:
            with self._snapshot() as connection:
                SumsWalk(connection, self._tables, wanted, sink).run()
        return sink.found

    @contextmanager
    def versions(self) -> Iterator[Callable[[], AbstractContextManager[VersionsReader]]]:
        """A session for looks at older versions, each of one moment. For one thread at a time."""
        with self._session(**VERSIONS_SESSION) as connection:

            @contextmanager
            def look() -> Iterator[VersionsReader]:
                with self._moment(connection):
                    yield VersionsReader(connection, self._tables, self._written)

            yield look

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        with self._session() as connection, self._moment(connection):
            yield connection

    @contextmanager
    def _session(self, **settings: str) -> Iterator[Connection]:
        url = self._tables.database.url
        settings["statement_timeout"] = "0"
        if self._tables.turns is not None:  # between two turns it is idle, for as long as it has to be
            settings["idle_in_transaction_session_timeout"] = "0"
        with translating(), connected(url, "diff", **settings) as connection:
            yield connection

    @contextmanager
    def _moment(self, connection: Connection) -> Iterator[None]:
        """A snapshot. Tables are held before it is made: one of before an ALTER TABLE sees an empty table
        (`held_tables`).
        """
        with connection.cursor() as cursor:
            cursor.execute(f"{_BEGIN}; {self._held}")
            cursor.execute(_IN_FORCE)
            in_force = cursor.fetchone()
            if in_force is not None and in_force[0] not in (None, self._layout):
                raise StaleLayout(self._layout, in_force[0])
            yield
            cursor.execute("COMMIT")  # an error ends the session, and the snapshot with it
