"""Unique indexes and foreign keys: what holds a row key to one row, and what changes or deletes rows by itself."""

from __future__ import annotations

from collections.abc import Iterator

from tripstore.backends.postgres.layout.complaints import Complaint, error, note
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, RefKeyKind, TableName, quoted
from tripstore.backends.postgres.layout.live import KeyAction, LiveColumn, LiveForeignKey, LiveTable

_CHANGES = (KeyAction.SET_NULL, KeyAction.SET_DEFAULT)
_MOVES = (KeyAction.CASCADE, *_CHANGES)


def check_unique_indexes(layout: Layout, column: MappedColumn, table: LiveTable) -> Iterator[Complaint]:
    """An immediate unique index on exactly the row key, or on parent and number: races are decided by it."""
    if column.parent is None:
        if table.partition_key:
            yield _partitioned(table, layout.row_key.id, column.uuid)
            return
        yield from _check_one(table, (layout.row_key.id,))
        found = table.columns.get(column.uuid)
        if found is not None and found.refuses_null and not _is_indexed_later(found):
            yield from _check_one(table, (column.uuid,))
        elif column.uuid in table.columns and table.find_unique(column.uuid) is None:
            hint = "`tripstore schema apply` makes it, CONCURRENTLY."
            yield note(f"{table.name}.{column.uuid}", "has no unique index yet", hint)
        return
    number = column.ref_key.column
    assert number is not None  # reading refuses children without
    if not {column.parent, number} <= table.columns.keys():
        return
    # One parent has one row key, so either pair says the same until it goes, and comes back beside a child that stayed.
    if any(_is_immediate(table, *names) for names in ((column.uuid, number), (column.parent, number))):
        return
    if any(_is_immediate(table, name) for name in (number, column.parent, column.uuid)):
        hint = "`tripstore schema apply` makes one, CONCURRENTLY; it cannot fail, as one of these is unique by itself."
        yield note(f"{table.name} ({column.uuid}, {number})", "has no unique index of both yet", hint)
        return
    yield from _check_one(table, (column.parent, number))


def _is_indexed_later(column: LiveColumn) -> bool:
    """`schema apply` sets NOT NULL on its own column before it makes the index: it may have ended in between."""
    return column.is_added


def _is_immediate(table: LiveTable, *names: str) -> bool:
    found = table.find_unique(*names)
    return found is not None and found.is_immediate


def check_foreign_keys(layout: Layout, column: MappedColumn, table: LiveTable) -> Iterator[Complaint]:
    for key in table.foreign_keys:
        where = f"{table.name}, foreign key {key.name}"
        if key.columns == (column.parent,):
            yield from _check_parent(layout, column, key, where)
        else:
            yield from _check_other(layout, column, key, where)
    if column.is_child and not any(key.columns == (column.parent,) for key in table.foreign_keys):
        yield _without_foreign_key(layout, column, table)


def _without_foreign_key(layout: Layout, column: MappedColumn, table: LiveTable) -> Complaint:
    """A child that stays when its parent goes has the ref key of one of the parent that comes back.

    The unique index that `schema apply` makes keeps them apart, where the partitions let it be on these columns alone.
    """
    parent = layout.row_key
    reason = f"has no foreign key from {column.parent} to {parent.table}"
    hint = "Rows without a parent have no row key: capture refuses to insert them."
    if set(table.partition_key) <= {column.uuid, column.ref_key.column}:
        return note(str(table.name), reason, f"{hint} Delete children before their parent.")
    reason += f", and its partitions by {_key(table)} let no unique index keep a child of a deleted parent apart"
    add = (
        f"ALTER TABLE {table.name.sql} ADD FOREIGN KEY ({quoted(column.parent or '')}) REFERENCES "
        f"{parent.table.sql} ({quoted(parent.id)})"
    )
    return error(str(table.name), reason, f"{add}, or partition it by {column.uuid}.")


def _check_one(table: LiveTable, names: tuple[str, ...]) -> Iterator[Complaint]:
    if not set(names) <= table.columns.keys():
        return  # a complaint of its own
    where = f"{table.name} ({', '.join(names)})"
    if not set(table.partition_key) <= set(names):
        yield _unfit(table, names)
        return
    index = table.find_unique(*names)
    if index is None:
        near = [index for index in table.unique_indexes if sorted(index.columns) == sorted(names)]
        why = ""
        if near:
            why = f"; {near[0].name} is {'partial' if near[0].is_partial else 'invalid'}"
        yield error(where, f"there is no unique index on exactly these columns{why}", _make_unique(table, names))
    elif not index.is_immediate:
        hint = f"Make a second one: {_make_unique(table, names)}"
        yield error(where, f"the unique index {index.name} is DEFERRABLE, so two rows may race", hint)


def _make_unique(table: LiveTable, names: tuple[str, ...]) -> str:
    columns = ", ".join(map(quoted, names))
    if not table.partition_key:
        return f"CREATE UNIQUE INDEX CONCURRENTLY ON {table.name.sql} ({columns})."
    return (
        f"CREATE UNIQUE INDEX ON ONLY {table.name.sql} ({columns}), the same CONCURRENTLY on each partition, "
        "then ALTER INDEX … ATTACH PARTITION."
    )


