"""`StoredVersions`: which versions of columns either store has, and has forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.datastore import Datastore
from schemaless_core.store import CellStore
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.errors import HistoryTruncated
from tripstore.engines.validation.diff.histories import FORGOTTEN, Forgotten
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

    def newest(self, store: CellStore, keys: Sequence[ColumnKey], limit: int) -> list[list[Cell]]:
        assert isinstance(store, PostgresBackend | Datastore)
        return store.get_newest(keys, limit)

    def find(self, store: CellStore, keys: Sequence[CellKey]) -> Sequence[Cell | Forgotten | None]:
        """Schemaless forgets what is purged, and nothing else."""
        if not isinstance(store, PostgresBackend):
            assert isinstance(store, Datastore)
            cells = store.get_cells(keys)
            purged = store.find_purged([key for key, cell in zip(keys, cells, strict=True) if cell is None])
            return [FORGOTTEN if key in purged else cell for key, cell in zip(keys, cells, strict=True)]
        found = dict(zip(keys, store.get_cells_known(keys), strict=True))
        ignored = self._ignored_of(store, [key for key, each in found.items() if each is None])
        return [
            FORGOTTEN if key in ignored or isinstance(each, HistoryTruncated) else each for key, each in found.items()
        ]

    def _ignored_of(self, store: PostgresBackend, keys: Sequence[CellKey]) -> set[CellKey]:
        """Those that may have been: a row whose deletion was ignored has no tombstone that its log could end at."""
        lasts = {key: last for key, last in self._ignored.lasts_of(keys).items() if key.ref_key <= last}
        known = {key: self.ref_keys(store, key) for key in {ColumnKey(*key[:2]) for key in lasts}}
        # What is known above it says what was before that.
        return {
            key
            for key, last in lasts.items()
            if not any(key.ref_key < ref_key <= last for ref_key in known[ColumnKey(*key[:2])])
        }
