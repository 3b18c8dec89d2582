"""What a reset of a group's offsets would do: how many cells are delivered again, how many are never delivered.

And which groups are not reset like that, nor removed: the store's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from schemaless_core.cell.answers import Location
from schemaless_core.datastore import Datastore
from schemaless_core.triggers.registry import Start
from schemaless_core.triggers.triggers import ShardOfGroup
from tripstore.cli.questions import AnswerRefused

#: Pages asked for in one call.
_SHARDS_PER_CALL = 256
#: Before the colon of a group of the store's own; no trigger's name has one.
_MIRROR, _INDEX = "mirror", "index"


class ShardReset(msgspec.Struct, frozen=True):
    """One shard's offset before and after, and what that means for the cells between; of all columns."""

    shard: int
    before: int | None
    after: int
    again: int
    skipped: int


class ResetDocument(msgspec.Struct, frozen=True):
    """The JSON document of `reset`; sums are over all its shards."""

    group: str
    to: str
    is_done: bool
    again: int
    skipped: int
    shards: list[ShardReset]


def check_reset(group: str, to: Start) -> None:
    """The reverse mirror skips nothing: what it skipped was acknowledged, and would be gone on the way back."""
    kind, colon, _name = group.partition(":")
    if not colon or kind != _MIRROR or to == "beginning":
        return
    raise AnswerRefused(
        f"{group} skips nothing: Postgres would lack what Schemaless has, and the way back lose it.",
        hint="`--to beginning` has it look at all cells again. Cells in its way: `tripstore mirror parked --reverse`.",
    )


def check_removal(group: str) -> None:
    """What a group of the store's own knows is part of the store."""
    kind, colon, name = group.partition(":")
    if not colon:
        return
    if kind == _MIRROR:
        hint = (
            "It is needed until `tripstore cutover complete`, which removes it. To have it look at all cells again:"
            f" `tripstore triggers reset {group} --to beginning`."
        )
    elif kind == _INDEX:
        index = name.partition(":")[0]
        hint = f"`tripstore index drop {index}` takes a version away, `tripstore index verify {index}` compares one."
    else:
        hint = "`tripstore triggers status` shows it."
    raise AnswerRefused(f"{group} is the store's own group; nothing was changed.", hint=hint)


def planned_reset(datastore: Datastore, group: str, to: Start, shards: Sequence[int] | None) -> ResetDocument:
    """Look where the offsets would go. Nothing is changed."""
    [status] = datastore.triggers.status(group)
    chosen = [shard for shard in status.shards if shards is None or shard.shard in shards]
    return reset_document(group, to, chosen, _places(datastore, to, chosen), is_done=False)


def reset_document(
    group: str, to: Start, before: Sequence[ShardOfGroup], after: Mapping[int, int], *, is_done: bool
) -> ResetDocument:
    """Say what becomes of the cells between the offsets before and after."""
    resets = [_reset(shard.shard, shard.added_id, after[shard.shard]) for shard in before]
    again, skipped = sum(each.again for each in resets), sum(each.skipped for each in resets)
    said = to.isoformat() if isinstance(to, datetime) else to
    return ResetDocument(group, said, is_done, again, skipped, resets)


def _reset(shard: int, before: int | None, after: int) -> ShardReset:
    moved = 0 if before is None else after - before
    return ShardReset(shard, before, after, max(0, -moved), max(0, moved))


def _places(datastore: Datastore, to: Start, shards: Sequence[ShardOfGroup]) -> dict[int, int]:
    """The last added ids that count as delivered afterwards."""
    if to == "beginning":
        return {shard.shard: 0 for shard in shards}
    store = datastore.as_copier()  # its log is read in every state of a shard
    location: Location = to if isinstance(to, datetime) else 0
    places: dict[int, int] = {}
    for first in range(0, len(shards), _SHARDS_PER_CALL):
        part = {shard.shard: location for shard in shards[first : first + _SHARDS_PER_CALL]}
        for shard, page in store.get_cells_for_shards(part, 1).items():
            places[shard] = page.head if to == "now" else page.start
    return places
