"""`PurgedDifferences`: what Schemaless lacks because it was purged there. Postgres may have it until it is deleted."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.cell.cell import CellKey
from schemaless_core.datastore import Datastore
from tripstore.engines.validation.diff.differences import Difference
from tripstore.handover.authority import Backend
from tripstore.migration.diff.ignored import IgnoredDeletions


class PurgedDifferences:
    """Of one comparison: those, and the deletions that the layout ignores."""

    def __init__(self, ignored: IgnoredDeletions, store: Datastore, source: Backend) -> None:
        self._ignored = ignored
        self._store = store.as_copier()
        self._is_from_legacy = source is Backend.LEGACY

    def explained(self, differences: Sequence[Difference]) -> set[Difference]:
        """Those that are nothing but one of the two."""
        ignored = self._ignored.explained(differences)
        keys = {each: key for each in differences if each not in ignored and (key := self._lacking(each)) is not None}
        purged = self._store.find_purged(list(keys.values())) if keys else {}
        return ignored | {each for each, key in keys.items() if key in purged}

    def _lacking(self, each: Difference) -> CellKey | None:
        """The version of Postgres' that Schemaless has not, nor a later one."""
        ours, theirs = each.from_ref_key, each.to_ref_key
        if not self._is_from_legacy:
            ours, theirs = theirs, ours
        if not each.is_difference or ours is None or (theirs is not None and theirs >= ours):
            return None
        return CellKey(each.row_key, each.column_name, ours)
