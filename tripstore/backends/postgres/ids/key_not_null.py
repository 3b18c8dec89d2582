"""NOT NULL for a column of row keys, without a look at the rows while writers are locked out.

A check that is not valid yet is added, validated while reads and writes go on, and then stands in for the look that
SET NOT NULL would take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, under_lock, without_limit
from tripstore.backends.postgres.ddl.relations import Relation, leaves, tree
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.ids.key_triggers import FillNewRows
from tripstore.backends.postgres.layout.layout import TableName, quoted
from tripstore.backends.postgres.wire.connections import rows

CONSTRAINT = "tripstore_uuid_not_null"

_STATE = "SELECT convalidated FROM pg_constraint WHERE conrelid = %s::int8::oid AND conname = %s"


@dataclass(frozen=True, slots=True)
class SetNotNull:
    """From here on Postgres itself sees to it that every row has its key."""

    column: KeyColumn
    patience: Patience = PATIENT

    @property
    def title(self) -> str:
        return f"{self.column.title}: NOT NULL"

    def is_done(self, connection: Connection) -> bool:
        return self.column.is_not_null(connection) and self._check(connection, self._root(connection)) is None

    def statements(self) -> Sequence[str]:
        return [self._add_sql, _validate_sql(self.column.table), *self._set_statements]

    def apply(self, connection: Connection, progress: Progress) -> None:
        root = self._root(connection)
        if not self.column.is_not_null(connection):
            if self._check(connection, root) is None:
                under_lock(connection, self.column.table, "ACCESS EXCLUSIVE", [self._add_sql], self.patience)
            reach("ids.check_added")
            self._validate(connection, progress)
            reach("ids.check_validated")
        under_lock(connection, self.column.table, "ACCESS EXCLUSIVE", self._set_statements, self.patience)
        reach("ids.not_null_set")

    def revert(self, connection: Connection) -> None:
        """Undo it where it was ours: there our trigger fills the column."""
        root = self._root(connection)
        undo = [f"ALTER TABLE {self.column.table.sql} DROP CONSTRAINT IF EXISTS {CONSTRAINT}"]
        if FillNewRows(self.column).stands(connection):
            undo.append(f"ALTER TABLE {self.column.table.sql} ALTER COLUMN {quoted(self.column.uuid)} DROP NOT NULL")
        elif self._check(connection, root) is None:
            return
        under_lock(connection, self.column.table, "ACCESS EXCLUSIVE", undo, self.patience)

    @property
    def _add_sql(self) -> str:
        return (
            f"ALTER TABLE {self.column.table.sql} ADD CONSTRAINT {CONSTRAINT} "
            f"CHECK ({quoted(self.column.uuid)} IS NOT NULL) NOT VALID"
        )

    @property
    def _set_statements(self) -> list[str]:
        # Two statements: within one, the constraint would be dropped before it can prove anything.
        table = self.column.table.sql
        return [
            f"ALTER TABLE {table} ALTER COLUMN {quoted(self.column.uuid)} SET NOT NULL",
            f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {CONSTRAINT}",
        ]

    def _root(self, connection: Connection) -> Relation:
        return tree(connection, self.column.table)[0]

    def _check(self, connection: Connection, relation: Relation) -> bool | None:
        """Whether the check is valid; None: there is none."""
        found = rows(connection, _STATE, (relation.oid, CONSTRAINT))
        return bool(found[0][0]) if found else None

    def _validate(self, connection: Connection, progress: Progress) -> None:
        """Leaf by leaf, so that a run that is killed goes on with the next one; the root at last, at no cost."""
        relations = leaves(connection, self.column.table)
        for done, leaf in enumerate(relations):
            progress(done, len(relations))
            self._validate_one(connection, leaf)
        self._validate_one(connection, self._root(connection))
        progress(len(relations), len(relations))

    def _validate_one(self, connection: Connection, relation: Relation) -> None:
        """It reads all rows, under a lock that keeps no session from reading or writing them: it may take its time."""
        if self._check(connection, relation):
            return
        try:
            without_limit(connection, relation.name, _validate_sql(relation.name), self.patience)
        except postgres.CheckViolation as error:
            # Left as it is, it would refuse updates of these rows.
            drop = f"ALTER TABLE {self.column.table.sql} DROP CONSTRAINT {CONSTRAINT}"
            under_lock(connection, self.column.table, "ACCESS EXCLUSIVE", [drop], self.patience)
            raise LegacyUnavailable(
                f"{relation.name} has rows without {self.column.uuid} again (an attached partition?).",
                hint="Run the same command again: it fills them.",
            ) from error


def _validate_sql(table: TableName) -> str:
    return f"ALTER TABLE {table.sql} VALIDATE CONSTRAINT {CONSTRAINT}"
