"""`ReverseRepair`: the sides of a repair while Schemaless is the authority, and Postgres the mirror."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from schemaless_core.cell.canonical import from_canonical
from schemaless_core.cell.cell import CellKey, ColumnKey
from schemaless_core.cell.children import ChildKey
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.engines.validation.repair import HeldVersion, Powers, RepairStep, Version
from tripstore.migration.repair.changes import mend, outcome_of, rebuild
from tripstore.migration.repair.heights import lift_target
from tripstore.migration.repair.sides import READ_SECONDS, Pair
from tripstore.migration.repair.versions import held, known_at, known_latest


class ReverseRepair:
    """Schemaless is the authority, Postgres the mirror."""

    def __init__(
        self,
        legacy: PostgresBackend,
        store: Datastore,
        epoch: int,
        job: str,
        unpark: Callable[[Collection[UUID]], object],
        *,
        may_mend_authority: bool,
    ) -> None:
        self._legacy = legacy.as_mirror(epoch).using(deadline=READ_SECONDS)
        self._layout: Layout = legacy.layout
        self._store = store.as_owner(epoch).using(deadline=READ_SECONDS)
        self._mends = self._store.mends.of_job(job)
        self._unpark = unpark
        self._may_mend_authority = may_mend_authority

    def theirs(self, rows: Sequence[ChildKey]) -> list[HeldVersion | None]:
        # A row that no cell can be made of is no cell; a put would say what is wrong with it.
        return [found if isinstance(found, HeldVersion) else None for found in known_latest(self._legacy, rows)]

    def ours(self, rows: Sequence[ChildKey]) -> list[Version]:
        return list(map(held, self._mends.latest(rows, self._layout.child_bits)))

    def theirs_at(self, keys: Sequence[CellKey]) -> list[HeldVersion | None]:
        return [found if isinstance(found, HeldVersion) else None for found in known_at(self._legacy, keys)]

    def ours_at(self, keys: Sequence[CellKey]) -> list[Version]:
        return list(map(held, self._mends.find_all(keys)))

    def powers(self, seen: Sequence[Pair]) -> list[Powers]:
        return [
            Powers(lift_target(self._layout, *pair), can_mend=False, may_mend_authority=self._may_mend_authority)
            for pair in seen
        ]

    def put(self, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
        """Rows of the parent first."""
        outcomes: dict[CellKey, SchemalessError | None] = {}
        for step in sorted(steps, key=lambda step: step.key.column_name != self._layout.parent.name):
            assert step.body is not None
            try:
                self._legacy.put_cell(*step.key, from_canonical(step.body))
                outcomes[step.key] = None
            except SchemalessError as error:
                outcomes[step.key] = error
        return [outcomes[step.key] for step in steps]

    def put_new(self, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
        return self.put(steps)

    def bury(self, lost: Sequence[tuple[RepairStep, HeldVersion]]) -> list[SchemalessError | None]:
        raise AssertionError("what Schemaless had stays in its log")

    def lift(self, lifts: Sequence[tuple[RepairStep, HeldVersion]]) -> list[SchemalessError | HeldVersion | None]:
        return [outcome_of(lambda: self._lift_one(step, ours)) for step, ours in lifts]  # noqa: B023  # called at once

    def _lift_one(self, step: RepairStep, ours: HeldVersion) -> None:
        self._store.put_cell(*step.key, from_canonical(ours.body), expect_latest=ours.ref_key)

    def mend(self, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
        return mend(self._mends, steps)

    def purge(self, extra: Sequence[tuple[RepairStep, HeldVersion]]) -> list[SchemalessError | None]:
        raise AssertionError("no row of the company's is deleted by repair")

    def settle(self, columns: Collection[ColumnKey]) -> None:
        rows = {column.row_key for column in columns}
        rebuild(self._mends, columns, self._mends.touched(rows))
        self._unpark(rows)
