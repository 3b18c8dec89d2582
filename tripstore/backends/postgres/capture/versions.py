"""Functions and triggers of rows that change in place: one row with versions, or child rows with number and version.

A version is decided last of all BEFORE triggers, and what was decided is logged first of all AFTER triggers. A row
that comes back starts above its tombstone: AFTER INSERT looks, since a tombstone may have been committed while the
INSERT waited, and lifts the row itself.
"""

from __future__ import annotations

from tripstore.backends.postgres.capture.changes import DECLARE_SAID, OURS, Changes
from tripstore.backends.postgres.capture.functions import Function, plain, refuse
from tripstore.backends.postgres.capture.names import LIFTING, MOVED, TOMBSTONE
from tripstore.backends.postgres.capture.parents import DECLARE_PARENT, fill_uuid
from tripstore.backends.postgres.capture.sqlstates import (
    BELOW_TOMBSTONE,
    DELETE_REFUSED,
    KEY_CHANGED,
    OUT_OF_RANGE,
    VERSION_STANDS,
)
from tripstore.backends.postgres.capture.triggers import Trigger
from tripstore.backends.postgres.layout import NUMBER_MAX, VERSION_BITS, VERSION_MAX, DeletePolicy, quoted

Made = tuple[Function, Trigger]


class VersionedRows:
    """`{version: v}` and `{column: n, version: v}`."""

    def __init__(self, changes: Changes) -> None:
        column = changes.column
        assert column.ref_key.version is not None
        self._changes = changes
        self._column = column
        self._table = plain(str(column.table))
        self._version = quoted(column.ref_key.version)
        self._n = quoted(column.ref_key.column) if column.ref_key.column else None
        self._first = 0 if self._n else 1
        self._last = VERSION_MAX if self._n else (1 << 63) - 1

    def made(self) -> list[Made]:
        return [self.insert(), self.key(), self.update(), self.inserted(), self.updated(), self.deleted()]

    def insert(self) -> Made:
        """Versions begin at the first; the facade and the reverse mirror say theirs."""
        changes, version = self._changes, f"NEW.{self._version}"
        body = f"""
DECLARE
  {DECLARE_SAID}
  {DECLARE_PARENT}
BEGIN
{fill_uuid(changes)}{self._check_number()}\
  IF said IS NULL OR NOT ({OURS}) OR {version} IS NULL THEN
    {version} := {self._first};
  ELSE
{self._check_version() or "    NULL;"}
  END IF;
  RETURN NEW;
END
"""
        # The parent's rows need nobody when they come with the default. Children need their parent's UUID.
        when = None if self._column.is_child else f"{version} IS DISTINCT FROM {self._first}"
        return changes.function("insert", body), changes.before("insert", "INSERT", when)

    def key(self) -> Made:
        changes = self._changes
        return key_guard(changes)

    def update(self) -> Made:
        """Fires when a captured column or the version moved, as record images: 1.10 is not 1.1."""
        changes = self._changes
        new, old = f"NEW.{self._version}", f"OLD.{self._version}"
        fields = changes.moved(self._fields("OLD"), self._fields("NEW"))
        too_low = refuse(
            VERSION_STANDS,
            f"A row of {self._table} has version % and was sent version %.",
            "A put of an older version is history: it changes no row.",
            old,
            new,
        )
        body = f"""
DECLARE
  said text;
BEGIN
  IF {new} IS DISTINCT FROM {old} THEN
    said := current_setting('tripstore.origin', true);
    IF ({OURS} OR current_setting('{LIFTING}', true) = 'on') AND {new} IS NOT NULL THEN
      IF {new} < {old} THEN
        {too_low}
      END IF;
{self._check_version()}\
      RETURN NEW;
    END IF;
    IF NOT ({fields}) THEN
      {new} := {old};
      RETURN NEW;
    END IF;
  END IF;
  IF {old} >= {self._last} THEN
    {self._out_of_versions(old)}
  END IF;
  {new} := {old} + 1;
  RETURN NEW;
END
"""
        when = changes.moved(changes.image("OLD", written=True), changes.image("NEW", written=True))
        return changes.function("update", body), changes.before("update", "UPDATE", when)

    def inserted(self) -> Made:
        changes, column = self._changes, self._column
        below = refuse(
            BELOW_TOMBSTONE,
            f"A row of {self._table} was put at ref key %, and was deleted at %.",
            "The deletion came in between: start again.",
            changes.ref_key("NEW"),
            "floor",
        )
        refused = refuse(
            BELOW_TOMBSTONE,
            f"A row of {self._table} came back after its deletion and could not be given a version above %.",
            "A trigger or policy of the table refuses the UPDATE of its version.",
            "floor",
        )
        first = f"(floor & {VERSION_MAX})" if self._n else "floor"
        body = f"""
DECLARE
  {DECLARE_SAID}
  floor bigint;
BEGIN
{changes.gate}{changes.ask_for_unseen_tombs()}{changes.queue_row("f.floor")}\
  IF NOT FOUND THEN
    floor := {changes.floor("NEW")};
    IF {OURS} THEN
      {below}
    END IF;
    IF {first} >= {self._last} THEN
      {self._out_of_versions(first)}
    END IF;
    PERFORM set_config('{LIFTING}', 'on', true);
    UPDATE {column.table.sql} AS r SET {self._version} = {first} + 1 WHERE {changes.is_same_row("r", "NEW")};
    IF NOT FOUND AND EXISTS (SELECT FROM {column.table.sql} r WHERE {changes.is_same_row("r", "NEW")}) THEN
      {refused}
    END IF;
    PERFORM set_config('{LIFTING}', '', true);
  END IF;
  RETURN NULL;
END
"""
        return changes.function("inserted", body, renders=True), changes.after("inserted", "INSERT")

    def updated(self) -> Made:
        """Below its tombstone nothing is queued: AFTER INSERT of the same row is still to come, and lifts it."""
        changes = self._changes
        new, old = f"NEW.{self._version}", f"OLD.{self._version}"
        stands = refuse(
            VERSION_STANDS,
            f"Captured columns of {self._table} were changed after their version was decided.",
            "A BEFORE trigger runs after capture's: give it a name that sorts before them.",
        )
        body = f"""
DECLARE
  {DECLARE_SAID}
BEGIN
{changes.gate}\
  IF {new} <= {old} THEN
    {stands}
  END IF;
{changes.queue_row(f"GREATEST(f.floor, {changes.ref_key('OLD')})")}\
  RETURN NULL;
END
"""
        when = changes.moved(changes.image("OLD", written=False), changes.image("NEW", written=False))
        return changes.function("updated", body, renders=True), changes.after("updated", "UPDATE", when)

    def deleted(self) -> Made:
        changes, old = self._changes, f"OLD.{self._version}"
        if self._column.on_delete is DeletePolicy.FORBID:
            return forbidden(changes, self._deleted_by_moving())
        if changes.is_ignored:
            last = f"  tombstone_key := {changes.ref_key('OLD')};\n"
            queue = ""
        else:
            last = f"""\
  IF {old} >= {self._last} THEN
    {self._out_of_versions(old)}
  END IF;
  tombstone_key := {changes.ref_key("OLD")} + 1;
{self._said_tombstone()}"""
            queue = f"  IF FOUND THEN\n{changes.queue_tombstone('tombstone_key', changes.ref_key('OLD'))}  END IF;\n"
        body = f"""
DECLARE
  {DECLARE_SAID}
  tombstone_key bigint;
  tombstone text;
BEGIN
{changes.gate}{self._deleted_by_moving()}{last}{changes.raise_tomb("tombstone_key")}{queue}\
  RETURN NULL;
END
"""
        return changes.function("deleted", body), changes.after("deleted", "DELETE")

    def _fields(self, row: str) -> str:
        changes = self._changes
        names = [base for name in self._column.captured for base in changes.shape.written(name)]
        return changes.record(row, [quoted(name) for name in dict.fromkeys(names)])

    def _deleted_by_moving(self) -> str:
        """A row that is there again at the end of the statement changed its partition: no tombstone."""
        changes = self._changes
        if not changes.may_move:
            return ""
        value = f"concat_ws(' ', OLD.{changes.uuid}, {changes.ref_key('OLD')}, '{changes.part}')"
        return f"""\
  IF EXISTS (SELECT FROM {self._column.table.sql} r WHERE {changes.is_same_row("r", "OLD")}) THEN
    PERFORM set_config('{MOVED}', {value}, true);
    RETURN NULL;
  END IF;
"""

    def _said_tombstone(self) -> str:
        """The facade's tombstone has the ref key of its put."""
        changes = self._changes
        low = refuse(
            VERSION_STANDS,
            f"A tombstone % was put for a row of {self._table} at %.",
            "A tombstone stands above the row that it deletes, and keeps its number.",
            "tombstone",
            changes.ref_key("OLD"),
        )
        same = f" OR tombstone_key >> {VERSION_BITS} <> OLD.{self._n}" if self._n else ""
        return f"""\
  IF {OURS} THEN
    tombstone := current_setting('{TOMBSTONE}', true);
    IF substr(tombstone, strpos(tombstone, ' ') + 1) = {changes.name} THEN
      tombstone_key := split_part(tombstone, ' ', 1)::bigint;
      IF tombstone_key <= {changes.ref_key("OLD")}{same} THEN
        {low}
      END IF;
    END IF;
  END IF;
"""

    def _check_number(self) -> str:
        if not self._n:
            return ""
        n = f"NEW.{self._n}"
        refused = refuse(
            OUT_OF_RANGE,
            f"A row of {self._table} has number %, which no ref key can hold.",
            f"Numbers go from 0 to {NUMBER_MAX}.",
            n,
        )
        return f"""\
  IF {n} NOT BETWEEN 0 AND {NUMBER_MAX} THEN
    {refused}
  END IF;
"""

    def _check_version(self) -> str:
        if not self._n:
            return ""
        new = f"NEW.{self._version}"
        return f"""\
      IF {new} NOT BETWEEN 0 AND {VERSION_MAX} THEN
        {self._out_of_versions(new)}
      END IF;
"""

    def _out_of_versions(self, version: str) -> str:
        return refuse(
            OUT_OF_RANGE,
            f"A row of {self._table} is at version %, and there is none after {self._last}.",
            "Delete the row and insert it under a new number." if self._n else "Ask for help.",
            version,
        )


def key_guard(changes: Changes) -> Made:
    """Row keys are for ever, and so are the ids, parents and numbers that lead to them: no other table would follow."""
    keys = changes.key_columns()
    names = ", ".join(name.strip('"') for name in keys)
    refused = refuse(
        KEY_CHANGED,
        f"A row of {plain(str(changes.column.table))} may not change {plain(names)}: row keys are for ever.",
        "Delete the row and insert another.",
    )
    when = changes.moved(changes.record("OLD", keys), changes.record("NEW", keys))
    body = f"\nBEGIN\n  {refused}\nEND\n"
    return changes.function("key", body), changes.before("key", "UPDATE", when)


def forbidden(changes: Changes, moved: str = "") -> Made:
    """`on_delete: forbid`."""
    refused = refuse(
        DELETE_REFUSED,
        f"Rows of {plain(str(changes.column.table))} are not deleted.",
        f"The layout says on_delete: forbid of {changes.column.name}.",
    )
    body = f"\nBEGIN\n{moved}  {refused}\nEND\n"
    return changes.function("deleted", body), changes.after("deleted", "DELETE")
