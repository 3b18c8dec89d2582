"""Functions and triggers of facts: child rows that never change, and go only with their parent.

When the parent goes there is one tombstone, above the highest number. The first row that goes finds it, before it
goes: all that remain are still to be seen, and those that go later stand below it. So it does not matter whether one
statement deletes them or several, or how much of it a savepoint takes back.
"""

from __future__ import annotations

from tripstore.backends.postgres.capture.functions.changes import DECLARE_SAID, Changes
from tripstore.backends.postgres.capture.functions.function import PINNED, SEEING, Function, plain, refuse
from tripstore.backends.postgres.capture.functions.keys import forbidden, refuse_new_keys
from tripstore.backends.postgres.capture.functions.parents import DECLARE_PARENT, fill_uuid, parent_is_there
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger
from tripstore.backends.postgres.layout.layout import DeletePolicy, quoted
from tripstore.backends.postgres.sqlstates import (
    BELOW_TOMBSTONE,
    DELETE_REFUSED,
    FACT_CHANGED,
    OUT_OF_RANGE,
    SERIALIZATION_FAILURE,
    UNIQUE_VIOLATION,
)

Made = tuple[Function, RowTrigger | None]
_INT8_MAX = (1 << 63) - 1


class FactRows:
    """`{column: n}`."""

    def __init__(self, changes: Changes) -> None:
        assert changes.column.ref_key.column is not None
        self._changes = changes
        self._table = plain(str(changes.column.table))
        self._n = quoted(changes.column.ref_key.column)

    def made(self) -> list[Made]:
        return [self.insert(), self.update(), self.inserted(), self.delete()]

    def insert(self) -> Made:
        changes = self._changes
        too_high = refuse(
            OUT_OF_RANGE,
            f"A row of {self._table} has number %, and there is none after it for a tombstone.",
            f"Numbers go up to {_INT8_MAX - 1}.",
            f"NEW.{self._n}",
        )
        body = f"""
DECLARE
  {DECLARE_PARENT}
BEGIN
{changes.refuse_lost_columns(also=fill_uuid(changes))}\
  IF NEW.{self._n} >= {_INT8_MAX} THEN
    {too_high}
  END IF;
  RETURN NEW;
END
"""
        return changes.function("insert", body), changes.before("insert", "INSERT")

    def update(self) -> Made:
        changes = self._changes
        refused = refuse(
            FACT_CHANGED,
            f"Rows of {self._table} are facts: what they say does not change.",
            f"Insert another row. If rows do change, {changes.column.name} needs a version in the layout.",
        )
        body = f"\nBEGIN\n{refuse_new_keys(changes)}  {refused}\nEND\n"
        return changes.as_writer("update", body), changes.before("update", "UPDATE", changes.anything_moved)

    def inserted(self) -> Made:
        changes = self._changes
        refused = refuse(
            BELOW_TOMBSTONE,
            f"A row of {self._table} has number %, and the facts of this row up to % were deleted with their parent.",
            "Give it a higher number: facts are for ever, deleted ones too.",
            f"NEW.{self._n}",
            changes.floor("NEW"),
        )
        is_there = refuse(
            UNIQUE_VIOLATION,
            f"A fact of {self._table} with number % was put before there was a row of its parent.",
            "Take the next number, or put the fact through the facade.",
            f"NEW.{self._n}",
        )
        body = f"""
DECLARE
  {DECLARE_SAID}
BEGIN
{changes.gate}{changes.ask_for_unseen_tombs()}{changes.queue_row("f.floor", above_floor=True)}\
  IF NOT FOUND THEN
    IF {changes.cells("NEW")} IS NOT NULL THEN
      {is_there}
    END IF;
    {refused}
  END IF;
{changes.refuse_unseen_cell()}\
  RETURN NULL;
END
"""
        return changes.function("inserted", body, PINNED | changes.rendering), changes.after("inserted", "INSERT")

    def delete(self) -> Made:
        changes = self._changes
        if changes.column.on_delete is DeletePolicy.FORBID:
            return forbidden(changes)
        refused = refuse(
            DELETE_REFUSED,
            f"Rows of {self._table} are facts: they go only with their parent, and never to another partition.",
            f"Delete the parent. If rows are deleted alone, {changes.column.name} needs a version in the layout.",
        )
        remaining = (
            f"SELECT max(r.{self._n}) FROM {changes.column.table.sql} r WHERE r.{changes.uuid} = OLD.{changes.uuid}"
        )
        # A cascade also finds rows that the snapshot does not: those Postgres refuses itself, a moment later.
        cells = (
            f"SELECT max(c.ref_key) FROM tripstore.cell c WHERE c.row_key = OLD.{changes.uuid} "
            f"AND c.column_name = {changes.name}"
        )
        highest = f"GREATEST(OLD.{self._n}, ({remaining}), ({cells}))"
        above = "" if changes.is_ignored else " + 1"
        # The same while the fact above is not delivered: here it would be known as a duplicate key.
        unseen = refuse(
            SERIALIZATION_FAILURE,
            f"A row of {self._table} was inserted since this transaction began, and its parent is to be deleted.",
            "Repeat the transaction.",
        )
        tombstone = changes.queue_tombstone("top", "highest", " ON CONFLICT DO NOTHING")
        queue = (
            ""
            if changes.is_ignored
            else f"  IF FOUND THEN\n{tombstone}    IF NOT FOUND THEN\n      {unseen}\n    END IF;\n  END IF;\n"
        )
        body = f"""
DECLARE
  {DECLARE_SAID}
  highest bigint;
  top bigint;
BEGIN
{changes.refuse_lost_columns("OLD")}{changes.gate}\
  IF {parent_is_there(changes)} THEN
    {refused}
  END IF;
{changes.keep_fact()}\
  IF EXISTS (SELECT FROM {changes.tombs} t WHERE t.row_key = OLD.{changes.uuid} AND t.column_name = {changes.name}
    AND t.n = 0 AND t.ref_key >= OLD.{self._n}{above}) THEN
    RETURN OLD;
  END IF;
  highest := {highest};
  top := highest{above};
{changes.raise_tomb("top")}{queue}\
  RETURN OLD;
END
"""
        return changes.function("delete", body, SEEING), changes.before("delete", "DELETE")
