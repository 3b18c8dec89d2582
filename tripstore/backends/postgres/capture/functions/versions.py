"""Functions and triggers of rows that change in place: one row with versions, or child rows with number and version.

A version is decided last of all BEFORE triggers, and what was decided is logged first of all AFTER triggers. A row
that comes back starts above its tombstone: AFTER INSERT looks, since a tombstone may have been committed while the
INSERT waited, and the row is lifted.
"""

from __future__ import annotations

from tripstore.backends.postgres.capture.functions.bounds import Bounds
from tripstore.backends.postgres.capture.functions.changes import DECLARE_SAID, JUMP, OURS, SAID_BY_WRITER, Changes
from tripstore.backends.postgres.capture.functions.function import PINNED, SEARCH_PATH, SEEING, Function, plain, refuse
from tripstore.backends.postgres.capture.functions.keys import forbidden
from tripstore.backends.postgres.capture.functions.lifting import Lifting
from tripstore.backends.postgres.capture.functions.moving import Moving
from tripstore.backends.postgres.capture.functions.parents import DECLARE_PARENT, fill_uuid
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger
from tripstore.backends.postgres.capture.names import TOMBSTONE
from tripstore.backends.postgres.layout.layout import VERSION_BITS, VERSION_MAX, DeletePolicy, quoted
from tripstore.backends.postgres.sqlstates import BELOW_TOMBSTONE, VERSION_STANDS

Made = tuple[Function, RowTrigger | None]


