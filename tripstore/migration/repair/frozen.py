"""`Frozen`: rows that stand at the last version there is, what each is to have instead, and how it gets that.

Postgres goes first, in one transaction; then the mirror loses the cells that the row jumped to. A process that dies
between the two leaves a difference like any other: a diff finds it, and a repair takes the mirror's cell away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from schemaless_core.cell.cell import CellKey
from schemaless_core.control.audit import AuditLog
from schemaless_core.datastore import Datastore
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.mend.frozen import StaysFrozen
from tripstore.backends.postgres.layout.layout import MappedColumn, RefKeyKind
from tripstore.migration.repair.repair import Repairing, TargetOutcome
from tripstore.migration.repair.targets import Target

#: So many versions are missing below what a row jumped to: no writer counts that far.
GAP = 1_000
#: Versions that a row may have had since it jumped.
VERSIONS_MAX = 1_000


class Jump(NamedTuple):
    """A frozen row, and where it came from."""

    #: Where it stands.
    key: CellKey
    #: The ref key that it is to have; None: versions lead up to where it stands, so it did not jump.
    to: int | None
    #: Those that are forgotten, the highest first.
    jumped: tuple[int, ...]
    #: Whether nothing is known below `to`.
    is_first: bool


def jump_of(column: MappedColumn, key: CellKey, known: Sequence[int]) -> Jump:
    """`known`: the ref keys of the row below this one, the highest first; at most `VERSIONS_MAX` of them."""
    jumped = [key.ref_key]
    for ref_key in known:
        if jumped[-1] - ref_key >= GAP:
            return Jump(key, ref_key + 1, tuple(jumped), is_first=False)
        jumped.append(ref_key)
    first = column.compose(column.split(key.ref_key)[0], 0 if column.ref_key.kind is RefKeyKind.CHILD else 1)
    if len(known) < VERSIONS_MAX and jumped[-1] - first >= GAP:
        return Jump(key, first, tuple(jumped), is_first=True)
    return Jump(key, None, tuple(jumped), is_first=False)


class Frozen:
    """While Postgres is the authority."""

    def __init__(
        self,
        legacy: PostgresBackend,
        mirror: Datastore | None,
        repairing: Repairing,
        audit: AuditLog,
        carry: Callable[[], object],
    ) -> None:
        self._legacy = legacy
        #: As a copier; None: nothing is mirrored yet.
        self._mirror = mirror
        self._repairing = repairing
        self._audit = audit
        self._carry = carry

    def find(self) -> list[Jump]:
        """Read all rows of the mapped tables, and say of each frozen one where it came from. Changes nothing."""
        columns = self._legacy.layout.columns
        return [jump_of(columns[key.column_name], key, self._known_below(key)) for key in self._legacy.frozen_rows()]

    def _known_below(self, key: CellKey) -> list[int]:
        """What either store has of the row: Postgres' log ends somewhere."""
        column = self._legacy.layout.columns[key.column_name]
        stores: list[PostgresBackend | Datastore] = [
            self._legacy,
            *([self._mirror] if self._mirror is not None else []),
        ]
        found = set(self._legacy.replaced(key, VERSIONS_MAX))
        for store in stores:
            found.update(store.get_ref_keys(key.row_key, key.column_name, before=key.ref_key, limit=VERSIONS_MAX))
        if column.ref_key.kind is RefKeyKind.CHILD:
            number = column.split(key.ref_key)[0]
            found = {ref_key for ref_key in found if column.split(ref_key)[0] == number}
        return sorted(found, reverse=True)[:VERSIONS_MAX]

    def lower(self, jump: Jump) -> TargetOutcome | None:
        """Give it the version that it is to have, here and in the mirror; None: nothing is mirrored yet."""
        if jump.to is None:
            raise StaysFrozen(
                f"({jump.key.row_key}, {jump.key.column_name}) has used up its versions: none of the last is missing.",
                hint="Insert the row anew under another key, or its child under another number.",
            )
        self._audit.add(
            "repair.lower_frozen",
            {"row_key": str(jump.key.row_key), "column": jump.key.column_name, "from": jump.jumped, "to": jump.to},
        )
        self._legacy.lower(jump.key, jump.to, jump.jumped, is_first=jump.is_first)
        return None if self._mirror is None else self._mend_mirror(self._mirror, jump)

    def _mend_mirror(self, mirror: Datastore, jump: Jump) -> TargetOutcome:
        mends, key = mirror.mends.of_job("frozen"), jump.key
        found = mends.find_all([key._replace(ref_key=ref_key) for ref_key in jump.jumped])
        mends.purge_all([raw for raw in found if raw is not None])
        self._carry()
        column = self._legacy.layout.columns[key.column_name]
        child = column.split(key.ref_key)[0] if column.ref_key.kind is RefKeyKind.CHILD else None
        (outcome,) = self._repairing.repair([Target(key.row_key, key.column_name, None, child)])
        return outcome
