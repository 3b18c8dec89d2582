"""What is to be done about a difference between authority and mirror: pure, from what both hold.

The authority says what is right. What it can lift is carried anew under a higher ref key, and no cell is touched. What
the mirror lacks is put. Only bytes that cannot be put right in this way are changed where they stand, or taken away.
What no rule decides is left to the operator, with the reason.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from schemaless_core.cell.canonical import canonical_bytes, from_canonical
from schemaless_core.cell.cell import CellKey, ColumnKey
from schemaless_core.errors import InvalidCell


class Action(StrEnum):
    """What repair does to a cell."""

    LIFT = "lift"  #: The authority's row gets a higher version, and the copy follows. No cell is touched.
    PUT = "put"  #: The mirror gets the cell that it lacks.
    MEND = "mend"  #: The bytes of the mirror's cell are replaced by the authority's.
    BURY = "bury"  #: The authority lost the row without a tombstone: it gets one, which is carried.
    PURGE = "purge"  #: The mirror's cell is deleted.
    NOTHING = "nothing"  #: They are equal by now.
    LEAVE = "leave"  #: A person must decide; `why` says what.


class HeldVersion(NamedTuple):
    """A version of a column as one side holds it."""

    ref_key: int
    body: bytes

    @property
    def is_sound(self) -> bool:
        """Whether its bytes are canonical JSON."""
        try:
            return canonical_bytes(from_canonical(self.body)) == self.body
        except (msgspec.MsgspecError, InvalidCell, RecursionError):
            return False


class Rendered(HeldVersion):
    """The same, of a store that keeps no bytes: they were made of what it holds just now, and so are canonical."""

    __slots__ = ()

    @property
    def is_sound(self) -> bool:
        return True


class Returned(Rendered):
    """A tombstone with a row below it, which came back unseen: by key it is deleted, though it is there."""

    __slots__ = ()


class UnknownVersion(NamedTuple):
    """A version of which a side cannot say whether it has it."""

    why: str


Version = HeldVersion | UnknownVersion | None


class Powers(NamedTuple):
    """What can be done about one column."""

    #: The ref key that the authority's row would be lifted to; None: it has no version, or is not there any more.
    lift_to: int | None
    #: Whether the cells of the mirror can be changed where they stand.
    can_mend: bool
    #: Whether the authority forgets rows that are deleted: what it lacks may be right in the mirror.
    forgets: bool = False
    #: Whether the cells of the authority may be changed where they stand, because the operator said so.
    may_mend_authority: bool = False
    #: Where the tombstone would stand of a row that the authority has neither as a row nor as a tombstone above it;
    #: None: it has one of them, or rows of this column get none.
    bury_at: int | None = None
    #: Whether the mirror holds more of this row: it was one, and no cell that was written by mistake.
    was_row: bool = False


class RepairStep(NamedTuple):
    """One thing to do, and why it is this."""

    action: Action
    key: CellKey
    why: str
    #: What the mirror is to hold under the key: of PUT and MEND.
    body: bytes | None = None
    #: Whose cell is changed: the mirror's, but for what the operator asked for.
    is_of_authority: bool = False


_INSERT_ANEW = (
    "keep the rows of its parent aside, DELETE the parent, and INSERT all of them again, this one under a number above"
    " its tombstone"
)
_FORGOTTEN = "deletions of this column are ignored: its row may have been deleted"


def plan_latest(
    column: ColumnKey, ours: Version, theirs: HeldVersion | None, at: Version, powers: Powers
) -> RepairStep:
    """The next step towards the latest cells being equal: the authority's, the mirror's.

    `at` is what the authority has under the ref key of the mirror's.
    """
    if isinstance(ours, UnknownVersion):
        return _step(Action.LEAVE, column, theirs.ref_key if theirs else 0, ours.why)
    if isinstance(ours, Returned):
        return _plan_returned(column, ours, powers)
    if ours is not None and not ours.is_sound:
        return _plan_authority(column, ours, theirs, powers)
    if theirs is None:
        if ours is None:
            return _step(Action.NOTHING, column, 0, "no side has a cell")
        return _put(column, ours, "the mirror lacks it")
    if ours is not None and ours == theirs:
        return _step(Action.NOTHING, column, ours.ref_key, "they are equal")
    if ours is not None and theirs.ref_key < ours.ref_key:
        return _put(column, ours, "the mirror has an older version")
    if powers.bury_at is not None and (at == theirs or powers.was_row):
        return _step(Action.BURY, column, powers.bury_at, "its row is gone, and left no tombstone")
    if at == theirs and ours is None and powers.forgets:
        return _step(Action.LEAVE, column, theirs.ref_key, _FORGOTTEN)
    if at == theirs:
        return _put(column, theirs, "it came between the two looks")
    if ours is not None and theirs.is_sound and powers.lift_to is not None:
        why = "its bytes differ" if theirs.ref_key == ours.ref_key else "the mirror has a version that is not its"
        return _step(Action.LIFT, column, powers.lift_to, why)
    return _in_place(column, theirs, ours if ours is not None and ours.ref_key == theirs.ref_key else at, powers)


def equal_latest(column: ColumnKey, ours: Version) -> RepairStep:
    """What `plan_latest` says of latest cells that are equal and sound."""
    assert isinstance(ours, HeldVersion)
    return _step(Action.NOTHING, column, ours.ref_key, "they are equal")


def plan_older(key: CellKey, ours: Version, theirs: HeldVersion | None, powers: Powers) -> RepairStep:
    """The step towards an older version being equal on both sides. No lift reaches those."""
    column = ColumnKey(key.row_key, key.column_name)
    if isinstance(ours, HeldVersion) and not ours.is_sound:
        return _plan_authority(column, ours, theirs, powers)
    if theirs is None:
        if isinstance(ours, HeldVersion):
            return _put(column, ours, "the mirror lacks this version")
        return _step(Action.NOTHING, column, key.ref_key, "no side has this version")
    if ours == theirs:
        return _step(Action.NOTHING, column, key.ref_key, "they are equal")
    return _in_place(column, theirs, ours, powers)


def _in_place(column: ColumnKey, theirs: HeldVersion, ours: Version, powers: Powers) -> RepairStep:
    """The mirror's bytes are wrong where they stand: replace them by what the authority has there, or delete them."""
    place = column, theirs.ref_key
    if isinstance(ours, UnknownVersion) and theirs.is_sound:
        return _step(Action.LEAVE, *place, ours.why)
    if not powers.can_mend:
        what = "its row differs" if isinstance(ours, HeldVersion) else "it has a row of its own"
        return _step(Action.LEAVE, *place, f"{what}, and no cell of the legacy store is changed by repair: use SQL")
    if isinstance(ours, HeldVersion):
        why = "its bytes differ" if theirs.is_sound else "its bytes are no canonical JSON"
        return _step(Action.MEND, *place, why, ours.body)
    if isinstance(ours, UnknownVersion):
        return _step(Action.PURGE, *place, f"its bytes are no canonical JSON, and what stood there is lost: {ours.why}")
    if powers.forgets:
        return _step(Action.LEAVE, *place, _FORGOTTEN)
    return _step(Action.PURGE, *place, "the authority has no such cell")


