"""`KeyColumn`: the physical column of one table that holds row keys, how the key of a row is found; and its step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, our_name, under_lock
from tripstore.backends.postgres.ddl.relations import PhysicalColumn, find_column, tree
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.ids.ids import uuid_of_id_sql
from tripstore.backends.postgres.layout.layout import RowKeySource, TableName, quoted

#: The comment of a column that we added. A company that removes the comment takes the column over: it is never dropped
#: again.
OURS = "Added by tripstore: the row key."


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Where the row keys of one table are. In the parent they are made of its id, in a child looked up by it."""

    table: TableName
    uuid: str
    id: str  #: The id itself, or in a child the column that points to it.
    source: RowKeySource
    number: str | None = None  #: What tells child rows of one key apart.

    @property
    def is_child(self) -> bool:
        return self.table != self.source.table

    @property
    def title(self) -> str:
        return f"{self.table}.{self.uuid}"

    @property
    def function(self) -> str:
        return our_name(f"{self.table.schema}.{self.table.name}.uuid")

    @property
    def index_columns(self) -> tuple[str, ...]:
        """What reads per row key look for."""
        return (self.uuid,) if self.number is None else (self.uuid, self.number)

    def find(self, connection: Connection) -> PhysicalColumn | None:
        return find_column(connection, tree(connection, self.table)[0], self.uuid)

    def is_not_null(self, connection: Connection) -> bool:
        column = self.find(connection)
        return column is not None and column.is_not_null

    def needs_filling(self, connection: Connection) -> bool:
        """Whether rows may come without a key: not so where the company itself sees to it."""
        column = self.find(connection)
        return column is None or not column.is_not_null or column.comment == OURS

    def value_sql(self, row: str, *, is_parent_ours: bool) -> str:
        """The key that a row without one gets; `row` is its alias, or NEW.

        A parent that this snapshot does not see, or that is still without a UUID, will have the one of its id; unless
        the company gives UUIDs itself: then it is unknown, and NULL.
        """
        number = f"{row}.{quoted(self.id)}"
        if not self.is_child:
            return uuid_of_id_sql(self.source, number)
        table, key, uuid = self.source.table.sql, quoted(self.source.id), f"parent.{quoted(self.source.uuid)}"
        computed = uuid_of_id_sql(self.source, number)
        if is_parent_ours:
            return f"COALESCE((SELECT {uuid} FROM {table} AS parent WHERE parent.{key} = {number}), {computed})"
        return f"(SELECT COALESCE({uuid}, {computed}) FROM {table} AS parent WHERE parent.{key} = {number})"

    @property
    def match_sql(self) -> str:
        """Counts all rows; those without a key, or with another one than their parent; those without a parent."""
        uuid, number = quoted(self.uuid), quoted(self.id)
        if not self.is_child:
            return f"SELECT count(*), count(*) FILTER (WHERE {uuid} IS NULL), 0 FROM {self.table.sql}"
        key, parent = quoted(self.source.id), quoted(self.source.uuid)
        return (
            f"SELECT count(*), count(*) FILTER (WHERE t.{uuid} IS NULL OR t.{uuid} <> parent.{parent}),"
            f" count(*) FILTER (WHERE t.{number} IS NOT NULL AND parent.{key} IS NULL)"
            f" FROM {self.table.sql} AS t LEFT JOIN {self.source.table.sql} AS parent ON parent.{key} = t.{number}"
        )

    def is_ours(self, connection: Connection) -> bool:
        """Whether `schema apply` added and filled it."""
        column = self.find(connection)
        return column is not None and column.comment == OURS

    def find_in_parent(self, connection: Connection) -> PhysicalColumn | None:
        return find_column(connection, tree(connection, self.source.table)[0], self.source.uuid)

    def is_parent_ours(self, connection: Connection) -> bool:
        column = self.find_in_parent(connection)
        return column is not None and column.comment == OURS


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A nullable column without a default: Postgres only writes it into the catalogue."""

    column: KeyColumn
    patience: Patience = PATIENT

    @property
    def title(self) -> str:
        return f"{self.column.title}: add the column"

    def is_done(self, connection: Connection) -> bool:
        found = self.column.find(connection)
        if found is not None and not found.is_uuid:
            raise InvalidLayout(
                f"{self.column.title} is {found.type_name}, not uuid.",
                hint="Name another column: one that is not there is added.",
            )
        return found is not None

    def statements(self) -> Sequence[str]:
        table, name = self.column.table.sql, quoted(self.column.uuid)
        return [
            f"ALTER TABLE {table} ADD COLUMN {name} uuid",
            f"COMMENT ON COLUMN {table}.{name} IS '{OURS}'",
        ]

    def apply(self, connection: Connection, progress: Progress) -> None:
        under_lock(connection, self.column.table, "ACCESS EXCLUSIVE", self.statements(), self.patience)
        reach("ids.column_added")

    def revert(self, connection: Connection) -> None:
        """Drop it, unless it is the company's."""
        found = self.column.find(connection)
        if found is not None and found.comment == OURS:
            statement = f"ALTER TABLE {self.column.table.sql} DROP COLUMN {quoted(self.column.uuid)}"
            under_lock(connection, self.column.table, "ACCESS EXCLUSIVE", [statement], self.patience)
