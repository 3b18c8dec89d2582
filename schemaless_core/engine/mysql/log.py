"""The log of a shard: cells by added id, many shards per round trip, and the history of its epochs.

Repair may have purged added ids. They are asked for only when a slice has a gap: hardly ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from pymysql import err

from schemaless_core.cell.standing import ShardHead
from schemaless_core.cell.stored import StoredCell
from schemaless_core.engine.base import EpochOpening, LogSlice
from schemaless_core.engine.mending import PURGED_PER_LOOK
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.reads import heads, heads_from, heads_statement, within
from schemaless_core.engine.mysql.rows import utc
from schemaless_core.engine.mysql.wire.connection import DeadlineConnection
from schemaless_core.engine.mysql.wire.translation import is_missing
from schemaless_core.engine.purged import has_gap, with_purged
from schemaless_core.errors import missing_shard

LOG = """\
(SELECT {shard} AS shard, added_id, row_key, column_name, ref_key, body, created_at FROM {cell}
 WHERE added_id > {start} ORDER BY added_id LIMIT {limit})"""

CREATED_AT = "SELECT created_at FROM {cell} WHERE added_id >= %s ORDER BY added_id LIMIT 1"
PURGED = """\
SELECT added_id FROM {purged} WHERE shard = %s AND added_id > %s AND added_id <= %s ORDER BY added_id LIMIT %s"""

EPOCHS = "SELECT epoch, first_added_id, opened_at, why FROM {history} WHERE shard = %s ORDER BY epoch"

#: Shards per statement; with more the server's parser costs more than the round trip saved.
SHARDS_PER_STATEMENT = 64


class Page(NamedTuple):
    """What one connection brought; shards that are in neither are to be asked for anew."""

    slices: dict[int, LogSlice]
    #: Their cells are here, and another connection has to look at their heads: this one was left before that.
    unseen: dict[int, LogSlice]
    size: int


def log(connection: DeadlineConnection, names: Names, starts: Mapping[int, int], limit: int, left: int) -> Page:
    """Of many shards look at the heads first, then fetch from those that moved only; `left`: bytes of bodies."""
    if len(starts) > SHARDS_PER_STATEMENT:
        before = heads(connection, names, starts.keys())
        _check_present(starts, before)
        moved = {shard: start for shard, start in starts.items() if before[shard].head > start}
    else:
        before, moved = {}, dict(starts)
    slices = {shard: LogSlice(before[shard], []) for shard in starts if shard not in moved}
    wanted, size = list(moved), 0
    for first in range(0, len(wanted), SHARDS_PER_STATEMENT):
        if size >= left:
            return Page(slices, {}, size)
        chunk = {shard: moved[shard] for shard in wanted[first : first + SHARDS_PER_STATEMENT]}
        # With one cell of each shard the page is as small as it can be.
        connection.row_bytes_left = room = math.inf if limit == 1 else left - size
        found, is_cut = _fetch(connection, names, chunk, limit, room)
        size += sum(len(cell.body) for each in found.values() for cell in each.cells)
        if is_cut:
            return Page(slices, found, size)
        slices |= _with_gaps(connection, names, starts, found, limit)
    return Page(slices, {}, size)


def seen(
    connection: DeadlineConnection, names: Names, starts: Mapping[int, int], page: Page, heads: Mapping[int, ShardHead]
) -> dict[int, LogSlice]:
    """Slices whose shards were looked at by another connection."""
    _check_present(page.unseen, heads)
    slices = {
        shard: found._replace(head=_head(found.head, heads[shard], found.cells)) for shard, found in page.unseen.items()
    }
    return {
        shard: _with_purged(connection, names, shard, starts[shard], found)
        if found.cells[-1].added_id > starts[shard] + len(found.cells)
        else found
        for shard, found in slices.items()
    }


def _with_gaps(
    connection: DeadlineConnection, names: Names, starts: Mapping[int, int], slices: dict[int, LogSlice], limit: int
) -> dict[int, LogSlice]:
    return {
        shard: _with_purged(connection, names, shard, starts[shard], found)
        if has_gap(starts[shard], found, limit)
        else found
        for shard, found in slices.items()
    }


def _with_purged(connection: DeadlineConnection, names: Names, shard: int, start: int, found: LogSlice) -> LogSlice:
    """The same, with what is purged in it."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(names.meta_sql(PURGED), (shard, start, found.head.head, PURGED_PER_LOOK))
            return with_purged(found, [added_id for (added_id,) in cursor.fetchall()])
    except err.Error as error:
        if not is_missing(error):
            raise
        return found  # a server of an earlier version, where nothing was ever purged


def _fetch(
    connection: DeadlineConnection, names: Names, starts: Mapping[int, int], limit: int, room: float
) -> tuple[dict[int, LogSlice], bool]:
    """The slices, and whether the page had no room for all: then only those that have cells, as they were before."""
    cells: dict[int, list[StoredCell]] = {shard: [] for shard in starts}
    parts = [
        LOG.format(shard=int(shard), cell=names.cell(shard), start=int(start), limit=int(limit))
        for shard, start in starts.items()
    ]
    look = heads_statement(names, starts.keys())
    with connection.cursor() as cursor:
        # Looked at before the cells: all up to these heads must come. And after: the shard was the reader's all along.
        cursor.execute(f"{look}; {' UNION ALL '.join(parts)}; {look}")
        before = heads_from(cursor.fetchall())
        _check_present(starts, before)
        cursor.nextset()
        rows = cursor.fetchall()
        found, is_short = within(names, [row[1:] for row in rows], room)
        for (shard, *_row), cell in zip(rows, found, strict=False):
            cells[shard].append(cell)
        if connection.is_cut or is_short:
            return {shard: LogSlice(before[shard], its) for shard, its in cells.items() if its}, True
        cursor.nextset()
        after = heads_from(cursor.fetchall())
    _check_present(starts, after)
    return {shard: LogSlice(_head(before[shard], after[shard], its), its) for shard, its in cells.items()}, False


def _head(before: ShardHead, after: ShardHead, cells: Sequence[StoredCell]) -> ShardHead:
    return ShardHead(after.state, max(before.head, cells[-1].added_id) if cells else before.head)


def _check_present(starts: Mapping[int, object], seen: Mapping[int, ShardHead]) -> None:
    for shard in starts:
        if shard not in seen:
            raise missing_shard(shard)


def first_created_at(connection: DeadlineConnection, names: Names, shard: int, moment: datetime) -> int:
    """Binary search: created_at never falls along the added ids. A purged one answers for the next that is there."""
    seen = heads(connection, names, [shard])
    if shard not in seen:
        raise missing_shard(shard)
    low, high = 1, seen[shard].head + 1
    statement = names.sql(CREATED_AT, shard)
    with connection.cursor() as cursor:
        while low < high:
            middle = (low + high) // 2
            cursor.execute(statement, (middle,))
            found = cursor.fetchone()
            if found is None or utc(found[0]) >= moment:
                high = middle
            else:
                low = middle + 1
    return low


def epochs(connection: DeadlineConnection, names: Names, shard: int) -> list[EpochOpening]:
    with connection.cursor() as cursor:
        cursor.execute(names.sql(EPOCHS, shard), (shard,))
        return [
            EpochOpening(epoch, first_added_id, utc(opened_at), why)
            for epoch, first_added_id, opened_at, why in cursor.fetchall()
        ]
