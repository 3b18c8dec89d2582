"""How a row that came back gets a version above its tombstone: by an UPDATE in the writer's own name.

The company's triggers on it run as they would run for the writer, with its rights and search_path. For a writer that
may not update the version, or does not see the row it inserted, our own function does it.
"""

from __future__ import annotations

from tripstore.backends.postgres.capture.functions.changes import Changes
from tripstore.backends.postgres.capture.functions.function import SEEING, Function, plain, refuse
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger
from tripstore.backends.postgres.capture.names import LIFTING, function_name, in_schema
from tripstore.backends.postgres.layout.layout import VERSION_BITS, VERSION_MAX, quoted
from tripstore.backends.postgres.sqlstates import BELOW_TOMBSTONE

_FIRST = f"pg_catalog.split_part(pg_catalog.current_setting('{LIFTING}', true), '|', 1)"


class Lifting:
    """`inserted` says what is to be lifted; the next trigger of the same row does it."""

    def __init__(self, changes: Changes) -> None:
        column = changes.column
        assert column.ref_key.version is not None
        self._changes = changes
        self._table = column.table
        self._version = quoted(column.ref_key.version)
        self._n = quoted(column.ref_key.column) if column.ref_key.column else None

    def said(self, floor: str) -> str:
        """What `inserted` says: NEW is to stand above this ref key. Triggers of a lifting may insert rows that came
        back as well: those are lifted first.
        """
        version = f"({floor} & {VERSION_MAX})" if self._n else floor
        rest = f"nullif(current_setting('{LIFTING}', true), '')"
        said = f"concat_ws('|', {self.of('NEW')} || ' ' || {version} + 1, {rest})"
        return f"PERFORM set_config('{LIFTING}', {said}, true);"

    def is_lifted(self, row: str) -> str:
        """Whether this very version of this row is what was said."""
        of = f"{self.of(row)} OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) {row}.{self._version}"
        return f"{_FIRST} OPERATOR(pg_catalog.=) ({of})"

    def lift(self) -> tuple[Function, RowTrigger]:
        """Runs as the writer, under any search_path."""
        changes = self._changes
        same = " AND ".join(f"r.{name} OPERATOR(pg_catalog.=) NEW.{name}" for name in changes.key_columns())
        body = f"""
DECLARE
  lifting pg_catalog.text := pg_catalog.current_setting('{LIFTING}', true);
  target pg_catalog.int8;
  reached pg_catalog.int8;
  rest pg_catalog.int4;
BEGIN
  IF lifting IS NULL OR NOT pg_catalog.starts_with(lifting, {self.of("NEW")} OPERATOR(pg_catalog.||) ' ') THEN
    RETURN NULL;
  END IF;
  target := pg_catalog.split_part({_FIRST}, ' ', 4)::pg_catalog.int8;
  BEGIN
    UPDATE {self._table.sql} AS r SET {self._version} = target
    WHERE {same} AND r.{self._version} OPERATOR(pg_catalog.<) target RETURNING r.{self._version} INTO reached;
  EXCEPTION WHEN insufficient_privilege THEN
    reached := NULL;
  END;
  IF reached IS NULL OR reached OPERATOR(pg_catalog.<) target THEN
    PERFORM {in_schema(self._lifted)}();
  END IF;
  rest := pg_catalog.strpos(lifting OPERATOR(pg_catalog.||) '|', '|') OPERATOR(pg_catalog.+) 1;
  PERFORM pg_catalog.set_config('{LIFTING}', pg_catalog.substr(lifting, rest), true);
  RETURN NULL;
END
"""
        return changes.as_writer("lift", body), changes.after("lift", "INSERT")

    def lifted(self) -> Function:
        """For a writer that cannot. Does nothing to a row that is not below where its life begins."""
        changes = self._changes
        refused = refuse(
            BELOW_TOMBSTONE,
            f"A row of {plain(str(self._table))} came back after its deletion and could not be given version %.",
            "A trigger or policy of the table refuses the UPDATE of its version.",
            "target",
        )
        number = f" AND r.{self._n} = said[3]::bigint" if self._n else ""
        is_row = f"r.{changes.uuid} = said[1]::uuid{number} AND r.{self._version} < target"
        target = f"(said[3]::bigint << {VERSION_BITS} | target)" if self._n else "target"
        body = f"""
DECLARE
  said text[] := string_to_array({_FIRST}, ' ');
  target bigint := said[4]::bigint;
BEGIN
  IF said[2] IS DISTINCT FROM '{changes.part}' THEN
    RETURN;
  END IF;
  UPDATE {self._table.sql} AS r SET {self._version} = target
  WHERE {is_row} AND {changes.begins_above("r")} + 1 = {target};
  IF EXISTS (SELECT FROM {self._table.sql} AS r WHERE {is_row}) THEN
    {refused}
  END IF;
END
"""
        return Function(self._lifted, body, SEEING, returns="void")

    @property
    def _lifted(self) -> str:
        return function_name(self._changes.part, "lifted")

    def of(self, row: str) -> str:
        """Which row it is, in one text."""
        number = f"{row}.{self._n}" if self._n else "0"
        return f"pg_catalog.concat_ws(' ', {row}.{self._changes.uuid}, '{self._changes.part}', {number})"
