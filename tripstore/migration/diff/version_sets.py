"""`StoredSets`: older versions of mapped columns as sets, from both stores by one question each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

from schemaless_core.cell.cell import ColumnKey
from schemaless_core.cell.children import Children
from schemaless_core.datastore import Datastore
from tripstore.backends.postgres.cells.sums.sums import TableSums
from tripstore.backends.postgres.cells.sums.versions import KnownVersions
from tripstore.backends.postgres.ids.ids import LEGACY_ID_REF_KEY
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout
from tripstore.engines.validation.diff.version_sets import ComparedSets, KnownLink, settled

#: A column with so many versions is looked at closely, page by page.
VERSIONS_MAX = 11

_Stored = Mapping[ColumnKey, Mapping[int, bytes]]


class StoredSets:
    """The `VersionSets` of a company's Postgres and Schemaless."""

    def __init__(self, sums: TableSums, store: Datastore, layout: Layout, seconds: float) -> None:
        self._sums = sums
        self._store = store.using(deadline=seconds)
        self._columns = frozenset(layout.columns)
        self._children: Children = layout.child_bits

    def compared(self, keys: Sequence[ColumnKey]) -> ComparedSets:
        """Schemaless first: what has come there since, Postgres has as well."""
        stored = self._stored(keys)
        wanted: defaultdict[str, list[UUID]] = defaultdict(list)
        for key in keys:
            if key.column_name in self._columns:
                wanted[key.column_name].append(key.row_key)
        known = self._sums.versions(wanted, VERSIONS_MAX)
        left, equal, forgotten = list[ColumnKey](), 0, 0
        for key in keys:
            found = self._settled(key, stored.get(key, {}), known)
            if found is None:
                left.append(key)
            else:
                equal, forgotten = equal + found[0], forgotten + found[1]
        return ComparedSets(left, equal, forgotten)

    def _stored(self, keys: Sequence[ColumnKey]) -> _Stored:
        found: defaultdict[ColumnKey, dict[int, bytes]] = defaultdict(dict)
        for cell in self._store.get_newest_stored(keys, VERSIONS_MAX):
            found[ColumnKey(UUID(bytes=cell.row_key), cell.column_name.decode())][cell.ref_key] = cell.body
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
