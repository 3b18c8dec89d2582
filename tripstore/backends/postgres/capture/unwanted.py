"""What `schema apply` made for an earlier layout and this one does not want: found, named, and taken off.

Everything of ours on the company's tables is compared with the plan, on tables that are mapped no more as well, and on
partitions that were detached: triggers, their functions, the event trigger, and what fills and requires row keys.

Columns and indexes stay. A version column that is dropped begins anew below what the mirror has, and services may find
rows by their UUIDs by now. `schema remove --tables --columns` takes the columns off, with all history.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.migrate import revision
from tripstore.backends.postgres.capture.names import EVENT_TRIGGER, FIRST, LAST, LOGGED, WALKING, WALKS
from tripstore.backends.postgres.capture.partitions.event import drop_event_trigger, has_event_trigger, has_partitions
from tripstore.backends.postgres.capture.plan import CELLS, TableCapture, plan_cells, plan_table
from tripstore.backends.postgres.capture.remove import drop_function
from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.capture.verify import captured_tables
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, under_lock
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.ids.key_not_null import SetNotNull
from tripstore.backends.postgres.ids.key_triggers import FillNewRows
from tripstore.backends.postgres.ids.steps import key_columns
from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.layout.layout import Layout, TableName, quoted
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

#: Clones go with the trigger that they were made from. A walk by blocks takes its own off when it ends.
_TRIGGERS = """
SELECT c.oid::bigint, s.nspname, c.relname, t.tgname::text
FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
WHERE p.pronamespace = pg_catalog.to_regnamespace(%s) AND t.tgparentid = 0 AND NOT t.tgisinternal
  AND EXISTS (SELECT FROM unnest(%s::text[]) AS ours (prefix) WHERE pg_catalog.starts_with(t.tgname, prefix))
  AND pg_catalog.obj_description(p.oid, 'pg_proc') IS DISTINCT FROM %s
ORDER BY 2, 3, 4
"""
#: Those that were made for a table say so.
_FUNCTIONS = """
SELECT p.proname::text FROM pg_catalog.pg_proc p WHERE p.pronamespace = pg_catalog.to_regnamespace(%s)
  AND pg_catalog.starts_with(pg_catalog.obj_description(p.oid, 'pg_proc'), 'tripstore: of ') ORDER BY 1
"""
_LAYOUTS = "SELECT document FROM tripstore.layout ORDER BY number"
_FORGET = "DELETE FROM tripstore.partition WHERE NOT root = ANY (%s::bigint[]::oid[])"


class LeftTrigger(NamedTuple):
    table: TableName
    name: str


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What there is and nothing wants."""

    triggers: tuple[LeftTrigger, ...] = ()
    functions: tuple[str, ...] = ()
    keys: tuple[KeyColumn, ...] = ()
    has_event_trigger: bool = False

    def __bool__(self) -> bool:
        return bool(self.triggers or self.functions or self.keys or self.has_event_trigger)

    def complaints(self) -> Iterator[Complaint]:
        """Each with its table."""
        hint = "Run `tripstore schema apply`: it takes it off."
        for trigger in self.triggers:
            yield error(str(trigger.table), f"trigger {trigger.name} is of an earlier layout and acts still", hint)
        if not self.triggers:
            for function in self.functions:
                yield error(SCHEMA, f"function {function} is of an earlier layout", hint)
        for key in self.keys:
            yield error(str(key.table), f"{key.uuid} is filled and required for an earlier layout", hint)
        if self.has_event_trigger:
            yield error(SCHEMA, f"no mapped table is partitioned, and the event trigger {EVENT_TRIGGER} is on", hint)


@dataclass(frozen=True, slots=True)
class Unwanted:
    """The step that takes it off, when all that is wanted stands."""

    layout: Layout
    patience: Patience = PATIENT

    @property
    def title(self) -> str:
        return "what earlier layouts left"

    def is_done(self, connection: Connection) -> bool:
        return revision(connection) is not None and not find_left(connection, self.layout)

    def statements(self) -> Sequence[str]:
        return ["-- DROP TRIGGER, DROP FUNCTION: what this layout does not want; columns and indexes stay"]

    def apply(self, connection: Connection, progress: Progress) -> None:
        left = find_left(connection, self.layout)
        for table, triggers in groupby(left.triggers, key=lambda trigger: trigger.table):
            drops = [f"DROP TRIGGER IF EXISTS {quoted(trigger.name)} ON {table.sql}" for trigger in triggers]
            under_lock(connection, table, "ACCESS EXCLUSIVE", drops, self.patience)
            reach("capture.left_dropped")
        for function in left.functions:
            drop_function(connection, function)
        for key in left.keys:  # NOT NULL goes first: nothing fills the column any more
            SetNotNull(key, self.patience).revert(connection)
            FillNewRows(key, self.patience).revert(connection)
            reach("capture.left_key_dropped")
        if left.has_event_trigger:
            drop_event_trigger(connection)
        shapes = (Shape.find(connection, table) for table in self.layout.tables)
        rows(connection, _FORGET, ([shape.oid for shape in shapes if shape is not None],))
        progress(1, 1)

    def revert(self, connection: Connection) -> None:
        """Nothing: what an earlier layout wanted is not known to be wanted again."""


def find_left(connection: Connection, layout: Layout) -> LeftOver:
    """Compare everything of ours with what this layout wants."""
    if revision(connection) is None:
        return LeftOver()
    wanted = list(_wanted(connection, layout))
    oids = {(capture.shape.table, node.table): node.oid for capture in wanted for node in capture.shape.nodes}
    triggers = {(oids[capture.shape.table, each.table], each.name) for capture in wanted for each in capture.triggers}
    functions = {function.name for capture in wanted for function in capture.functions}
    live = rows(connection, _TRIGGERS, (SCHEMA, [FIRST, LOGGED, LAST, WALKING], WALKS))
    return LeftOver(
        tuple(
            LeftTrigger(TableName(schema, table), name)
            for oid, schema, table, name in live
            if (oid, name) not in triggers
        ),
        tuple(name for (name,) in rows(connection, _FUNCTIONS, (SCHEMA,)) if name not in functions),
        tuple(_left_keys(connection, layout)),
        has_event_trigger(connection) and not has_partitions(connection, layout),
    )


def _wanted(connection: Connection, layout: Layout) -> Iterator[TableCapture]:
    """Names alone count: neither the number of the layout nor whether TRUNCATE is allowed is in them."""
    for table in captured_tables(layout):
        shape = Shape.find(connection, table)
        if shape is not None:
            yield plan_table(layout, shape, 0, may_truncate=False)
    cells = Shape.find(connection, CELLS)
    if cells is not None:
        yield plan_cells(layout, cells)


def _left_keys(connection: Connection, layout: Layout) -> Iterator[KeyColumn]:
    """Columns of row keys that earlier layouts had filled, in tables that are there and mapped no more."""
    wanted = {(column.table, column.uuid) for column in key_columns(layout)}
    seen = set[tuple[TableName, str]]()
    for earlier in _earlier(connection, layout):
        for column in key_columns(earlier):
            place = (column.table, column.uuid)
            if place in wanted or place in seen or Shape.find(connection, column.table) is None:
                continue
            seen.add(place)
            if FillNewRows(column).stands(connection):
                yield column


def _earlier(connection: Connection, layout: Layout) -> Iterator[Layout]:
    """Every layout that was ever applied. One that this version cannot read names no more than others do."""
    for (document,) in rows(connection, _LAYOUTS):
        with suppress(InvalidLayout):
            yield load_layout(json.loads(document), layout.datastore)