class VersionedRows:
    """`{version: v}` and `{column: n, version: v}`."""

    def __init__(self, changes: Changes) -> None:
        column = changes.column
        assert column.ref_key.version is not None
        self._changes = changes
        self._column = column
        self._table = plain(str(column.table))
        self._version = quoted(column.ref_key.version)
        self._bounds = Bounds(changes)
        self._n = self._bounds.n
        self._lifting = Lifting(changes)
        self._moving = Moving(changes, self._bounds, self._lifting)

    def made(self) -> list[Made]:
        inserted, lift = self.inserted(), self._lifting.lift()
        lifting = [lift, (self._lifting.lifted(), None)]
        made = [self.insert(), self.update(), inserted, *lifting, self.updated(), self.deleted()]
        return [*made, *self._moving.made(inserted[0], lift[0])]

    def insert(self) -> Made:
        """Versions begin at the first; the facade and the reverse mirror say theirs."""
        changes, version = self._changes, f"NEW.{self._version}"
        body = f"""
DECLARE
  {DECLARE_SAID}
  {DECLARE_PARENT}
BEGIN
{changes.refuse_lost_columns(also=fill_uuid(changes))}{self._bounds.check_number()}\
  IF said IS NULL OR NOT ({OURS}) OR {version} IS NULL THEN
    {version} := {self._bounds.first};
  ELSE
{self._bounds.check_version(version) or "    NULL;"}
  END IF;
  RETURN NEW;
END
"""
        # The parent's rows need no trigger when they come with the default. Children need their parent's UUID.
        when = None if self._column.is_child else f"{version} IS DISTINCT FROM {self._bounds.first}"
        return changes.function("insert", body), changes.before("insert", "INSERT", when)

    def update(self) -> Made:
        """Fires when a key, a captured column or the version moved, as images: 1.10 is not 1.1."""
        changes = self._changes
        new, old = f"NEW.{self._version}", f"OLD.{self._version}"
        too_low = refuse(
            VERSION_STANDS,
            f"A row of {self._table} has version % and was sent version %.",
            "A put of an older version is history: it changes no row.",
            old,
            new,
        )
        # Runs as the writer, under any search_path.
        body = f"""
DECLARE
  said pg_catalog.text;
BEGIN
{changes.refuse_lost_columns()}{self._moving.refuse_unless_moved()}\
  IF {new} OPERATOR(pg_catalog.=) {old} THEN
    NULL;
  ELSE
    said := {SAID_BY_WRITER};
    IF {new} IS NOT NULL AND (said OPERATOR(pg_catalog.=) 'facade' OR said OPERATOR(pg_catalog.=) 'reverse'
      OR {self._lifting.is_lifted("NEW")}) THEN
      IF {new} OPERATOR(pg_catalog.<) {old} THEN
        {too_low}
      END IF;
{self._bounds.check_version(new)}\
      RETURN NEW;
    END IF;
    {new} := {old};
    IF NOT ({changes.fields_moved}) THEN
      RETURN NEW;
    END IF;
  END IF;
  IF {old} OPERATOR(pg_catalog.>=) {self._bounds.last} THEN
    {self._bounds.out_of_versions(old)}
  END IF;
  {new} := {old} OPERATOR(pg_catalog.+) 1;
  RETURN NEW;
END
"""
        return changes.as_writer("update", body), changes.before("update", "UPDATE", changes.anything_moved)

    def inserted(self) -> Made:
        changes = self._changes
        below = refuse(
            BELOW_TOMBSTONE,
            f"A row of {self._table} was put at ref key %, and was deleted at %.",
            "The deletion came in between: start again.",
            changes.ref_key("NEW"),
            "floor",
        )
        first = f"(floor & {VERSION_MAX})" if self._n else "floor"
        # A child's has been looked at before the INSERT.
        lost = "" if self._column.is_child else changes.refuse_lost_columns()
        body = f"""
DECLARE
  {DECLARE_SAID}
  floor bigint;
BEGIN
{lost}{changes.gate}{changes.ask_for_unseen_tombs()}{changes.queue_row("f.floor", above_floor=True)}\
  IF NOT FOUND THEN
    floor := {changes.begins_above("NEW")};
    IF {OURS} THEN
      {below}
    END IF;
    IF {first} >= {self._bounds.last} THEN
      {self._bounds.out_of_versions(first)}
    END IF;
    {self._lifting.said("floor")}
  ELSE
{changes.refuse_unseen_cell()}\
  END IF;
  RETURN NULL;
END
"""
        return changes.function("inserted", body, PINNED | changes.rendering), changes.after("inserted", "INSERT")

    def updated(self) -> Made:
        """A row of this very transaction may stand below its tombstone yet: its AFTER INSERT is to come, and lifts it.

        All others stand above theirs, and are spared the look. A version that is not the next is one that was lifted:
        any session can set what says so, but not where a row has to begin. The first IF is its own: what holds a SELECT
        costs microseconds even where it is not reached.
        """
        changes = self._changes
        new, old = f"NEW.{self._version}", f"OLD.{self._version}"
        stands = refuse(
            VERSION_STANDS,
            f"The version of a row of {self._table} was set from % to %, after it was decided.",
            "A BEFORE trigger runs after capture's: give it a name that sorts before them.",
            old,
            new,
        )
        jumps = refuse(
            VERSION_STANDS,
            f"The version of a row of {self._table} was set from % to %, and versions rise by one.",
            "The layout says which column is its version: leave it out of the UPDATE.",
            old,
            new,
        )
        before = changes.ref_key("OLD")
        body = f"""
DECLARE
  {DECLARE_SAID}
BEGIN
{changes.gate}{self._moving.leave_to_moved()}\
  IF {new} <= {old} THEN
    {stands}
  END IF;
  {JUMP}
  IF {new} > {old} + 1 THEN
    IF ({OURS}) IS NOT TRUE AND {changes.ref_key("NEW")} IS DISTINCT FROM {changes.begins_above("NEW")} + 1 THEN
      {jumps}
    END IF;
  END IF;
  IF age(OLD.xmin) > 0 THEN
{changes.queue_row(before, above_floor=False)}\
  ELSE
{changes.queue_row(changes.previous_of_lifted(before), above_floor=True)}{changes.refuse_unseen_cell()}\
  END IF;
  RETURN NULL;
END
"""
        # No version moves without the BEFORE trigger, which is the last of all.
        when = f"{old} OPERATOR(pg_catalog.<>) {new}"
        settings = SEARCH_PATH | changes.rendering
        return changes.function("updated", body, settings), changes.after("updated", "UPDATE", when)

    def deleted(self) -> Made:
        changes, old = self._changes, f"OLD.{self._version}"
        if self._column.on_delete is DeletePolicy.FORBID:
            return forbidden(changes, self._deleted_by_moving())
        if changes.is_ignored:
            last = f"  tombstone_key := {changes.ref_key('OLD')};\n"
            queue = ""
        else:
            last = f"""\
  IF {old} >= {self._bounds.last} THEN
    {self._bounds.out_of_versions(old)}
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
{changes.refuse_lost_columns("OLD")}{changes.gate}{self._deleted_by_moving()}{last}{changes.keep_legacy_id()}{changes.raise_tomb("tombstone_key")}{queue}\
  RETURN NULL;
END
"""
        settings = SEEING if changes.may_move else PINNED
        return changes.function("deleted", body, settings), changes.after("deleted", "DELETE")

    def _deleted_by_moving(self) -> str:
        """A row that is there again at the end of the statement changed its partition: no tombstone."""
        changes = self._changes
        if not changes.may_move:
            return ""
        return f"""\
  IF EXISTS (SELECT FROM {self._column.table.sql} r WHERE {changes.is_same_row("r", "OLD")}) THEN
{changes.keep_moved()}\
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
