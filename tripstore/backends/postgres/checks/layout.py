"""A layout against the live database: what does not fit, with names and a way out each.

`compare` is pure: a `Layout` against a `LiveCatalogue`. What `schema apply` adds by itself is a note, never an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.definitions.documents import meant
from tripstore.backends.postgres.checks.keys import check_foreign_keys, check_unique_indexes
from tripstore.backends.postgres.checks.lookups import check_lookup
from tripstore.backends.postgres.checks.row_keys import check_row_keys
from tripstore.backends.postgres.checks.triggers import check_triggers
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.layout.complaints import Complaint, error, note
from tripstore.backends.postgres.layout.fitting import INTEGERS, find_misfit
from tripstore.backends.postgres.layout.layout import Field, Layout, MappedColumn, RefKeyKind
from tripstore.backends.postgres.layout.live import LiveTable, TableKind
from tripstore.backends.postgres.layout.meant_tables import meant_table

#: Whose transaction ids have 64 bits: what capture stands on.
OLDEST_VERSION = 140000

_ADDED = "`tripstore schema apply` adds it."
_WHOLE_NUMBER = "Make it bigint, integer or, for a number, smallint."


def check_layout(connection: Connection, layout: Layout) -> list[Complaint]:
    """Look at the database and compare; a sample of the rows, too."""
    live = LiveCatalogue.of_layout(connection, layout)
    return [*compare(layout, live), *check_row_keys(connection, layout, live)]


def compare(layout: Layout, live: LiveCatalogue) -> list[Complaint]:
    """Everything that does not fit, the server first, then column by column of the layout."""
    of_columns = (_check(layout, column, live) for column in layout.columns.values())
    return [*_check_server(live), *chain.from_iterable(of_columns)]


def _check_server(live: LiveCatalogue) -> Iterator[Complaint]:
    settings = live.settings
    if int(settings["server_version_num"]) < OLDEST_VERSION:
        yield error("server", "is older than Postgres 13", "Upgrade it: capture needs 64-bit transaction ids.")
    if settings["server_encoding"] != "UTF8":
        hint = "Move the database to one with ENCODING 'UTF8': bodies are UTF-8."
        yield error("server", f"keeps text as {settings['server_encoding']}", hint)
    for name in ("fsync", "full_page_writes"):
        if settings[name] != "on":
            hint = f"Set {name} = on: a crash may lose what was acknowledged."
            yield error("server", f"{name} is {settings[name]}", hint)
    if settings["synchronous_commit"] in ("off", "local"):
        reason = f"synchronous_commit is {settings['synchronous_commit']}"
        yield note("server", reason, "Ours is on; other writers may lose their last commits in a crash, as before.")


def _check(layout: Layout, column: MappedColumn, live: LiveCatalogue) -> Iterator[Complaint]:
    table = live.tables.get(column.table)
    if table is None:
        reason = f"there is no table {column.table}"
        yield error(f"columns.{column.name}.table", reason, meant_table(column.table, live.neighbours))
        return
    yield from _check_kind(table)
    if table.kind in (TableKind.TABLE, TableKind.PARTITIONED):
        yield from _check_columns(layout, column, table)
        yield from check_unique_indexes(layout, column, table)
        yield from check_foreign_keys(layout, column, table)
        for field in column.fields:
            yield from check_lookup(column, field, table, live)
        yield from _check_unmapped(layout, column, table)
        yield from check_triggers(column, table)
        yield from _check_facts(layout, column, table, live)


def _check_kind(table: LiveTable) -> Iterator[Complaint]:
    """Whether row triggers of a table see every change of it."""
    where = str(table.name)
    if table.kind not in (TableKind.TABLE, TableKind.PARTITIONED):
        what = table.kind.name.lower().replace("_", " ")
        yield error(where, f"is a {what}", "Name the tables that hold the rows: capture needs their triggers.")
    if table.partition_of is not None:
        yield error(where, f"is a partition of {table.partition_of}", f"Name {table.partition_of}.")
    if table.persistence != "p":
        what = "unlogged" if table.persistence == "u" else "temporary"
        yield error(where, f"is {what}", f"ALTER TABLE {table.name.sql} SET LOGGED: a crash empties it unseen.")
    for heir in table.heirs:
        hint = f"ALTER TABLE {heir.sql} NO INHERIT {table.name.sql}, or make it a partition."
        yield error(where, f"{heir} inherits from it, and no trigger of it fires there", hint)
    for leaf in table.foreign_leaves:
        hint = f"DETACH it: changes of {leaf} cannot be captured."
        yield error(where, f"its partition {leaf} is a foreign table", hint)
    for leaf in table.unlogged_leaves:
        hint = f"ALTER TABLE {leaf.sql} SET LOGGED: a crash empties it unseen."
        yield error(where, f"its partition {leaf} is unlogged", hint)
    for name in table.subscribed:
        hint = (
            "What its worker brings is captured. Take it out before the switch: on live the gate refuses the worker,"
            " and a TRUNCATE stops it at any time."
        )
        yield note(where, f"{name} is filled by a subscription", hint)
    if table.hides_rows:
        hint = "Give that role BYPASSRLS: without it every read of the table is refused."
        yield error(where, "has row-level security that holds for the role of legacy.postgres", hint)
    elif table.has_row_security:
        yield note(where, "has row-level security", "The role of legacy.postgres must keep its BYPASSRLS.")


def _check_columns(layout: Layout, column: MappedColumn, table: LiveTable) -> Iterator[Complaint]:
    if not column.is_child:
        yield from _check_integer(table, layout.row_key.id, "row_key.id")
    yield from _check_uuid(column, table)
    if column.parent is not None:
        yield from _check_integer(table, column.parent, f"columns.{column.name}.parent.column")
    if column.ref_key.column is not None:
        yield from _check_integer(table, column.ref_key.column, f"columns.{column.name}.ref_key.column")
    if column.ref_key.version is not None:
        yield from _check_version(table, column.ref_key.version)
    for field in column.fields:
        yield from _check_field(column, field, table)
    if column.extra is not None:
        yield from _check_extra(table, column.extra)


def _check_integer(table: LiveTable, name: str, key: str) -> Iterator[Complaint]:
    """A column that says which row it is."""
    found = table.columns.get(name)
    where = f"{table.name}.{name}"
    if found is None:
        yield _missing(table, name, key)
        return
    if found.type.plain.name not in INTEGERS or not found.type.plain.is_built_in:
        yield error(where, f"is of type {found.shown_type}, and {key} is a whole number", _WHOLE_NUMBER)
    if not found.refuses_null:
        hint = "Fill it, then ALTER TABLE … ALTER COLUMN … SET NOT NULL."
        yield error(where, f"may be NULL, and {key} may not", hint)
    if found.is_generated:
        yield error(where, "is a generated column", "Make it a plain one: capture compares it before it is computed.")


def _check_uuid(column: MappedColumn, table: LiveTable) -> Iterator[Complaint]:
    found = table.columns.get(column.uuid)
    where = f"{table.name}.{column.uuid}"
    if found is None:
        yield note(where, "the column of the row key is missing", _ADDED)
    elif (found.type.plain.name, found.type.plain.is_built_in) != ("uuid", True):
        yield error(where, f"is of type {found.shown_type}, and the row key is a uuid", "Name another column for it.")
    elif found.is_generated:
        yield error(where, "is a generated column", "Name another one: rows of the facade bring their row key.")
    elif not found.refuses_null:
        yield note(where, "may be NULL", "`tripstore schema apply` fills it and then makes it NOT NULL.")


def _check_version(table: LiveTable, name: str) -> Iterator[Complaint]:
    found = table.columns.get(name)
    where = f"{table.name}.{name}"
    if found is None:
        yield note(where, "the column of the version is missing", _ADDED)
        return
    if found.type.plain.name not in INTEGERS - {"int2"} or not found.type.plain.is_built_in:
        yield error(where, f"is of type {found.shown_type}, and versions are whole numbers", "Make it bigint.")
    if not found.refuses_null:
        hint = "Fill it, then ALTER COLUMN … SET NOT NULL; or name a new column, which is added so."
        yield error(where, "may be NULL, and a row without version has no ref key", hint)
    if found.is_generated or found.is_always_identity:
        yield error(where, "is generated", "Name another column: capture counts the versions.")


def _check_field(column: MappedColumn, field: Field, table: LiveTable) -> Iterator[Complaint]:
    found = table.columns.get(field.column)
    where = f"{table.name}.{field.column}"
    if found is None:
        yield _missing(table, field.column, f"columns.{column.name}.fields.{field.name}")
        return
    # With a lookup the row holds a key, and the UUID is in the other table.
    misfit = None if field.lookup else find_misfit(field, found.type)
    if misfit is not None:
        reason = f"{found.shown_type} cannot hold field {field.name} of type {field.kind.value}"
        yield error(where, reason, f"{misfit[0].upper()}{misfit[1:]}.")
    elif found.type.plain.name == "timestamp":
        yield note(where, "has no time zone", "Its values are taken as UTC; make sure that they are.")
    if found.is_generated:
        hint = f"Take field {field.name} out of the layout: readers can compute it from the others."
        yield error(where, "is a generated column, which capture cannot compare and puts cannot write", hint)
    if found.is_always_identity:
        hint = "ALTER COLUMN … SET GENERATED BY DEFAULT: puts bring the value."
        yield error(where, "is GENERATED ALWAYS AS IDENTITY", hint)


def _check_extra(table: LiveTable, name: str) -> Iterator[Complaint]:
    found = table.columns.get(name)
    where = f"{table.name}.{name}"
    if found is None:
        yield note(where, "the column of extra is missing", "`tripstore schema apply` adds it as json.")
    elif (found.type.plain.name, found.type.plain.is_built_in) != ("json", True):
        hint = "Name a column of type json (not jsonb, which changes numbers), or one that is not there yet."
        yield error(where, f"is of type {found.shown_type}, and extra is json", hint)
    elif found.is_generated:
        yield error(where, "is a generated column", "Name another one.")


def _check_unmapped(layout: Layout, column: MappedColumn, table: LiveTable) -> Iterator[Complaint]:
    """What stays behind, and what keeps the facade from inserting rows."""
    ours = {layout.row_key.id} if not column.is_child else {column.parent}
    ours |= {column.uuid, column.ref_key.column, column.ref_key.version, *column.captured}
    unmapped = [found for name, found in table.columns.items() if name not in ours]
    fills = any(trigger.is_before and trigger.is_row and trigger.is_insert for trigger in table.triggers)
    for found in unmapped:
        where = f"{table.name}.{found.name}"
        if not found.fills_itself and not fills:
            hint = "Map it as a field, give it a default, or let it be NULL."
            yield error(where, "is not mapped, NOT NULL and without default: puts cannot insert rows", hint)
        elif not found.fills_itself:
            hint = "Make sure that the trigger fills it; else puts cannot insert rows."
            yield note(where, "is not mapped, NOT NULL and without default; a trigger of the table may fill it", hint)
    others = [found.name for found in unmapped if found.fills_itself]
    if others:
        reason = f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} not mapped"
        yield note(str(table.name), reason, "No cell will hold them. Map what is worth keeping.")


def _check_facts(layout: Layout, column: MappedColumn, table: LiveTable, live: LiveCatalogue) -> Iterator[Complaint]:
    """Rows that are said never to change, and do."""
    if column.ref_key.kind is not RefKeyKind.FACT:
        return
    hint = "Add version: to its ref_key unless those were repairs by hand: capture refuses to change facts."
    # Filling in the row keys was one update per row.
    own = (table.rows or 0) if column.uuid in table.columns else 0
    if table.updated > own:
        yield note(str(table.name), f"is said to hold facts, and {table.updated} updates were counted", hint)
    parent = live.tables.get(layout.row_key.table)
    if table.deleted and not (parent and parent.deleted):
        yield note(str(table.name), f"is said to hold facts, and {table.deleted} deletes were counted", hint)


def _missing(table: LiveTable, name: str, key: str) -> Complaint:
    hint = meant(name, table.columns, f"Columns of {table.name}") if table.columns else ""
    return error(f"{table.name}.{name}", f"there is no such column, and {key} names it", hint)
