"""`MoveNotes`: while a walk by blocks goes on, each UPDATE that writes a row into another block notes its row key.

Capture logs no UPDATE that leaves all mapped columns as they were. It may bring a row from a block that is still to be
read to one that was read, and the walk would never see the row. What is noted is copied by its key at last.

CREATE TRIGGER waits for the transactions that are writing its table, so each row that moves after it returned is noted,
by the transaction that moves it.

Their table is unlogged, so no publication has it: a subscriber of FOR ALL TABLES would stop at the first row of a table
that it lacks, and its slot would keep WAL. Postgres empties such a table after a crash, and on a server that is
promoted; then the row that was first in it is gone, too, and all tables are read by row keys.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID, uuid4

from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.functions.function import SEARCH_PATH, Function
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger, enable_always
from tripstore.backends.postgres.capture.names import WALKING, WALKS, in_schema, literal
from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.ddl.ddl import Patience, under_lock
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import Layout, TableName, quoted
from tripstore.backends.postgres.wire.connections import rows

logger = logging.getLogger(__name__)

NAME = "walk_"
#: So many are noted, and no more: of a walk that its workers forgot no table of ours grows for ever.
NOTES_MAX = 10_000_000
#: What a function says of itself of a walk that ended, when its trigger could not be dropped.
ENDED = "tripstore: of a walk by blocks that ended"
#: A walk is worth no longer wait: without it rows are copied by their keys.
PATIENCE = Patience(give_up_seconds=20.0)

#: Before all others; it is of no row.
FIRST_NOTE = 0
# One packet, so one transaction: a table that does not say what it is, is never found again. The sequence is logged, as
# that of an unlogged serial column is not: on a server that is promoted that one holds nothing, and each UPDATE of a
# service's would fail that asks it for a number.
_TABLE = """
CREATE SEQUENCE {sequence};
CREATE UNLOGGED TABLE {table} (id bigint PRIMARY KEY, row_key uuid NOT NULL);
ALTER SEQUENCE {sequence} OWNED BY {table}.id;
INSERT INTO {table} (id, row_key) VALUES ({first}, '00000000-0000-0000-0000-000000000000');
COMMENT ON TABLE {table} IS {comment}"""
#: A system column has no name in a list of OLD's and NEW's; a block is the first number of a place.
_OTHER_BLOCK = "(OLD.ctid::text::point)[0] <> (NEW.ctid::text::point)[0]"
_NOW = "SELECT pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()))::bigint"
_TABLES = """
SELECT c.relname::text FROM pg_catalog.pg_class AS c
CROSS JOIN LATERAL pg_catalog.regexp_match(pg_catalog.obj_description(c.oid, 'pg_class'), %s) AS since
WHERE c.relnamespace = pg_catalog.to_regnamespace('tripstore') AND c.relkind = 'r'
AND since[1]::float8 <= pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) - %s::float8 ORDER BY 1
"""
_TRIGGERS = """
SELECT s.nspname, c.relname FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace
WHERE t.tgname = %s AND t.tgparentid = 0 AND NOT t.tgisinternal ORDER BY 1, 2
"""
_FUNCTIONS = """
SELECT p.proname::text FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = pg_catalog.to_regnamespace('tripstore') AND pg_catalog.starts_with(p.proname, %s) ORDER BY 1
"""


class MoveNotes(NamedTuple):
    """Of one walk. All that it makes has its name, `walk_…`."""

    name: str

    @classmethod
    def new(cls) -> MoveNotes:
        return cls(f"{NAME}{uuid4().hex[:12]}")

    @property
    def trigger(self) -> str:
        return f"{WALKING}{self.name.removeprefix(NAME)}"

    @property
    def table(self) -> str:
        return in_schema(self.name)

    @property
    def sequence(self) -> str:
        return in_schema(f"{self.name}_id_seq")

    def make(self, connection: Connection, layout: Layout, patience: Patience = PATIENCE) -> None:
        """From now on moves are noted. `LegacyUnavailable`: a table is not to be had; nothing is left then."""
        try:
            ((now,),) = rows(connection, _NOW)
            comment = literal(f"{WALKS}, since {now}")
            rows(connection, _TABLE.format(table=self.table, sequence=self.sequence, first=FIRST_NOTE, comment=comment))
            reach("walk.table_made")
            for number, table in enumerate(sorted(layout.tables)):
                reach("walk.before_trigger")
                statements = self._statements(connection, layout, table, number)
                under_lock(connection, table, "SHARE ROW EXCLUSIVE", statements, patience)
        except BaseException:
            self.drop(connection, patience)
            raise
        reach("walk.noted")

    def drop(self, connection: Connection, patience: Patience = PATIENCE) -> None:
        """Note nothing more, and leave nothing. May be repeated.

        Triggers go first, under a lock that no writer is behind. Where they cannot be dropped they do nothing any
        more, and `tripstore schema apply` takes them off; or the next walk, where this role may not even do that.
        """
        try:
            for schema, table in rows(connection, _TRIGGERS, (self.trigger,)):
                name = TableName(schema, table)
                drop = f"DROP TRIGGER IF EXISTS {quoted(self.trigger)} ON {name.sql}"
                under_lock(connection, name, "ACCESS EXCLUSIVE", [drop], patience)
                reach("walk.trigger_dropped")
            for function in self._functions(connection):
                rows(connection, f"DROP FUNCTION IF EXISTS {in_schema(function)}()")
            reach("walk.functions_dropped")
            rows(connection, f"DROP TABLE IF EXISTS {self.table}")
        except (LegacyUnavailable, postgres.InsufficientPrivilege) as error:
            self._leave(connection, str(error))

    def are_kept(self, connection: Connection) -> bool:
        """Whether none was lost: no crash has emptied their table, and it is there."""
        try:
            return bool(rows(connection, f"SELECT EXISTS (SELECT FROM {self.table} WHERE id = {FIRST_NOTE})")[0][0])
        except postgres.UndefinedTable:
            return False

    def are_whole(self, connection: Connection) -> bool:
        """Whether all moves are among them: none was lost, and there was room for each."""
        number = f"SELECT last_value <= {NOTES_MAX} FROM {self.sequence}"
        return self.are_kept(connection) and bool(rows(connection, number)[0][0])

    def page_sql(self, after: int, upto: int | None, limit: int) -> str:
        """Notes by their numbers: the next so many, or those up to a number. A row that moved twice has two."""
        end = f"ORDER BY id LIMIT {limit}" if upto is None else f"AND id <= {upto} ORDER BY id"
        return f"SELECT id, row_key::text FROM {self.table} WHERE id > {after} {end}"

    def _statements(self, connection: Connection, layout: Layout, table: TableName, number: int) -> Sequence[str]:
        """The function and the trigger of one table; should its columns have several row keys, it notes each."""
        uuids = dict.fromkeys(column.uuid for column in layout.columns.values() if column.table == table)
        function = Function(f"{self.name}_{number}", self._body(uuids), SEARCH_PATH)
        trigger = RowTrigger(self.trigger, "AFTER", "UPDATE", function.name, _OTHER_BLOCK)
        leaves = [node.table for node in Shape.read(connection, table).nodes]
        return [
            *function.statements,
            f"COMMENT ON FUNCTION {function.sql} IS {literal(WALKS)}",
            trigger.create(table),
            *(enable_always(self.trigger, leaf) for leaf in leaves),
        ]

    def _body(self, uuids: Iterable[str]) -> str:
        sequence = literal(self.sequence)
        notes = "".join(
            f"""
  IF NEW.{quoted(uuid)} IS NOT NULL THEN
    number := nextval({sequence});
    IF number <= {NOTES_MAX} THEN
      INSERT INTO {self.table} (id, row_key) VALUES (number, NEW.{quoted(uuid)});
    END IF;
  END IF;"""
            for uuid in uuids
        )
        return f"\nDECLARE\n  number bigint;\nBEGIN{notes}\n  RETURN NULL;\nEND"

    def _leave(self, connection: Connection, why: str) -> None:
        extra = {"event": "backfill.notes_left", "trigger": self.trigger}
        logger.warning("the trigger of a walk that ended is left: %s", why, extra=extra)
        with suppress(postgres.InsufficientPrivilege):  # it notes as much as there is room for
            self._silence(connection)

    def _silence(self, connection: Connection) -> None:
        """The table stays: a call that began before may still write to it."""
        for name in self._functions(connection):
            function = Function(name, "BEGIN RETURN NULL; END", SEARCH_PATH)
            for statement in (*function.statements, f"COMMENT ON FUNCTION {function.sql} IS {literal(ENDED)}"):
                rows(connection, statement)

    def _functions(self, connection: Connection) -> list[str]:
        return [name for (name,) in rows(connection, _FUNCTIONS, (f"{self.name}_",))]


def find_notes(connection: Connection, age_seconds: float = 0.0) -> list[MoveNotes]:
    """Those of all walks that anything is left of, and that began so long ago."""
    return [MoveNotes(name) for (name,) in rows(connection, _TABLES, (f"^{WALKS}, since (\\d+)$", age_seconds))]


def row_keys(page: Sequence[Sequence[object]]) -> list[UUID]:
    """Each once, in order."""
    return sorted({UUID(str(key)) for _, key in page})
