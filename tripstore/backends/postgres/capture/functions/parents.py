"""A child row carries its parent's UUID: filled when it is missing, compared when it is given."""

from __future__ import annotations

from tripstore.backends.postgres.capture.functions.changes import Changes
from tripstore.backends.postgres.capture.functions.function import plain, refuse
from tripstore.backends.postgres.layout.layout import quoted
from tripstore.backends.postgres.sqlstates import NO_PARENT, WRONG_PARENT

DECLARE_PARENT = "parent_uuid uuid;"


def fill_uuid(changes: Changes) -> str:
    """What BEFORE INSERT does in a child table; nothing in the parent's own."""
    column, row_key = changes.column, changes.layout.row_key
    if column.parent is None:
        return ""
    parent, uuid = f"NEW.{quoted(column.parent)}", f"NEW.{changes.uuid}"
    table, pointer = plain(str(column.table)), plain(column.parent)
    no_parent = refuse(
        NO_PARENT,
        f"A row of {table} points by {pointer} to %, and {plain(str(row_key.table))} has no such row.",
        "Insert the parent first; capture needs its UUID. If row security hides it, give capture's owner BYPASSRLS.",
        parent,
    )
    wrong_parent = refuse(
        WRONG_PARENT,
        f"A row of {table} says {plain(column.uuid)} %, and its parent % has %.",
        f"Leave {column.uuid} away: it is filled. If it is a UUID of the table's own, name another column for the "
        f"parent's in the layout, parent: {{column: {column.parent}, uuid: …}}.",
        uuid,
        parent,
        "parent_uuid",
    )
    return f"""\
  SELECT p.{quoted(row_key.uuid)} INTO parent_uuid FROM {row_key.table.sql} p WHERE p.{quoted(row_key.id)} = {parent};
  IF NOT FOUND THEN
    {no_parent}
  END IF;
  IF {uuid} IS NULL THEN
    {uuid} := parent_uuid;
  ELSIF {uuid} <> parent_uuid THEN
    {wrong_parent}
  END IF;
"""


def parent_is_there(changes: Changes) -> str:
    """Whether the parent of OLD is visible. It is not while its own deletion deletes its children."""
    column, row_key = changes.column, changes.layout.row_key
    assert column.parent is not None
    return (
        f"EXISTS (SELECT FROM {row_key.table.sql} p WHERE p.{quoted(row_key.id)} = OLD.{quoted(column.parent)} "
        f"AND p.{quoted(row_key.uuid)} = OLD.{changes.uuid})"
    )
