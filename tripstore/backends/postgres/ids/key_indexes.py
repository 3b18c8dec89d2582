"""The unique index that reads per row key use: (row key[, number]), built while reads and writes go on.

Of a partitioned table it is declared on the table only, built leaf by leaf, and attached. Postgres wants the columns
that a table is partitioned by in each of its unique indexes; they come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, our_name, patiently, under_lock
from tripstore.backends.postgres.ddl.index_builds import build_unique, drop_index
from tripstore.backends.postgres.ddl.relations import Relation, tree
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.layout.layout import TableName, quoted
from tripstore.backends.postgres.wire.connections import rows

# Every unique index that refuses at once, whole and valid, with its columns.
_UNIQUE = """\
SELECT ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
   JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
   WHERE k.place <= i.indnkeyatts ORDER BY k.place)
 FROM pg_index i WHERE i.indrelid = %s::int8::oid AND i.indisunique AND i.indimmediate AND i.indisvalid
  AND i.indpred IS NULL AND i.indexprs IS NULL"""
_PARTITIONED_BY = """\
SELECT a.attname::text FROM pg_partitioned_table p, unnest(p.partattrs::int2[]) WITH ORDINALITY AS k(attnum, place)
 LEFT JOIN pg_attribute a ON a.attrelid = %s::int8::oid AND a.attnum = k.attnum
 WHERE p.partrelid = %s::int8::oid ORDER BY k.place"""
_EXISTS = """\
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s)"""
# The index of a partition that belongs to an index of the table above it.
_ATTACHED = """\
SELECT EXISTS (SELECT FROM pg_inherits h JOIN pg_index leaf ON leaf.indexrelid = h.inhrelid
 JOIN pg_class p ON p.oid = h.inhparent JOIN pg_namespace n ON n.oid = p.relnamespace
 WHERE leaf.indrelid = %s::int8::oid AND n.nspname = %s AND p.relname = %s)"""


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """One row per row key, or per row key and number; and the way to it."""

    column: KeyColumn
    patience: Patience = PATIENT

    @property
    def title(self) -> str:
        return f"{self.column.table}: unique index on ({', '.join(self.column.index_columns)})"

    def is_done(self, connection: Connection) -> bool:
        """Whether there is one, of whatever name: the company's own serves as well."""
        root = tree(connection, self.column.table)[0]
        wanted = self._columns(connection)
        return any(_serves(found, wanted) for (found,) in rows(connection, _UNIQUE, (root.oid,)))

    def statements(self) -> Sequence[str]:
        name, columns = self._name(self.column.table), _list(self.column.index_columns)
        return [f"CREATE UNIQUE INDEX CONCURRENTLY {quoted(name)} ON {self.column.table.sql} ({columns})"]

    def apply(self, connection: Connection, progress: Progress) -> None:
        relations = tree(connection, self.column.table)
        columns = _list(self._columns(connection))
        for relation in relations:
            if relation.is_partitioned:
                self._declare(connection, relation, columns)
        reach("ids.index_declared")
        for relation in relations:
            if not relation.is_partitioned and not self._is_attached(connection, relation, relations):
                build_unique(connection, relation, self._name(relation.name), columns, progress, self.patience)
                reach("ids.leaf_indexed")
        for relation in reversed(relations[1:]):  # the lowest first: an index is valid when all below it are
            self._attach(connection, relation, relations)
        reach("ids.index_built")

    def revert(self, connection: Connection) -> None:
        """Drop ours; one of the company's has another name."""
        relations = tree(connection, self.column.table)
        root = relations[0]
        name = self._name(root.name)
        if root.is_partitioned:
            drop = f"DROP INDEX IF EXISTS {quoted(root.name.schema)}.{quoted(name)}"
            under_lock(connection, root.name, "ACCESS EXCLUSIVE", [drop], self.patience)
        for relation in relations:
            if not relation.is_partitioned:
                drop_index(connection, relation.name, self._name(relation.name), self.patience)

    def _name(self, table: TableName) -> str:
        return our_name("tripstore", table.name, *self.column.index_columns)

    def _columns(self, connection: Connection) -> tuple[str, ...]:
        wanted = list(self.column.index_columns)
        for relation in tree(connection, self.column.table):
            if relation.is_partitioned:
                for (name,) in rows(connection, _PARTITIONED_BY, (relation.oid, relation.oid)):
                    if name is None:
                        raise InvalidLayout(
                            f"{relation.name} is partitioned by an expression: it can have no unique index.",
                            hint="Map a table that is partitioned by columns, or not at all.",
                        )
                    wanted.append(name)
        return tuple(dict.fromkeys(wanted))

    def _declare(self, connection: Connection, relation: Relation, columns: str) -> None:
        name = self._name(relation.name)
        if not rows(connection, _EXISTS, (relation.name.schema, name))[0][0]:
            create = f"CREATE UNIQUE INDEX {quoted(name)} ON ONLY {relation.name.sql} ({columns})"
            under_lock(connection, relation.name, "SHARE", [create], self.patience, only=True)

    def _is_attached(self, connection: Connection, relation: Relation, relations: Sequence[Relation]) -> bool:
        above = next((each for each in relations if each.oid == relation.parent_oid), None)
        if above is None:
            return False
        names = (above.name.schema, self._name(above.name))
        return bool(rows(connection, _ATTACHED, (relation.oid, *names))[0][0])

    def _attach(self, connection: Connection, relation: Relation, relations: Sequence[Relation]) -> None:
        if self._is_attached(connection, relation, relations):
            return
        above = next(each.name for each in relations if each.oid == relation.parent_oid)
        index = f"{quoted(above.schema)}.{quoted(self._name(above))}"
        partition = f"{quoted(relation.name.schema)}.{quoted(self._name(relation.name))}"
        # It locks the index of the partition, which every reader of the partition has locked too.
        attach = f"ALTER INDEX {index} ATTACH PARTITION {partition}"
        patiently(connection, relation.name, "ACCESS EXCLUSIVE", [attach], self.patience)
        reach("ids.leaf_attached")


def _serves(found: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether an index on these columns holds the same promise and leads with the row key."""
    return found[0] == wanted[0] and set(found) == set(wanted)


def _list(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))
