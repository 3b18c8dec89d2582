"""Child rows with another row key than their parent, or without a parent: no comparison of both stores finds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.ids.key_match import NOTHING, KeyMatch, free_name, match_keys, sample_keys
from tripstore.backends.postgres.ids.steps import key_column
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.layout.complaints import Complaint, error, note
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, TableName, quoted
from tripstore.backends.postgres.layout.live import LiveTable

#: Rows of a child, as Postgres estimates them, that a gate compares in full.
ALL_UP_TO = 1_000_000


def check_row_keys(connection: Connection, layout: Layout, live: LiveCatalogue) -> Iterator[Complaint]:
    """Compare a sample of each table of child rows with its parent."""
    parent = live.tables.get(layout.row_key.table)
    for column in layout.children:
        child = live.tables.get(column.table)
        if parent is not None and child is not None:
            match = sample_keys(connection, key_column(layout, column), child, parent)
            yield from _complain(column, layout, child, match)


def check_all_row_keys(connection: Connection, layout: Layout, *, but_ours: bool = False) -> Iterator[Complaint]:
    """Compare every row with its parent, as `ids status --verify` does; columns that we filled may be left out."""
    live = LiveCatalogue.of_layout(connection, layout)
    for column in layout.children:
        key = key_column(layout, column)
        found = NOTHING if but_ours and key.is_ours(connection) else match_keys(connection, key)
        if found.different:
            reason = f"is missing, or is another than the parent's {_its(layout)}, in {found.different:,} rows"
            yield error(f"{column.table}.{column.uuid}", reason, _hint(column, layout, live.tables[column.table]))
        if found.orphans:
            yield _parentless(column, layout, live.tables[column.table], found.orphans)


def look_at_keys(connection: Connection, layout: Layout, *, all_up_to: int = ALL_UP_TO) -> dict[TableName, KeyMatch]:
    """Compare all child rows of each table; of one with many a sample, or where statement_timeout ends it."""
    live = LiveCatalogue.of_layout(connection, layout)
    parent = live.tables.get(layout.row_key.table)
    found = {}
    for column in layout.children:
        key, child = key_column(layout, column), live.tables.get(column.table)
        found[column.table] = NOTHING
        if parent is None or child is None:
            continue
        if (child.rows or 0) <= all_up_to:
            with suppress(postgres.QueryCanceled):
                found[column.table] = match_keys(connection, key)
        if not found[column.table].is_all:
            found[column.table] = sample_keys(connection, key, child, parent)
    return found


def _complain(column: MappedColumn, layout: Layout, child: LiveTable, match: KeyMatch) -> Iterator[Complaint]:
    """What the sample says, and what a default will do to the rows to come."""
    where = f"{child.name}.{column.uuid}"
    if match.different:
        reason = (
            f"holds another UUID than the parent's {_its(layout)} in {match.different:,} of {match.compared:,} rows"
            f" looked at, one of them of parent {match.parent_id}"
        )
        yield error(where, reason, _hint(column, layout, child))
    elif column.uuid in child.columns and child.columns[column.uuid].has_default:
        reason = f"has a default, which is not the parent's {_its(layout)}: INSERTs that leave it out will be refused"
        if match.compared:
            yield note(where, reason, f"ALTER COLUMN {quoted(column.uuid)} DROP DEFAULT: capture fills it.")
        else:
            yield error(where, reason, _hint(column, layout, child))


def _parentless(column: MappedColumn, layout: Layout, child: LiveTable, count: int) -> Complaint:
    """Where a foreign key stands, Postgres forgot a lock; where none does, the parent may come later."""
    assert column.parent is not None
    parent, key = layout.row_key.table, f"child.{quoted(column.parent)}"
    has_one = f"EXISTS (SELECT FROM {parent.sql} AS parent WHERE parent.{quoted(layout.row_key.id)} = {key})"
    delete = f"DELETE FROM {child.name.sql} AS child WHERE {key} IS NOT NULL AND NOT {has_one};"
    reason = f"{count:,} rows have no parent in {parent}: another row under the same row key would get their ref keys"
    if any(each.target == parent for each in child.foreign_keys):
        hint = f"Postgres forgot a lock (docs/reference/limits.md). Delete them, capture writes tombstones: {delete}"
        return error(str(child.name), f"{reason}, though a foreign key stands", hint)
    return note(str(child.name), reason, f"Insert their parents, or delete them: {delete}")


def _its(layout: Layout) -> str:
    return f"{layout.row_key.table}.{layout.row_key.uuid}"


def _hint(column: MappedColumn, layout: Layout, child: LiveTable) -> str:
    """The way out, for a column that is the table's own and for one that is not."""
    stem = layout.row_key.table.name
    name = free_name(child, f"{stem}_uuid", f"{stem}_row_uuid")
    return (
        f"If it is the table's own UUID, write parent: {{column: {column.parent}, uuid: {name}}} in "
        f"columns.{column.name} and map {column.uuid} as a field: `tripstore schema apply` adds {name} and fills it. "
        "Give the column a new name if it has cells. Else give these rows their parent's UUID."
    )
