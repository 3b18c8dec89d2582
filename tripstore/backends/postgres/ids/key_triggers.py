"""The trigger that gives new rows their key at once, whoever inserts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, under_lock
from tripstore.backends.postgres.ddl.relations import tree
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.layout.layout import quoted
from tripstore.backends.postgres.tables import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

# BEFORE triggers run in the order of their names: after the company's, which may set the id, and before those of
# capture, which need the key.
FILL_TRIGGER = "zz_tripstore_0_uuid"
MOVE_TRIGGER = "zz_tripstore_0_uuid_moved"

_TRIGGERS = """\
SELECT t.tgrelid::int8, t.tgname::text, t.tgenabled::text, t.tgfoid = %s::int8 FROM pg_trigger t
 WHERE t.tgrelid = ANY (%s::int8[]::oid[]) AND t.tgname = ANY (%s)"""
_STANDS = "SELECT 1 FROM pg_trigger t WHERE t.tgrelid = %s::int8::oid AND t.tgname = ANY (%s)"
_FUNCTION = """\
SELECT p.oid::int8, p.prosrc, p.prosecdef, p.proconfig::text
 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %s AND p.proname = %s AND p.pronargs = 0"""
_SEARCH_PATH = '{"search_path=pg_catalog, pg_temp"}'


@dataclass(frozen=True, slots=True)
class FillNewRows:
    """A trigger that gives each new row its key, whoever inserts it; installed before old rows are filled.

    Child rows that are moved to another parent while capture does not refuse it yet get the new one's. The parent's
    rows keep theirs. With a BEFORE UPDATE trigger Postgres locks a row before it checks NOT NULL: so an UPDATE of a
    snapshot from before the back-fill fails with 40001, as services expect, and not for a NULL that no service wrote.
    """

    column: KeyColumn
    patience: Patience = PATIENT

    @property
    def title(self) -> str:
        return f"{self.column.title}: give it to new rows"

    def is_done(self, connection: Connection) -> bool:
        if not self.column.needs_filling(connection):
            return True
        return self._has_function(connection) and not self._missing(connection)

    def statements(self) -> Sequence[str]:
        return [self._function_sql(is_parent_ours=True), *self._trigger_statements(set(self._trigger_names))]

    def apply(self, connection: Connection, progress: Progress) -> None:
        rows(connection, f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        rows(connection, self._function_sql(is_parent_ours=self.column.is_parent_ours(connection)))
        reach("ids.function_installed")
        missing = self._missing(connection)
        if missing:
            # It waits for all who write, so every row that comes later meets the trigger.
            statements = self._trigger_statements(set(missing.values()))
            statements += [
                f"ALTER TABLE {relation.name.sql} ENABLE ALWAYS TRIGGER {trigger}"
                for relation in tree(connection, self.column.table)[1:]
                for trigger in self._trigger_names
            ]
            under_lock(connection, self.column.table, "SHARE ROW EXCLUSIVE", statements, self.patience)
        reach("ids.trigger_installed")

    def revert(self, connection: Connection) -> None:
        table = self.column.table
        drops = [f"DROP TRIGGER IF EXISTS {name} ON {table.sql}" for name in (FILL_TRIGGER, MOVE_TRIGGER)]
        drops.append(f"DROP FUNCTION IF EXISTS {self._function_name}()")
        under_lock(connection, table, "ACCESS EXCLUSIVE", drops, self.patience)

    def stands(self, connection: Connection) -> bool:
        """Whether any of it is there."""
        oid = tree(connection, self.column.table)[0].oid
        return bool(rows(connection, _STANDS, (oid, [FILL_TRIGGER, MOVE_TRIGGER])))

    @property
    def _function_name(self) -> str:
        return f"{SCHEMA}.{quoted(self.column.function)}"

    @property
    def _trigger_names(self) -> tuple[str, ...]:
        return FILL_TRIGGER, MOVE_TRIGGER

    def _body(self, *, is_parent_ours: bool) -> str:
        value = self.column.value_sql("NEW", is_parent_ours=is_parent_ours)
        return f"\nBEGIN\n  NEW.{quoted(self.column.uuid)} := {value};\n  RETURN NEW;\nEND "

    def _function_sql(self, *, is_parent_ours: bool) -> str:
        body = self._body(is_parent_ours=is_parent_ours)
        return (
            f"CREATE OR REPLACE FUNCTION {self._function_name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"SET search_path = pg_catalog, pg_temp AS $tripstore${body}$tripstore$"
        )

    def _trigger_statements(self, names: set[str]) -> list[str]:
        """Create them, or switch them on; dropping one first would need a stronger lock."""
        return [statement for name in sorted(names) for statement in self._create(name)]

    def _create(self, name: str) -> Iterator[str]:
        uuid, number = quoted(self.column.uuid), quoted(self.column.id)
        if name == FILL_TRIGGER:
            when, condition = "INSERT", f"NEW.{uuid} IS NULL"
        elif not self.column.is_child:
            when, condition = f"UPDATE OF {uuid}", f"NEW.{uuid} IS NULL"
        else:
            when = f"UPDATE OF {number}"
            condition = f"NEW.{number} IS DISTINCT FROM OLD.{number} AND NEW.{uuid} IS NOT DISTINCT FROM OLD.{uuid}"
        table = self.column.table.sql
        yield (
            f"CREATE OR REPLACE TRIGGER {name} BEFORE {when} ON {table} FOR EACH ROW "
            f"WHEN ({condition}) EXECUTE FUNCTION {self._function_name}()"
        )
        yield f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}"

    def _has_function(self, connection: Connection) -> bool:
        is_ours = self.column.is_parent_ours(connection)
        found = rows(connection, _FUNCTION, (SCHEMA, self.column.function))
        expected = (self._body(is_parent_ours=is_ours), True, _SEARCH_PATH)
        return bool(found) and tuple(found[0][1:]) == expected

    def _missing(self, connection: Connection) -> dict[tuple[int, str], str]:
        """Triggers that are not there or not always on, by relation and name."""
        function = rows(connection, _FUNCTION, (SCHEMA, self.column.function))
        oids = [relation.oid for relation in tree(connection, self.column.table)]
        parameters = (function[0][0] if function else 0, oids, list(self._trigger_names))
        found = {
            (oid, name)
            for oid, name, enabled, is_ours in rows(connection, _TRIGGERS, parameters)
            if enabled == "A" and is_ours
        }
        return {(oid, name): name for oid in oids for name in self._trigger_names if (oid, name) not in found}
