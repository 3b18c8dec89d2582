"""Where a version would stand that repair has the authority write: a row that is lifted, or the tombstone of one."""

from __future__ import annotations

from schemaless_core.cell.cell import REF_KEY_MAX, ColumnKey
from tripstore.backends.postgres.layout.layout import LEGACY_ID, VERSION_MAX, DeletePolicy, Layout, RefKeyKind
from tripstore.engines.validation.repair import HeldVersion, Returned, UnknownVersion, Version

TOMBSTONE = b"null"
#: The last versions of a row: one that is lifted to them could hardly be changed again.
LAST_VERSIONS = 1_000


def lift_target(layout: Layout, column: ColumnKey, ours: Version, theirs: HeldVersion | None) -> int | None:
    """The lowest ref key above both that the authority's row can have; None: it can have none, or would be frozen."""
    if not isinstance(ours, HeldVersion) or column.column_name == LEGACY_ID:
        return None
    if ours.body == TOMBSTONE and not isinstance(ours, Returned):
        return None
    highest = ours.ref_key if theirs is None else max(ours.ref_key, theirs.ref_key)
    mapped = layout.columns.get(column.column_name)
    if mapped is None or mapped.ref_key.kind is RefKeyKind.VERSION:
        return None if highest >= REF_KEY_MAX - LAST_VERSIONS else highest + 1
    number, version = mapped.split(highest)
    if mapped.ref_key.kind is RefKeyKind.FACT or number != mapped.split(ours.ref_key)[0]:
        return None
    return None if version >= VERSION_MAX - LAST_VERSIONS else highest + 1


def bury_target(layout: Layout, column: ColumnKey, ours: Version, theirs: HeldVersion | None) -> int | None:
    """Where the tombstone of a row would stand of which the authority has nothing, or the tombstone of a row before it;
    None: it has something, or rows of the column get no tombstones.
    """
    if theirs is None or theirs.body == TOMBSTONE or isinstance(ours, UnknownVersion):
        return None
    if ours == theirs or not theirs.is_sound:  # the second costs a decoding, and most have the first answer
        return None
    if column.column_name == LEGACY_ID:
        return theirs.ref_key if ours is None else None
    mapped = layout.columns.get(column.column_name)
    if mapped is None or mapped.on_delete is DeletePolicy.IGNORE or theirs.ref_key >= REF_KEY_MAX:
        return None
    number = mapped.split(theirs.ref_key)[0]
    is_other_child = (
        mapped.ref_key.kind is RefKeyKind.CHILD and ours is not None and (mapped.split(ours.ref_key)[0] != number)
    )
    if ours is not None and not is_other_child and not came_back(layout, column, ours, theirs):
        return None
    target = theirs.ref_key + 1
    return target if mapped.ref_key.kind is RefKeyKind.FACT or mapped.split(target)[0] == number else None


def came_back(layout: Layout, column: ColumnKey, ours: Version, theirs: HeldVersion | None) -> bool:
    """Whether the authority's tombstone is that of a row before the mirror's: only its log says that one came."""
    mapped = layout.columns.get(column.column_name)
    if mapped is None or mapped.ref_key.kind is RefKeyKind.FACT or theirs is None:
        return False
    if not isinstance(ours, HeldVersion) or ours.body != TOMBSTONE or ours.ref_key >= theirs.ref_key:
        return False
    return mapped.split(ours.ref_key)[0] == mapped.split(theirs.ref_key)[0]