def _unfit(table: LiveTable, names: tuple[str, ...]) -> Complaint:
    """A unique index of a partitioned table has to hold its partition key."""
    hint = f"Partition it by {' or '.join(names)}, or leave it out of the layout."
    reason = f"it is partitioned by {_key(table)}, so no unique index can hold {', '.join(names)} to one row"
    return error(str(table.name), reason, hint)


def _partitioned(table: LiveTable, id_column: str, uuid_column: str) -> Complaint:
    """Whatever it is partitioned by, one of its two keys may be in two partitions."""
    both = [name for name in (id_column, uuid_column) if set(table.partition_key) - {name}]
    reason = f"it is partitioned by {_key(table)}, so no unique index can hold {' or '.join(both)} to one row"
    hint = "Copy its rows into a table without partitions. Tables of child rows may be partitioned, by their parent."
    return error(str(table.name), reason, hint)


def _key(table: LiveTable) -> str:
    return ", ".join(name or "an expression" for name in table.partition_key)


def _check_parent(layout: Layout, column: MappedColumn, key: LiveForeignKey, where: str) -> Iterator[Complaint]:
    assert column.parent is not None  # it is the key's column
    if not key.leads(column.parent, layout.row_key.table, layout.row_key.id):
        target = f"{key.target} ({', '.join(key.target_columns)})"
        hint = f"Name as parent.column what points to {layout.row_key.table}.{layout.row_key.id}."
        yield error(where, f"leads to {target}, not to the rows of the datastore", hint)
        return
    yield from check_parents_key(column.table, key, where)
    if key.on_update in _MOVES:
        hint = "Ids of rows never change once captured: the update of an id is refused."
        yield note(where, f"is ON UPDATE {key.on_update.sql}", hint)


def check_parents_key(table: TableName, key: LiveForeignKey, where: str) -> Iterator[Complaint]:
    """What speaks against a foreign key by which rows have their parent."""
    if key.on_delete in _CHANGES:
        hint = "Make it ON DELETE CASCADE, RESTRICT or NO ACTION: a row's parent never changes."
        yield error(where, f"is ON DELETE {key.on_delete.sql}, which would change the parent of rows", hint)
    if key.is_initially_deferred:
        statement = f"ALTER TABLE {table.sql} ALTER CONSTRAINT {quoted(key.name)} DEFERRABLE INITIALLY IMMEDIATE;"
        hint = f"Make it INITIALLY IMMEDIATE: capture asks the parent for the row key. {statement}"
        yield error(where, "is INITIALLY DEFERRED, so rows may come before their parent", hint)


def _check_other(layout: Layout, column: MappedColumn, key: LiveForeignKey, where: str) -> Iterator[Complaint]:
    """What happens to rows when a row that they point to goes, or gets another key."""
    if column.ref_key.kind is RefKeyKind.FACT:
        yield from _check_facts(layout, column, key, where)
    keys = layout.keys_of(column)
    if key.on_delete in _CHANGES and keys & set(key.cleared):
        shown = ", ".join(name for name in key.cleared if name in keys)
        hint = f"Make it ON DELETE RESTRICT: {shown} of a row never changes."
        yield error(where, f"is ON DELETE {key.on_delete.sql}, which would change {shown} of rows", hint)
    if key.on_update in _MOVES and keys & set(key.columns):
        shown = ", ".join(name for name in key.columns if name in keys)
        hint = f"{shown} of a row never changes once captured: such an UPDATE of {key.target} is refused."
        if column.takes_new_keys and column.uuid not in key.columns:
            hint = f"Each row that such an UPDATE of {key.target} changes leaves a tombstone, and begins anew."
        yield note(where, f"is ON UPDATE {key.on_update.sql}, which would change {shown} of rows", hint)


def _check_facts(layout: Layout, column: MappedColumn, key: LiveForeignKey, where: str) -> Iterator[Complaint]:
    """Facts go with their parent, and never change. Keys of other tables seldom change, so that is a note."""
    hint = "Add version: to its ref_key, or make it ON DELETE RESTRICT."
    captured = set(column.captured)
    if key.on_delete is KeyAction.CASCADE and not _leads_to_parent(layout, column, key):
        yield error(where, f"deletes facts without their parent when a row of {key.target} goes", hint)
    if key.on_delete in _CHANGES and captured & set(key.cleared):
        yield error(where, f"changes facts when a row of {key.target} goes (ON DELETE {key.on_delete.sql})", hint)
    if key.on_update in _MOVES and captured & set(key.columns):
        moved = f"{', '.join(key.target_columns)} of {key.target}"
        hint = "Such an UPDATE is refused. Add version: to its ref_key if there are any."
        yield note(where, f"changes facts when {moved} changes (ON UPDATE {key.on_update.sql})", hint)


def _leads_to_parent(layout: Layout, column: MappedColumn, key: LiveForeignKey) -> bool:
    """Whether the row that it points to is the parent: by its id or its row key, with other columns or alone."""
    parent = {(column.parent, layout.row_key.id), (column.uuid, layout.row_key.uuid)}
    return key.target == layout.row_key.table and bool(parent & set(zip(key.columns, key.target_columns, strict=True)))
