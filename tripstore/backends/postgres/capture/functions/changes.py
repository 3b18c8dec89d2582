"""The parts of capture's functions that write changes and tombs: SQL for one mapped column."""

from __future__ import annotations

from collections.abc import Mapping

from tripstore.backends.postgres.capture.functions.function import PINNED, Function, plain, refuse, settings_for
from tripstore.backends.postgres.capture.functions.gate import IS_MIRROR, row_gate
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger
from tripstore.backends.postgres.capture.names import LAST, LOGGED, function_name, literal, slug
from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.layout.layout import (
    LEGACY_ID,
    DeletePolicy,
    Layout,
    MappedColumn,
    RefKeyKind,
    quoted,
)
from tripstore.backends.postgres.layout.layout import VERSION_MAX as LAST_VERSION
from tripstore.backends.postgres.names import NO_FLOOR, ORIGIN
from tripstore.backends.postgres.sqlstates import COLUMN_GONE, SERIALIZATION_FAILURE

#: The writers that send versions of their own.
OURS = "said IN ('facade', 'reverse')"
#: Before the block that holds versions of others to the next one, or to where a row that came back begins.
JUMP = "-- no session can say by itself where a row begins"
#: Before the statement that says where a row begins that moves to another partition.
KEEP_MOVED = "-- it begins there where it ends here"
#: Of one function, as Postgres has it.
ARGUMENTS_MAX = 90
KEEP_FACTS = "INSERT INTO tripstore.kept (row_key, column_name, n, ref_key)"
#: Whether the session may do what the facade does. A session may set any setting: what it says alone proves nothing.
MAY_SAY = "pg_catalog.has_table_privilege(SESSION_USER, 'tripstore.cell', 'INSERT')"
#: What a change has as its origin when the session says one and may not. Such a change counts as a service's own SQL.
FORGED = "forged"
_CLAIMED = f"current_setting('{ORIGIN}', true)"
SAID = f"CASE WHEN coalesce({_CLAIMED}, '') = '' OR {MAY_SAY} THEN {_CLAIMED} ELSE '{FORGED}' END"
#: The same in a function that runs as the writer, under any search_path. NULL: the session's claim does not count.
_CLAIMED_BY_WRITER = f"pg_catalog.current_setting('{ORIGIN}', true)"
SAID_BY_WRITER = f"CASE WHEN {MAY_SAY} THEN {_CLAIMED_BY_WRITER} END"
#: What an earlier version went by instead of each.
FORMER_SAID = {SAID: _CLAIMED, SAID_BY_WRITER: _CLAIMED_BY_WRITER}
DECLARE_SAID = f"said text := {SAID};\n  is_warned boolean := false;"


