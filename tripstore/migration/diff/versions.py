"""`StoredVersions`: which versions of a column either store has, where they cannot be read together."""

from __future__ import annotations

from schemaless_core.cell.cell import CellKey, ColumnKey
from schemaless_core.datastore import Datastore
from schemaless_core.store import CellStore
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.migration.diff.ignored import IgnoredDeletions

KEYS_PER_PAGE = 1_000


class StoredVersions:
    """The `Versions` of Postgres and of Schemaless."""

    def __init__(self, ignored: IgnoredDeletions) -> None:
        self._ignored = ignored

    def ref_keys(self, store: CellStore, key: ColumnKey) -> list[int]:
        assert isinstance(store, PostgresBackend | Datastore)
        found: list[int] = []
        while True:
            page = store.get_ref_keys(*key, before=found[-1] if found else None, limit=KEYS_PER_PAGE)
            found += page
            if len(page) < KEYS_PER_PAGE:
                return found

    def is_forgotten(self, store: CellStore, key: CellKey) -> bool:
        """Schemaless forgets nothing. A row whose deletion was ignored has no tombstone that its log could end at."""
        last = self._ignored.last_of(key) if isinstance(store, PostgresBackend) else None
        if last is None or last < key.ref_key:
            return False
        # What is known above it says what was before that.
        return not any(key.ref_key < ref_key <= last for ref_key in self.ref_keys(store, ColumnKey(*key[:2])))
