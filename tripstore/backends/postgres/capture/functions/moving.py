"""`Moving`: a child row gets another number or another parent. That is a tombstone where it was, and a row elsewhere.

The tombstone is written BEFORE: so those of a statement are there when the first of its rows looks where it may begin,
and of two rows one may take the number that the other leaves. What is elsewhere comes as a row that was inserted.
"""

from __future__ import annotations

from dataclasses import replace

from tripstore.backends.postgres.capture.functions.bounds import Bounds
from tripstore.backends.postgres.capture.functions.changes import DECLARE_SAID, OURS, Changes
from tripstore.backends.postgres.capture.functions.function import Function
from tripstore.backends.postgres.capture.functions.keys import refuse_new_keys, refused_new_keys
from tripstore.backends.postgres.capture.functions.lifting import Lifting
from tripstore.backends.postgres.capture.functions.parents import DECLARE_PARENT, fill_uuid
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger
from tripstore.backends.postgres.capture.names import LAST, MOVING
from tripstore.backends.postgres.layout.layout import quoted

#: Before what an earlier version had not, which refused every other key.
MOVED = "-- it has another key, and the trigger before this one has seen to it"
#: The trigger without which the key of a child is refused as before, and those that only fire where it has let one.
MOVE, THOSE_AFTER = "move", ("moved", "moved_lift")


class Moving:
    """Of rows with versions. `made` is empty for those that keep their keys: parents, and what is never deleted."""

    def __init__(self, changes: Changes, bounds: Bounds, lifting: Lifting) -> None:
        column = changes.column
        assert column.ref_key.version is not None
        self._changes = changes
        self._bounds = bounds
        self._lifting = lifting
        self._parent = quoted(column.parent or "")
        self._version = quoted(column.ref_key.version)
        self._may = column.takes_new_keys

    def made(self, inserted: Function, lift: Function) -> list[tuple[Function, RowTrigger | None]]:
        """With what an INSERT has behind it, in the same order."""
        if not self._may:
            return []
        after = [
            (function, self._after(verb, function))
            for verb, function in zip(THOSE_AFTER, (inserted, lift), strict=True)
        ]
        return [self.move(), *after]

    def move(self) -> tuple[Function, RowTrigger]:
        """Its name sorts before that of the trigger that decides on versions."""
        changes, bounds = self._changes, self._bounds
        old, new = f"OLD.{self._version}", f"NEW.{self._version}"
        tombstone = changes.ref_key("OLD")
        queue, out = "", ""
        if not changes.is_ignored:
            out = f"  IF {old} >= {bounds.last} THEN\n    {bounds.out_of_versions(old)}\n  END IF;\n"
            tombstone = f"{tombstone} + 1"
            queue = f"  IF FOUND THEN\n{changes.queue_tombstone(tombstone, changes.ref_key('OLD'))}  END IF;\n"
        body = f"""
DECLARE
  {DECLARE_SAID}
  {DECLARE_PARENT}
BEGIN
{changes.refuse_lost_columns()}\
  IF {OURS} THEN
    {refused_new_keys(changes)}
  END IF;
  IF NEW.{changes.uuid} = OLD.{changes.uuid} AND NEW.{self._parent} IS DISTINCT FROM OLD.{self._parent} THEN
    NEW.{changes.uuid} := NULL;
  END IF;
{fill_uuid(changes)}{bounds.check_number()}{changes.gate}{out}{changes.raise_tomb(tombstone)}{queue}\
  {new} := {bounds.first};
  PERFORM set_config('{MOVING}', {self._lifting.of("NEW")}, true);
  RETURN NEW;
END
"""
        trigger = changes.before(MOVE, self._event, changes.keys_moved)
        return replace(changes.function(MOVE, body), is_later=True), replace(trigger, needs=trigger.name)

    def _after(self, verb: str, function: Function) -> RowTrigger:
        changes = self._changes
        trigger = changes.after(verb, self._event, changes.keys_moved)
        return replace(trigger, function=function.name, needs=self._move)

    @property
    def _event(self) -> str:
        """A condition costs each statement, and most of them name no key. One that a company's trigger sets alone is
        refused.
        """
        return f"UPDATE OF {', '.join(self._changes.key_columns())}"

    @property
    def _move(self) -> str:
        return f"{LAST}{self._changes.part}_{MOVE}"

    def refuse_unless_moved(self) -> str:
        """What decides on versions refuses other keys, unless `move` was there: a table may lack it."""
        if not self._may:
            return refuse_new_keys(self._changes)
        moved = f"pg_catalog.current_setting('{MOVING}', true) OPERATOR(pg_catalog.=) {self._lifting.of('NEW')}"
        return refuse_new_keys(self._changes, f"    {MOVED}\n    IF {moved} THEN\n      RETURN NEW;\n    END IF;\n")

    def leave_to_moved(self) -> str:
        """What logs a version leaves a row with another key to `moved`."""
        if not self._may:
            return ""
        return f"  {MOVED}\n  IF {self._changes.keys_moved} THEN\n    RETURN NULL;\n  END IF;\n"
