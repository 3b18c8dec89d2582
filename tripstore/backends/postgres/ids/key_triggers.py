"""The trigger that gives new rows of any writer their key at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, our_name, under_lock
from tripstore.backends.postgres.ddl.relations import tree
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.layout.layout import quoted
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

# BEFORE triggers run in the order of their names: after the company's, which may set the id, and before those of
# capture, which need the key.
FILL_TRIGGER = "zz_tripstore_0_uuid"
MOVE_TRIGGER = "zz_tripstore_0_uuid_moved"

_TRIGGERS = """\
SELECT t.tgrelid::int8, t.tgname::text, t.tgenabled::text, t.tgfoid = %s::int8 FROM pg_trigger t
 WHERE t.tgrelid = ANY (%s::int8[]::oid[]) AND t.tgname = ANY (%s)"""
# Of the triggers with these names each, and whether it is about the column: Postgres knows what a condition names.
_STANDING = """\
SELECT t.tgname::text, EXISTS (SELECT FROM pg_depend d
  JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
  WHERE d.classid = 'pg_trigger'::regclass AND d.objid = t.oid AND d.refclassid = 'pg_class'::regclass
   AND d.refobjid = t.tgrelid AND a.attname = %s)
 FROM pg_trigger t WHERE t.tgrelid = %s::int8::oid AND t.tgname = ANY (%s)"""
_FUNCTION = """\
SELECT p.oid::int8, p.prosrc, p.prosecdef, p.proconfig::text
 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %s AND p.proname = %s AND p.pronargs = 0"""
_SEARCH_PATH = '{"search_path=pg_catalog, pg_temp"}'


class KeyTriggerNames(NamedTuple):
    """What the triggers and their function are called."""

    fill: str
    move: str
    function: str

    @property
    def triggers(self) -> tuple[str, str]:
        return self.fill, self.move


@dataclass(frozen=True, slots=True)
class FillNewRows:
    """A trigger that gives each new row of any writer its key; installed before old rows are filled.

    The layout before may have had its keys in another column of the table. Both are filled, by triggers with names of
    their own, until nothing goes by that layout any more.

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
        names = self._names(connection)
        return self._has_function(connection, names) and not self._missing(connection, names)

    def statements(self) -> Sequence[str]:
        names = self._usual
        return [self._function_sql(names, is_parent_ours=True), *self._trigger_statements(names, names.triggers)]

    def apply(self, connection: Connection, progress: Progress) -> None:
        rows(connection, f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        names = self._names(connection)
        rows(connection, self._function_sql(names, is_parent_ours=self.column.is_parent_ours(connection)))
        reach("ids.function_installed")
        missing = self._missing(connection, names)
        if missing:
            # It waits for all writers, so every row that comes later meets the trigger.
            statements = self._trigger_statements(names, set(missing.values()))
            statements += [
                f"ALTER TABLE {relation.name.sql} ENABLE ALWAYS TRIGGER {_plain(trigger)}"
                for relation in tree(connection, self.column.table)[1:]
                for trigger in names.triggers
            ]
            under_lock(connection, self.column.table, "SHARE ROW EXCLUSIVE", statements, self.patience)
        reach("ids.trigger_installed")

    def revert(self, connection: Connection) -> None:
        table, names = self.column.table, self._names(connection)
        drops = [f"DROP TRIGGER IF EXISTS {_plain(name)} ON {table.sql}" for name in names.triggers]
        drops.append(f"DROP FUNCTION IF EXISTS {_function(names)}()")
        under_lock(connection, table, "ACCESS EXCLUSIVE", drops, self.patience)

    def stands(self, connection: Connection) -> bool:
        """Whether any of it is there."""
        return any(self._standing(connection, self._names(connection)).values())

    @property
    def _usual(self) -> KeyTriggerNames:
        return KeyTriggerNames(FILL_TRIGGER, MOVE_TRIGGER, self.column.function)

    @property
    def _own(self) -> KeyTriggerNames:
        """Where the usual ones are another column's."""
        uuid = self.column.uuid
        fill, move = (our_name(name, "of", uuid) for name in (FILL_TRIGGER, MOVE_TRIGGER))
        return KeyTriggerNames(fill, move, our_name(self.column.function, "of", uuid))

    def _names(self, connection: Connection) -> KeyTriggerNames:
        usual, own = (self._standing(connection, names) for names in (self._usual, self._own))
        return self._own if own or not all(usual.values()) else self._usual

    def _standing(self, connection: Connection, names: KeyTriggerNames) -> dict[str, bool]:
        """The triggers that there are, by whether they are about this column."""
        oid = tree(connection, self.column.table)[0].oid
        return dict(rows(connection, _STANDING, (self.column.uuid, oid, list(names.triggers))))

    def _body(self, *, is_parent_ours: bool) -> str:
        value = self.column.value_sql("NEW", is_parent_ours=is_parent_ours)
        return f"\nBEGIN\n  NEW.{quoted(self.column.uuid)} := {value};\n  RETURN NEW;\nEND "

    def _function_sql(self, names: KeyTriggerNames, *, is_parent_ours: bool) -> str:
        body = self._body(is_parent_ours=is_parent_ours)
        return (
            f"CREATE OR REPLACE FUNCTION {_function(names)}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
            f"SET search_path = pg_catalog, pg_temp AS $tripstore${body}$tripstore$"
        )

    def _trigger_statements(self, names: KeyTriggerNames, wanted: Collection[str]) -> list[str]:
        """Create them, or switch them on; dropping one first would need a stronger lock."""
        return [statement for name in sorted(wanted) for statement in self._create(name, names)]

    def _create(self, name: str, names: KeyTriggerNames) -> Iterator[str]:
        uuid, number = quoted(self.column.uuid), quoted(self.column.id)
        if name == names.fill:
            when, condition = "INSERT", f"NEW.{uuid} IS NULL"
        elif not self.column.is_child:
            when, condition = f"UPDATE OF {uuid}", f"NEW.{uuid} IS NULL"
        else:
            when = f"UPDATE OF {number}"
            condition = f"NEW.{number} IS DISTINCT FROM OLD.{number} AND NEW.{uuid} IS NOT DISTINCT FROM OLD.{uuid}"
        table, trigger = self.column.table.sql, _plain(name)
        yield (
            f"CREATE OR REPLACE TRIGGER {trigger} BEFORE {when} ON {table} FOR EACH ROW "
            f"WHEN ({condition}) EXECUTE FUNCTION {_function(names)}()"
        )
        yield f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}"

    def _has_function(self, connection: Connection, names: KeyTriggerNames) -> bool:
        is_ours = self.column.is_parent_ours(connection)
        found = rows(connection, _FUNCTION, (SCHEMA, names.function))
        expected = (self._body(is_parent_ours=is_ours), True, _SEARCH_PATH)
        return bool(found) and tuple(found[0][1:]) == expected

    def _missing(self, connection: Connection, names: KeyTriggerNames) -> dict[tuple[int, str], str]:
        """Triggers that are not there or not always on, by relation and name."""
        function = rows(connection, _FUNCTION, (SCHEMA, names.function))
        oids = [relation.oid for relation in tree(connection, self.column.table)]
        parameters = (function[0][0] if function else 0, oids, list(names.triggers))
        found = {
            (oid, name)
            for oid, name, enabled, is_ours in rows(connection, _TRIGGERS, parameters)
            if enabled == "A" and is_ours
        }
        return {(oid, name): name for oid in oids for name in names.triggers if (oid, name) not in found}


def _function(names: KeyTriggerNames) -> str:
    return f"{SCHEMA}.{quoted(names.function)}"


def _plain(name: str) -> str:
    """The usual names stand in the company's revisions as they are."""
    return name if name in (FILL_TRIGGER, MOVE_TRIGGER) else quoted(name)
