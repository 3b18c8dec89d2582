"""`IgnoredDeletions`: differences that are as the layout wants them.

With `on_delete: ignore` a row that is deleted leaves no tombstone, so Schemaless keeps its cells; `tripstore.kept` has
the ref key that it had last, and the number of each fact. Its older versions are those of the log, as long as that is
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from schemaless_core.cell.cell import CellKey
from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.layout.layout import DeletePolicy, Layout
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.engines.validation.diff.differences import Difference
from tripstore.engines.validation.diff.suspects import READ_SECONDS, Roles
from tripstore.handover.authority import Backend

KEPT = """\
SELECT k.row_key::text, k.column_name, k.n, k.ref_key FROM tripstore.kept AS k
 WHERE k.row_key = ANY (%s::uuid[]) AND k.column_name = ANY (%s)"""

#: Row key, column, and what tells the row from its siblings there.
_Row = tuple[UUID, str, int]


class IgnoredDeletions:
    """Of one comparison."""

    def __init__(self, layout: Layout, database: LegacyDatabase, roles: Callable[[], Roles], source: Backend) -> None:
        self._columns = {n: each for n, each in layout.columns.items() if each.on_delete is DeletePolicy.IGNORE}
        self._database = database
        self._roles = roles
        self._is_from_legacy = source is Backend.LEGACY

    def explained(self, differences: Sequence[Difference]) -> set[Difference]:
        """Those that are nothing but such deletions."""
        suspects = [each for each in differences if self._may_be(each)]
        kept = self._kept({each.row_key for each in suspects}) if suspects else {}
        return {each for each in suspects if self._is_explained(each, kept)}

    def lasts_of(self, keys: Sequence[CellKey]) -> dict[CellKey, int]:
        """The ref keys that rows had when they were deleted so; one that never was is left out."""
        keys = [key for key in keys if key.column_name in self._columns]
        kept = self._kept({key.row_key for key in keys}) if keys else {}
        return {key: last for key in keys if (last := kept.get(self._row(key))) is not None}

    def _may_be(self, each: Difference) -> bool:
        """Whether Schemaless has a cell of such a column, and Postgres none or a lower one."""
        ours, theirs = self._versions(each)
        is_theirs = theirs is not None and (ours is None or ours < theirs)
        return each.is_difference and not each.is_older and is_theirs and each.column_name in self._columns

    def _is_explained(self, each: Difference, kept: Mapping[_Row, int]) -> bool:
        ours, theirs = self._versions(each)
        assert theirs is not None
        key = CellKey(each.row_key, each.column_name, theirs)
        return theirs == kept.get(self._row(key)) and (ours is None or self._is_equal_below(key, ours))

    def _is_equal_below(self, key: CellKey, ours: int) -> bool:
        """Whether the cell that Postgres has below the row that went is equal."""
        roles = self._roles()
        legacy, store = roles[:2] if roles.is_from is self._is_from_legacy else (roles.mirror, roles.authority)
        wanted, held = (each.using(deadline=READ_SECONDS).get_cell(*key[:2], ours) for each in (legacy, store))
        return wanted is not None and wanted == held

    def _kept(self, row_keys: Collection[UUID]) -> dict[_Row, int]:
        parameters = [str(each) for each in row_keys], list(self._columns)
        found = self._database.run(lambda connection: connection.rows(KEPT, parameters), Deadline(READ_SECONDS))
        return {(UUID(row_key), name, int(n)): int(ref_key) for row_key, name, n, ref_key in found}

    def _row(self, key: CellKey) -> _Row:
        return key.row_key, key.column_name, self._columns[key.column_name].kept_number(key.ref_key)

    def _versions(self, each: Difference) -> tuple[int | None, int | None]:
        """What Postgres has, and what Schemaless has."""
        versions = each.from_ref_key, each.to_ref_key
        return versions if self._is_from_legacy else versions[::-1]
