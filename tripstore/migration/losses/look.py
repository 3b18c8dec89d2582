"""`LossLook`: one page of a shard's log, held against what Postgres knows under the same keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schemaless_core.cell.answers import Location
from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.control.jobs.jobs import Finding
from schemaless_core.datastore import Datastore
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.errors import HistoryTruncated, UnreadableRow
from tripstore.migration.repair.sides import READ_SECONDS

CELLS_PER_PAGE = 500
#: Postgres has no such version; it has another body under the same ref key; it keeps no version so old, or a mend has
#: lifted its row above; no cell can be made of its row.
LACKING, REUSED, FORGOTTEN, UNREADABLE = "lacking", "reused", "forgotten", "unreadable"


class LookedPage(NamedTuple):
    """What a page held."""

    cells: int
    findings: list[Finding]
    next_location: int
    head: int


class LossLook:
    """At one epoch: both stores refuse it as soon as another Postgres is accepted, or authority moves."""

    def __init__(self, legacy: PostgresBackend, store: Datastore) -> None:
        self._legacy = legacy.using(deadline=READ_SECONDS)
        self._store = store.using(deadline=READ_SECONDS)

    def page(self, shard: int, location: Location) -> LookedPage:
        """The mirror first: what it has from the Postgres that answers, that one knows by then."""
        page = self._store.get_cells_for_shard(shard, location, CELLS_PER_PAGE)
        kinds = zip(page.cells, self._kinds(page.cells), strict=True)
        findings = [_finding(shard, cell, kind) for cell, kind in kinds if kind]
        return LookedPage(len(page.cells), findings, page.next_location, page.head)

    def _kinds(self, cells: Sequence[Cell]) -> list[str]:
        """What is to be listed of each, "" nothing; one by one where something among them cannot be read."""
        try:
            known = self._legacy.get_cells([CellKey(*cell.key) for cell in cells])
        except (UnreadableRow, HistoryTruncated):
            return [self._kind(cell) for cell in cells]
        return [_kind_of(*each) for each in zip(cells, known, strict=True)]

    def _kind(self, cell: Cell) -> str:
        try:
            return _kind_of(cell, self._legacy.get_cell(*cell.key))
        except HistoryTruncated:
            return FORGOTTEN
        except UnreadableRow:
            return UNREADABLE

    def bodies(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        """As the mirror has them."""
        return [self._store.get_cell(*key) for key in keys]


def _kind_of(cell: Cell, known: Cell | None) -> str:
    if known is None:
        return LACKING
    return "" if canonical_bytes(known.body) == canonical_bytes(cell.body) else REUSED


def _finding(shard: int, cell: Cell, kind: str) -> Finding:
    created = None if cell.created_at is None else cell.created_at.isoformat()
    body: dict[str, Json] = {"shard": shard, "added_id": cell.added_id, "created_at": created}
    return Finding(kind, cell.row_key, cell.column_name, cell.ref_key, body)
