"""`StoredSets`: older versions of mapped columns as sets, from both stores by one question each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

from schemaless_core.cell.cell import ColumnKey
from schemaless_core.cell.children import Children
from schemaless_core.cell.page_bytes import bound
from schemaless_core.datastore import Datastore
from tripstore.backends.postgres.cells.sums.sums import TableSums
from tripstore.backends.postgres.cells.sums.versions import KnownVersions
from tripstore.backends.postgres.ids.ids import LEGACY_ID_REF_KEY
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout
from tripstore.engines.validation.diff.version_sets import ComparedSets, KnownLink, settled

#: A column with so many versions is looked at closely, page by page.
VERSIONS_MAX = 11
#: Columns that are compared at once: at first, for how large they are is known afterwards, and at most.
COLUMNS_FIRST, COLUMNS_MAX = 50, 2_000

#: By row key and name of the column, what is stored under each ref key.
_Stored = Mapping[tuple[bytes, bytes], Mapping[int, bytes]]


class StoredSets:
    """The `VersionSets` of a company's Postgres and Schemaless."""

    def __init__(self, sums: TableSums, store: Datastore, layout: Layout, seconds: float) -> None:
        self._sums = sums
        self._store = store.using(deadline=seconds)
        self._columns = frozenset(layout.columns)
        self._children: Children = layout.child_bits
        self._at_once = COLUMNS_FIRST

    def compared(self, keys: Sequence[ColumnKey]) -> ComparedSets:
        """As many at a time as would be a page of bodies if they were like those before."""
        left, equal, forgotten = list[ColumnKey](), 0, 0
        first = 0
        while first < len(keys):
            some = keys[first : first + self._at_once]
            found = self._compared(some)
            left += found.left
            equal, forgotten = equal + found.equal, forgotten + found.forgotten
            first += len(some)
        return ComparedSets(left, equal, forgotten)

    def _compared(self, keys: Sequence[ColumnKey]) -> ComparedSets:
        """Schemaless first: what has come there since, Postgres has as well."""
        stored = self._stored(keys)
        wanted: defaultdict[str, list[UUID]] = defaultdict(list)
        for key in keys:
            if key.column_name in self._columns:
                wanted[key.column_name].append(key.row_key)
        known = self._sums.versions(wanted, VERSIONS_MAX)
        left, equal, forgotten = list[ColumnKey](), 0, 0
        for key in keys:
            found = self._settled(key, stored.get((key.row_key.bytes, key.column_name.encode()), {}), known)
            if found is None:
                left.append(key)
            else:
                equal, forgotten = equal + found[0], forgotten + found[1]
        return ComparedSets(left, equal, forgotten)

    def _stored(self, keys: Sequence[ColumnKey]) -> _Stored:
        found: defaultdict[tuple[bytes, bytes], dict[int, bytes]] = defaultdict(dict)
        size = 1
        for _added_id, row_key, name, ref_key, body, _at in self._store.get_newest_stored(keys, VERSIONS_MAX):
            found[row_key, name][ref_key] = body
            size += len(body)
        self._at_once = min(COLUMNS_MAX, max(1, bound() * len(keys) // size))
        return found

    def _settled(
        self, key: ColumnKey, stored: Mapping[int, bytes], known: Mapping[str, KnownVersions]
    ) -> tuple[int, int] | None:
        if key.column_name == LEGACY_ID:  # it has one version, ever
            return (0, 0) if stored.keys() == {LEGACY_ID_REF_KEY} else None
        versions, row_key = known.get(key.column_name), key.row_key.bytes
        if versions is None or row_key in versions.left or not 0 < len(stored) < VERSIONS_MAX:
            return None
        links = {ref_key: KnownLink(None, is_change=False) for ref_key in versions.current.get(row_key, ())}
        for ref_key, change in versions.changes.get(row_key, {}).items():
            links[ref_key] = KnownLink(change.body, True, change.previous)
        return settled(stored, links, self._children.get(key.column_name))
