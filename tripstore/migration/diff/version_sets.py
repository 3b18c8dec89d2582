"""`StoredSets`: older versions as sets, from both stores: of Schemaless page by page, and of Postgres by one statement
for each column of a page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Generator, Mapping
from uuid import UUID

from schemaless_core.cell.cell import ColumnKey
from schemaless_core.cell.page_bytes import bound
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.datastore import Datastore
from schemaless_core.process.collecting import uncollected
from tripstore.backends.postgres.cells.sums.sums import TableSums
from tripstore.backends.postgres.cells.sums.versions import VersionsReader
from tripstore.backends.postgres.ids.ids import LEGACY_ID_REF_KEY
from tripstore.backends.postgres.layout.layout import LEGACY_ID, DeletePolicy, Layout
from tripstore.engines.validation.diff.version_sets import ComparedSets, RowPlace, is_cut, older, settled

#: Cells of Schemaless that are looked at together. Small shards share a look, and of a large one it is a page.
CELLS_PER_LOOK = 20_000
CELLS_PER_PAGE = 10_000
#: Of which a share of the rows is chosen, by a hash of the row key that has nothing to do with its shard.
_CHOICES = 10_007

#: What Schemaless has of rows, by column, row key and ref key.
_Stored = defaultdict[str, defaultdict[bytes, dict[int, bytes]]]


class StoredSets:
    """The `VersionSets` of a company's Postgres and Schemaless: of a share of the rows, and of these columns."""

    def __init__(
        self,
        sums: TableSums,
        store: Datastore,
        layout: Layout,
        seconds: float,
        share: float = 1.0,
        columns: Collection[str] | None = None,
    ) -> None:
        self._sums = sums
        self._store = store.using(deadline=seconds)
        self._parent, self._children = layout.parent, layout.child_bits
        self._share = share
        self._columns = columns

    def compared(self, place: RowPlace, stop: int) -> Generator[ComparedSets]:
        with self._sums.versions() as look:
            while place.shard < stop:
                stored: _Stored = defaultdict(lambda: defaultdict(dict))
                large = list[ColumnKey]()
                with uncollected():
                    place = self._read(place, stop, stored, large)
                    with look() as reader:
                        found = self._settled(reader, stored, ComparedSets(place))
                found.columns += len(large)
                found.left += large
                yield found

    def _read(self, place: RowPlace, stop: int, stored: _Stored, large: list[ColumnKey]) -> RowPlace:
        """Read pages until they are enough for a look; where the next one begins.

        Schemaless comes first: what has come there since, Postgres has as well.
        """
        cells, room = 0, bound()
        while place.shard < stop and cells < CELLS_PER_LOOK and room > 0:
            page = self._store.scan_versions(*place, limit=CELLS_PER_PAGE, columns=self._columns)
            for row_key, name, ref_key, body in page.cells:
                stored[name.decode()][row_key][ref_key] = body
                room -= len(body)
            if page.too_large is not None and self._is_chosen(page.too_large):
                large += self._columns_of(UUID(bytes=page.too_large))
            cells += len(page.cells)
            place = RowPlace(place.shard + 1) if page.after is None else RowPlace(place.shard, page.after)
        if self._share < 1:
            for of_column in stored.values():
                for row_key in [each for each in of_column if not self._is_chosen(each)]:
                    del of_column[row_key]
        return place

    def _columns_of(self, row_key: UUID) -> list[ColumnKey]:
        return [ColumnKey(row_key, name) for name in sorted(self._store.get_row(row_key, self._columns))]

    def _is_chosen(self, row_key: bytes) -> bool:
        return shard_of_bytes(row_key, _CHOICES) < self._share * _CHOICES

    def _settled(self, reader: VersionsReader, stored: _Stored, found: ComparedSets) -> ComparedSets:
        """The parent's column first: whether its versions are forgotten says something of its facts."""
        cut = set[bytes]()
        for name in sorted(stored, key=lambda name: name != self._parent.name):
            of_column = stored[name]
            found.columns += len(of_column)
            if name == LEGACY_ID:  # it has one version, ever
                left = {key for key, each in of_column.items() if each.keys() != {LEGACY_ID_REF_KEY}}
            else:
                left = self._settle_column(reader, name, of_column, cut, found)
            found.left += [ColumnKey(UUID(bytes=row_key), name) for row_key in sorted(left)]
        return found

    def _settle_column(
        self,
        reader: VersionsReader,
        name: str,
        of_column: Mapping[bytes, Mapping[int, bytes]],
        cut: set[bytes],
        found: ComparedSets,
    ) -> set[bytes]:
        """Count what is plain; the rows that are left."""
        if not of_column:
            return set()
        bits = self._children.get(name)
        known = reader.known(name, {key: older(each, bits) for key, each in of_column.items()})
        if name == self._parent.name and self._parent.on_delete is not DeletePolicy.IGNORE:
            cut.update(key for key, links in known.links.items() if is_cut(links))
        left = known.left
        for key, versions in of_column.items():
            counts = None if key in left else settled(versions, known.links[key], bits, is_parent_cut=key in cut)
            if counts is None:
                left.add(key)
            else:
                found.equal += counts[0]
                found.forgotten += counts[1]
        return left