class Changes:
    """One mapped column, and the table that holds it."""

    def __init__(self, layout: Layout, column: MappedColumn, shape: Shape, number: int, *, may_truncate: bool) -> None:
        self.layout = layout
        self.column = column
        self.shape = shape
        self.part = slug(column.name)
        self.name = literal(column.name)
        self.uuid = quoted(column.uuid)
        self.gate = row_gate(layout.datastore)
        self._number = number
        self._may_truncate = may_truncate

    @property
    def is_ignored(self) -> bool:
        """Whether deletions matter to the row's next life only."""
        return self.column.on_delete is DeletePolicy.IGNORE

    @property
    def is_parent(self) -> bool:
        return self.column.name == self.layout.parent.name

    @property
    def tombs(self) -> str:
        """Where a deletion is remembered; in `kept` there is no tombstone, only where a next row starts."""
        return "tripstore.kept" if self.is_ignored else "tripstore.tomb"

    @property
    def keys(self) -> list[str]:
        """The columns of a row that never change."""
        column = self.column
        first = column.parent if column.parent is not None else self.layout.row_key.id
        return [first, column.uuid] + ([column.ref_key.column] if column.ref_key.column else [])

    def key_columns(self) -> list[str]:
        """The same, quoted."""
        return [quoted(name) for name in self.keys]

    def refuse_lost_columns(self, row: str = "NEW", also: str = "") -> str:
        """What the first function of a row does: a column that was renamed is named, and what to do about it.

        plpgsql finds a column by its name when it first meets it. The block writes nothing, so it takes no transaction
        id of its own, and num_nulls() unpacks no value. `also`: what meets columns of another table.
        """
        names = self.key_columns() + ([quoted(self.column.ref_key.version)] if self.column.ref_key.version else [])
        if row == "NEW":
            names += [quoted(name) for name in self.column.captured]
        asked = " OPERATOR(pg_catalog.+) ".join(
            f"pg_catalog.num_nulls({', '.join(f'{row}.{name}' for name in names[n : n + ARGUMENTS_MAX])})"
            for n in range(0, len(names), ARGUMENTS_MAX)
        )
        table = plain(str(self.column.table))
        refused = refuse(
            COLUMN_GONE,
            f"tripstore cannot capture rows of {table}, which lost a mapped column: %.",
            f"Rename the column back; or name the new one in the layout of {self.layout.datastore} and run "
            "`tripstore schema apply`.",
            "SQLERRM",
        )
        return f"""\
  BEGIN
    IF {asked} OPERATOR(pg_catalog.<) 0 THEN
      NULL;
    END IF;
{also}\
  EXCEPTION WHEN undefined_column THEN
    {refused}
  END;
"""

    def ref_key(self, row: str) -> str:
        return self.column.ref_key_sql(row)

    def n(self, row: str) -> str:
        """The number under which the tombs know a row."""
        number = self.column.ref_key.column
        return f"{row}.{quoted(number)}" if self._has_numbers and number else "0"

    @property
    def _has_numbers(self) -> bool:
        """Whether a row has several children, each with a version."""
        return self.column.ref_key.kind is RefKeyKind.CHILD and self.column.ref_key.column is not None

    @property
    def keys_moved(self) -> str:
        return _moved(self.key_columns())

    @property
    def fields_moved(self) -> str:
        return _moved(self._fields())

    @property
    def anything_moved(self) -> str:
        """Keys, captured columns, or the version."""
        version = [quoted(self.column.ref_key.version)] if self.column.ref_key.version else []
        return _moved([*self.key_columns(), *self._fields(), *version])

    def _fields(self) -> list[str]:
        """What is written when a captured column changes."""
        names = [base for name in self.column.captured for base in self.shape.written(name)]
        return [quoted(name) for name in dict.fromkeys(names)]

    def is_same_row(self, alias: str, row: str) -> str:
        return " AND ".join(f"{alias}.{name} = {row}.{name}" for name in self.key_columns())

    def function(self, verb: str, body: str, settings: Mapping[str, str] = PINNED) -> Function:
        return Function(function_name(self.part, verb), body, settings)

    def as_writer(self, verb: str, body: str) -> Function:
        return Function(function_name(self.part, verb), body, {}, as_owner=False)

    @property
    def rendering(self) -> dict[str, str]:
        """What a function carries that renders a row."""
        return settings_for(self.shape.types.get(name, "") for name in self.column.captured)

    def before(self, verb: str, event: str, when: str | None = None) -> RowTrigger:
        return RowTrigger(f"{LAST}{self.part}_{verb}", "BEFORE", event, function_name(self.part, verb), when)

    def after(self, verb: str, event: str, when: str | None = None) -> RowTrigger:
        return RowTrigger(f"{LOGGED}{self.part}_{verb}", "AFTER", event, function_name(self.part, verb), when)

    def floor(self, row: str) -> str:
        """The ref key that a row's life before this one ended with; NULL: it is the first."""
        kept = self.is_ignored or self._may_truncate or self.may_move
        tables = ["tripstore.tomb"] + (["tripstore.kept"] if kept else [])
        found = [
            f"(SELECT t.ref_key FROM {table} t WHERE t.row_key = {row}.{self.uuid} AND t.column_name = {self.name} "
            f"AND t.n = {self.n(row)} AND t.ref_key > {NO_FLOOR})"
            for table in tables
        ]
        return found[0] if len(found) == 1 else f"GREATEST({', '.join(found)})"

    def cells(self, row: str) -> str:
        """The highest cell of a child that was put before its parent had a row, in the place of this row; or NULL."""
        if not self.column.is_child:
            return "NULL::bigint"
        first = last = self.ref_key(row)
        if self.column.ref_key.kind is RefKeyKind.CHILD:
            first, last = f"{first} & ~{LAST_VERSION}::bigint", f"{last} | {LAST_VERSION}"
        return (
            f"(SELECT max(c.ref_key) FROM tripstore.cell c WHERE c.row_key = {row}.{self.uuid} "
            f"AND c.column_name = {self.name} AND c.ref_key BETWEEN {first} AND {last})"
        )

    def begins_above(self, row: str) -> str:
        """The ref key above which a row has to stand; NULL: it may have any."""
        return f"GREATEST({self.floor(row)}, {self.cells(row)})" if self.column.is_child else self.floor(row)

    def previous_of_lifted(self, before: str) -> str:
        """What a row replaced that stood at `before`, perhaps below its floor: then that was never captured."""
        begin = "GREATEST(f.floor, f.cells)" if self.column.is_child else "f.floor"
        return f"CASE WHEN {begin} >= {before} THEN f.floor ELSE {before} END"

    def refuse_unseen_cell(self) -> str:
        """A child's cell may be put while its row is queued, by a writer that sees no parent: it waits for the key."""
        if not self.column.is_child:
            return ""
        refused = refuse(
            SERIALIZATION_FAILURE,
            f"A cell of {plain(self.column.name)} was put just now for this row of {plain(str(self.column.table))}.",
            "Repeat the transaction.",
        )
        return f"""\
  IF FOUND AND {self.cells("NEW")} >= {self.ref_key("NEW")} THEN
    {refused}
  END IF;
"""

    @property
    def may_move(self) -> bool:
        """Whether an UPDATE may be a DELETE in one partition and an INSERT in another."""
        return self.shape.is_partitioned and self.column.ref_key.kind is not RefKeyKind.FACT

    def keep_legacy_id(self) -> str:
        """The pair of a row that goes, as a cell: its id is resolved for ever, and a relay finds it with the first
        change of the row, from which `_LEGACY_ID` follows. No change is queued for it.
        """
        if not self.is_parent:
            return ""
        body = f"""convert_to('{{"id":' || OLD.{quoted(self.layout.row_key.id)} || '}}', 'UTF8')"""
        return f"""\
  INSERT INTO tripstore.cell (row_key, column_name, ref_key, body)
  VALUES (OLD.{self.uuid}, '{LEGACY_ID}', 0, {body}) ON CONFLICT DO NOTHING;
"""

    def queue_row(self, previous: str, *, above_floor: bool) -> str:
        """Queues NEW; `above_floor`: unless it stands at or below its floor, and then nothing is found."""
        source = f"\n    FROM {self._above_floor}" if above_floor else ""
        row = self.column.row_sql("NEW")
        values = (
            f"NEW.{self.uuid}, {self.name}, {self.ref_key('NEW')}, {self._number}, {row}, {previous}, NULLIF(said, '')"
        )
        return f"""\
  IF is_warned OR {IS_MIRROR} THEN
    INSERT INTO tripstore.log ({_COLUMNS}, id, delivered_at)
    SELECT {values}, nextval('tripstore.queue_id_seq'), clock_timestamp(){source};
  ELSE
    INSERT INTO tripstore.queue ({_COLUMNS})
    SELECT {values}{source};
  END IF;
"""

    @property
    def _above_floor(self) -> str:
        key = self.ref_key("NEW")
        if not self.column.is_child:
            return f"(SELECT {self.floor('NEW')}) AS f (floor) WHERE f.floor IS NULL OR f.floor < {key}"
        return (
            f"(SELECT {self.floor('NEW')}, {self.cells('NEW')}) AS f (floor, cells) "
            f"WHERE GREATEST(f.floor, f.cells, {NO_FLOOR}) < {key}"
        )

    def queue_tombstone(self, ref_key: str, previous: str, on_conflict: str = "") -> str:
        values = f"OLD.{self.uuid}, {self.name}, {ref_key}, {self._number}, NULL, {previous}, NULLIF(said, '')"
        return f"""\
  IF is_warned OR {IS_MIRROR} THEN
    INSERT INTO tripstore.log ({_COLUMNS}, id, delivered_at)
    VALUES ({values}, nextval('tripstore.queue_id_seq'), clock_timestamp());
  ELSE
    INSERT INTO tripstore.queue ({_COLUMNS}) VALUES ({values}){on_conflict};
  END IF;
"""

    def raise_tomb(self, ref_key: str) -> str:
        """Nothing is found afterwards when the tomb was as high already."""
        return f"""\
  INSERT INTO {self.tombs} AS t (row_key, column_name, n, ref_key)
  VALUES (OLD.{self.uuid}, {self.name}, {self.n("OLD")}, {ref_key})
  ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = excluded.ref_key WHERE t.ref_key < excluded.ref_key;
"""

    def keep_moved(self) -> str:
        """The row is in another partition by now, and starts above this one. A setting could be forged."""
        return f"""\
    {KEEP_MOVED}
    INSERT INTO tripstore.kept AS t (row_key, column_name, n, ref_key)
    VALUES (OLD.{self.uuid}, {self.name}, {self.n("OLD")}, {self.ref_key("OLD")})
    ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = excluded.ref_key WHERE t.ref_key < excluded.ref_key;
"""

    def keep_fact(self) -> str:
        """No tombstone says which facts there were: each says that it went."""
        if not self.is_ignored:
            return ""
        return f"  {KEEP_FACTS}\n  VALUES ({self.kept_fact('OLD')}) ON CONFLICT DO NOTHING;\n"

    def kept_fact(self, row: str) -> str:
        """What is kept of a fact, as `MappedColumn.kept_number` says."""
        ref_key = self.ref_key(row)
        return f"{row}.{self.uuid}, {self.name}, ~ {ref_key}, {ref_key}"

    def ask_for_unseen_tombs(self) -> str:
        """A snapshot may be older than the tomb of this row: the index knows, and raises 40001. Nothing is left behind.

        Afterwards no session can make a tomb for it: the row is ours by its unique index.
        """
        n = self.n("NEW")
        mark = f"""\
    INSERT INTO {{0}} (row_key, column_name, {{1}}) VALUES (NEW.{self.uuid}, {self.name}, {{2}}) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      DELETE FROM {{0}} t WHERE (t.row_key, t.column_name, {{1}}) = (NEW.{self.uuid}, {self.name}, {{2}});
    END IF;
"""
        marks = mark.format("tripstore.tomb", "n, ref_key", f"{n}, {NO_FLOOR}")
        if self.is_ignored or self.column.ref_key.kind is RefKeyKind.CHILD:
            marks += mark.format("tripstore.kept", "n, ref_key", f"{n}, {NO_FLOOR}")
        if self.column.ref_key.kind is RefKeyKind.FACT:
            marks += mark.format("tripstore.cell", "ref_key, body", f"{self.ref_key('NEW')}, ''")
        return f"""\
  IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
{marks}  END IF;
"""


def _moved(names: list[str]) -> str:
    """Whether these columns differ bit by bit: to equality, 1.10 is 1.1."""
    old, new = (", ".join(f"{row}.{name}" for name in dict.fromkeys(names)) for row in ("OLD", "NEW"))
    return f"ROW({old})::pg_catalog.record OPERATOR(pg_catalog.*<>) ROW({new})::pg_catalog.record"


_COLUMNS = "row_key, column_name, ref_key, layout, row, previous, origin"
