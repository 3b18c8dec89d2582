"""`reach`: which rows a chunk is made of. So many of the parent's table, and not too many of the others.

Rows that are only in other tables, those of deleted parents among them, lie between the parent's row keys and are read
with them; where there are very many the chunk ends sooner.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from tripstore.backends.postgres.cells.past.sources import PastSources
from tripstore.backends.postgres.cells.rows import escaped, quoted_uuid
from tripstore.backends.postgres.codec.lookups import RowsOf
from tripstore.backends.postgres.wire.single import rows_of_one
from tripstore.handover.ports import Chunk

#: Rows of a child table, or cells of our own, in one chunk, for each of its row keys.
ROWS_PER_KEY = 16
#: Of the parent's table, for each row that is wanted, when a predicate chooses them: at first, and at most.
LOOKED_AT_FIRST, LOOKED_AT_PER_ROW = 2, 20

_LAST = UUID(int=2**128 - 1)

# Indexes hold the order; a sort would read all that is left of the table, for each chunk.
_IN_ORDER = "SELECT pg_catalog.set_config('enable_sort', 'off', true); "
_END = """\
WITH reached AS MATERIALIZED (SELECT COALESCE(
    (SELECT {key} FROM {table} WHERE {within}{rest} ORDER BY {key} OFFSET {skipped} LIMIT 1), {upto}) AS key)
SELECT {ends}::pg_catalog.text FROM reached"""
_OTHER_END = """\
(SELECT {key} FROM {table} WHERE {where} AND {within} AND {key} <= reached.key{rest}
    ORDER BY {key} OFFSET {others} LIMIT 1)"""
_CHOSEN = """\
SELECT {key}::pg_catalog.text FROM {table} WHERE {within}{rest} AND (
{where}
) ORDER BY {key} LIMIT {rows}"""


class ChunkRows(NamedTuple):
    """Row keys, as a condition of SQL: a range, or a list."""

    after: UUID | None
    upto: UUID
    keys: tuple[UUID, ...] | None = None

    def within(self, key: str) -> str:
        """The condition on a row key, which is an expression."""
        if self.keys is not None:
            # As a question of its own: the planner would weigh each of so many keys, for milliseconds without a rest.
            listed = f"(SELECT '{{{','.join(map(str, self.keys))}}}'::pg_catalog.uuid[])"
            return f"{key} = ANY ({listed}::pg_catalog.uuid[])"
        above = "" if self.after is None else f"{key} > {quoted_uuid(self.after)} AND "
        return f"{above}{key} <= {quoted_uuid(self.upto)}"


class Asking(NamedTuple):
    """How rows are asked for."""

    rows_of: RowsOf
    sources: PastSources
    #: A condition that holds for every row, and takes its time.
    rest: str
    #: A predicate is read under it.
    search_path: str


def reach(asking: Asking, chunk: Chunk) -> tuple[ChunkRows | None, UUID | None]:
    """The rows of a chunk, None: there are none; and where the next one begins, None: it was the last."""
    upto = chunk.upto or _LAST
    if chunk.keys is not None:
        rows, after = _listed(sorted(key for key in chunk.keys if chunk.after is None or key > chunk.after), chunk.rows)
        if rows is not None and chunk.selection.where is not None:
            rows = _kept(asking, rows, chunk)
        return rows, after
    if chunk.selection.where is not None:
        return _chosen(asking, chunk, upto)
    # A leaf is alone.
    others = ROWS_PER_KEY * chunk.rows if chunk.leaf is None else None
    end = _end(asking, ChunkRows(chunk.after, upto), chunk.rows, others)
    return ChunkRows(chunk.after, end), end if end < upto else None


def _listed(keys: list[UUID], limit: int) -> tuple[ChunkRows | None, UUID | None]:
    if not keys:
        return None, None
    taken = tuple(keys[:limit])
    return ChunkRows(None, taken[-1], taken), taken[-1] if len(keys) > limit else None


def _kept(asking: Asking, listed: ChunkRows, chunk: Chunk) -> ChunkRows | None:
    """Of the listed rows those that the predicate chooses, too; one that is gone is chosen by none."""
    keys = _meeting(asking, listed, chunk, chunk.rows)
    return listed._replace(keys=keys) if keys else None


def _chosen(asking: Asking, chunk: Chunk, upto: UUID) -> tuple[ChunkRows | None, UUID | None]:
    """A predicate that few rows meet must not read the whole table for one chunk; so it looks further step by step."""
    keys: list[UUID] = []
    most = LOOKED_AT_PER_ROW * chunk.rows
    step, looked_at, end = min(LOOKED_AT_FIRST * chunk.rows, most), 0, chunk.after
    while True:
        begin, end = end, _end(asking, ChunkRows(end, upto), step, None)
        keys += _meeting(asking, ChunkRows(begin, end), chunk, chunk.rows - len(keys))
        looked_at += step
        if len(keys) == chunk.rows:
            end = keys[-1]
            break
        if end == upto or looked_at == most:
            break
        step = min(2 * step, most - looked_at)
    return ChunkRows(chunk.after, end, tuple(keys)) if keys else None, end if end < upto else None


def _meeting(asking: Asking, rows: ChunkRows, chunk: Chunk, most: int) -> tuple[UUID, ...]:
    """Of these rows the first that meet the predicate. It is an operator's text: only its own statement runs."""
    parent = asking.sources.parent
    statement = _CHOSEN.format(
        key=parent.key,
        table=parent.table,
        within=rows.within(parent.key),
        rest=asking.rest,
        where=chunk.selection.where,
        rows=most,
    )
    asking.rows_of(_IN_ORDER, ())
    return tuple(UUID(key) for (key,) in rows_of_one(asking.rows_of, statement, asking.search_path))


def _end(asking: Asking, window: ChunkRows, parents: int, others: int | None) -> UUID:
    """The row key that so many rows of the parent's table reach to, and no more than so many of any other."""
    parent = asking.sources.parent
    ends = ["reached.key"]
    for source in asking.sources.others() if others is not None else ():
        within = window.within(source.key) if window.after is None else f"{source.key} > {quoted_uuid(window.after)}"
        ends.append(
            _OTHER_END.format(
                key=source.key,
                table=source.table,
                where=source.where,
                within=within,
                rest=asking.rest,
                others=others,
            )
        )
    statement = _END.format(
        key=parent.key,
        table=parent.table,
        within=window.within(parent.key),
        rest=asking.rest,
        skipped=parents - 1,
        upto=quoted_uuid(window.upto),
        ends=f"LEAST({', '.join(ends)})",
    )
    ((end,),) = asking.rows_of(escaped(_IN_ORDER + statement), ())
    return UUID(end)