def _plan_returned(column: ColumnKey, ours: Returned, powers: Powers) -> RepairStep:
    why = "its row came back unseen, and stands below its tombstone"
    if powers.lift_to is not None:
        return _step(Action.LIFT, column, powers.lift_to, why)
    return _step(Action.LEAVE, column, ours.ref_key, f"{why}; it has no version to lift: {_INSERT_ANEW}")


def _plan_authority(column: ColumnKey, ours: HeldVersion, theirs: HeldVersion | None, powers: Powers) -> RepairStep:
    """The authority's own bytes are damaged. The mirror may have the right ones; only a person can say so."""
    why = "the authority's bytes are no canonical JSON"
    if theirs is None or theirs.ref_key != ours.ref_key or not theirs.is_sound:
        return _step(Action.LEAVE, column, ours.ref_key, f"{why}, and the mirror has no others")
    if not powers.may_mend_authority:
        return _step(Action.LEAVE, column, ours.ref_key, f"{why}; --mend-authority takes the mirror's")
    return _step(Action.MEND, column, ours.ref_key, why, theirs.body)._replace(is_of_authority=True)


def _put(column: ColumnKey, ours: HeldVersion, why: str) -> RepairStep:
    return _step(Action.PUT, column, ours.ref_key, why, ours.body)


def _step(action: Action, column: ColumnKey, ref_key: int, why: str, body: bytes | None = None) -> RepairStep:
    return RepairStep(action, CellKey(*column, ref_key), why, body)
