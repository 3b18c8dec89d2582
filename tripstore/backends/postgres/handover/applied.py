"""`AppliedRows`: up to which cell of each shard Postgres has all that Schemaless has, as rows of Postgres.

A row is committed after the rows of the company's tables that it speaks of. A standby has a prefix of the order of
commits: one that has a position has everything up to it, and one that lacks something has the position of before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tripstore.backends.postgres.capture.timeline import TIMELINE
from tripstore.backends.postgres.wire.wire import LegacyConnection

#: An epoch of the shard's log, and an added id in it.
Place = tuple[int, int]


def _arrays(more: int) -> str:
    """Shards, and so many numbers of each."""
    return f"ROWS FROM (pg_catalog.unnest(%s::int[]){', pg_catalog.unnest(%s::bigint[])' * more})"


# Nothing was lost before there were positions where this Postgres never began a timeline. Where it is the authority
# nothing that it has came from the other side alone.
_BEGIN = f"""\
INSERT INTO tripstore.applied (shard, epoch, added_id, timeline)
SELECT v.shard, v.epoch, CASE WHEN {TIMELINE} = 1 OR (a.backend = 'postgres' AND a.target IS NULL) THEN v.added_id
    ELSE 0 END, {TIMELINE}
FROM {_arrays(2)} AS v (shard, epoch, added_id), tripstore.authority AS a
ON CONFLICT (shard) DO NOTHING"""
_FIND = f"SELECT shard, epoch, added_id, timeline, {TIMELINE} FROM tripstore.applied WHERE shard = ANY (%s::int[])"
_FIND_ALL = "SELECT shard, epoch, added_id FROM tripstore.applied"
_LOOK = f"""\
SELECT {TIMELINE}, COALESCE(sum(added_id), 0)::bigint FROM tripstore.applied WHERE shard = ANY (%s::int[])"""
# A position that a crash takes back is one of before. What it speaks of is durable already.
_HOLD_ROW = """\
SELECT pg_catalog.set_config('synchronous_commit', 'off', true) FROM tripstore.authority FOR SHARE"""
_MOVE = f"""\
UPDATE tripstore.applied AS a SET epoch = v.epoch, added_id = v.added_id, timeline = v.timeline
FROM {_arrays(6)} AS v (shard, was_epoch, was_added_id, epoch, added_id, timeline, looked_at), tripstore.authority AS r
WHERE a.shard = v.shard AND a.epoch = v.was_epoch AND a.added_id = v.was_added_id AND v.timeline = {TIMELINE}
AND COALESCE(v.looked_at = CASE WHEN r.target IS NULL THEN r.epoch ELSE r.epoch - 1 END, true)
RETURNING a.shard"""
_LOWER = f"""\
UPDATE tripstore.applied AS a SET epoch = v.epoch, added_id = v.added_id
FROM {_arrays(4)} AS v (shard, was_epoch, was_added_id, epoch, added_id)
WHERE a.shard = v.shard AND a.epoch = v.was_epoch AND a.added_id = v.was_added_id RETURNING a.shard"""


class Applied(NamedTuple):
    """A row."""

    place: Place
    #: Of the Postgres on which it was moved last.
    timeline: int


class Move(NamedTuple):
    """Where a position goes, from where, and what was believed when that which it speaks of was applied."""

    was: Place
    to: Place
    #: The timeline of Postgres when the shard was claimed.
    timeline: int
    #: When the authority row that was looked at was opened; None: nothing was applied by any row.
    looked_at: int | None


def begin(connection: LegacyConnection, places: Mapping[int, Place]) -> tuple[dict[int, Applied], int]:
    """Make the rows that are missing, from the offsets beside the shards; return all of these, and the timeline."""
    epochs, added_ids = [place[0] for place in places.values()], [place[1] for place in places.values()]
    shards = list(places)
    found = connection.rows(f"{_BEGIN}; {_FIND}", (shards, epochs, added_ids, shards))
    rows = {shard: Applied((epoch, added_id), timeline) for shard, epoch, added_id, timeline, _now in found}
    return rows, found[0][4] if found else 0


def find_all(connection: LegacyConnection) -> dict[int, Place]:
    return {shard: (epoch, added_id) for shard, epoch, added_id in connection.rows(_FIND_ALL)}


def look(connection: LegacyConnection, shards: Collection[int]) -> tuple[int, int]:
    """The timeline, and the sum of these shards' added ids: what costs one row and tells whether any went back."""
    ((timeline, total),) = connection.rows(_LOOK, (list(shards),))
    return timeline, total


def move(connection: LegacyConnection, moves: Mapping[int, Move]) -> set[int]:
    """Move positions, each only while it, the timeline and the authority row are what they were; return the moved."""
    was, to = [each.was for each in moves.values()], [each.to for each in moves.values()]
    believed = [each.timeline for each in moves.values()], [each.looked_at for each in moves.values()]
    values = (list(moves), *_parts(was), *_parts(to), *believed)
    return {shard for (shard,) in connection.rows(f"{_HOLD_ROW}; {_MOVE}", values)}


def lower(connection: LegacyConnection, places: Mapping[int, tuple[Place, Place]]) -> set[int]:
    """Take positions back from where they are found to where the offsets are; return those that were."""
    was, to = [pair[0] for pair in places.values()], [pair[1] for pair in places.values()]
    return {shard for (shard,) in connection.rows(_LOWER, (list(places), *_parts(was), *_parts(to)))}


def _parts(places: Sequence[Place]) -> tuple[list[int], list[int]]:
    return [place[0] for place in places], [place[1] for place in places]
