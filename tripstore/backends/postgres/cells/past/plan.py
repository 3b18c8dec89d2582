"""Before a copy: whether its selection means anything, where to cut the row keys, and about how many rows there are.

Nothing rests on cuts and estimate being right. Keys are sampled by pages, wherever these lie: keys that were given in
order are cut as evenly as random ones. A predicate runs in transactions that only read, as part of one statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg2

from schemaless_core.errors import InvalidRequest, SchemalessError
from tripstore.backends.postgres.cells.rows import text
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout, MappedColumn, quoted
from tripstore.backends.postgres.tokens import Token, Type, tokens
from tripstore.backends.postgres.wire.single import rows_of_one
from tripstore.backends.postgres.wire.translation import Again
from tripstore.backends.postgres.wire.wire import LegacyConnection, Row
from tripstore.handover.ports import EVERYTHING, Selection

#: Of the parent's table, when it has more.
SAMPLED_PAGES = 2_000
#: With fewer rows of a sample in each part, its cuts are those of all keys there could be.
ROWS_PER_CUT = 5

_SHARE = """\
SELECT least(100, 100.0 * {pages} / greatest(1, sum(pg_catalog.pg_relation_size(c.oid)) / 8192))::float8
FROM pg_catalog.pg_class AS c WHERE c.oid = {table}::pg_catalog.regclass
OR c.oid IN (SELECT leaf.relid FROM pg_catalog.pg_partition_tree({table}::pg_catalog.regclass) AS leaf)"""
_CUTS = """\
SELECT count(*), (percentile_disc(ARRAY[{shares}]::float8[]) WITHIN GROUP (ORDER BY {key}))::text[]
FROM {table} AS t TABLESAMPLE SYSTEM ({share:.6f}) WHERE {key} IS NOT NULL{where}"""
_EXPLAIN = "EXPLAIN (FORMAT JSON) SELECT 1 FROM {table} AS t WHERE true{where}"
#: On one row: what would write, or returns no boolean, is found out before a job begins.
_TRY = "SELECT t.* FROM (SELECT * FROM {table} LIMIT 1) AS t WHERE true{where}"
_HAS_CELLS = "SELECT EXISTS (SELECT FROM tripstore.cell AS c WHERE c.column_name = %s)"

_NEVER = (";", "--", "/*")
_OUTSIDE = " outside of quotes"

#: Of these classes are errors about the text itself, and about what it does with values.
_OF_THE_TEXT = ("42", "22", "25006", "0A", "21")


def check_selection(connection: LegacyConnection, layout: Layout, selection: Selection) -> None:
    """Raise `InvalidRequest`, with a way out, when it names no column or its predicate is none."""
    for name in selection.columns or ():
        if name not in layout.columns and name != LEGACY_ID and not connection.rows(_HAS_CELLS, (name,))[0][0]:
            known = ", ".join([*layout.columns, LEGACY_ID])
            raise InvalidRequest(f"There is no column {name} to copy.", hint=f"The layout has {known}.")
    if selection.columns is not None and not selection.columns:
        raise InvalidRequest("No column is named to copy.", hint=f"The layout has {', '.join(layout.columns)}.")
    if selection.where is not None:
        _check_where(connection, layout.parent, selection.where)


def cuts(connection: LegacyConnection, layout: Layout, parts: int, selection: Selection = EVERYTHING) -> list[UUID]:
    """Row keys that cut the parent's rows into about so many parts of one size; fewer when there are few rows."""
    if parts <= 1:
        return []
    table = layout.parent.table.sql
    ((share,),) = connection.rows(_SHARE.format(pages=SAMPLED_PAGES, table=text(table)))
    found = _sampled(connection, layout.parent, parts, share, selection.where)
    if found is None and selection.where is not None:
        found = _sampled(connection, layout.parent, parts, share, None)
    return _even(parts) if found is None else sorted(set(found))


def estimate(connection: LegacyConnection, layout: Layout, selection: Selection = EVERYTHING) -> int:
    """About how many rows of the parent's table are chosen, as the planner sees it: an estimate."""
    statement = _EXPLAIN.format(table=layout.parent.table.sql, where=_condition(selection.where))
    plan: Any = _only_read(connection, statement)[0][0]
    document = json.loads(plan) if isinstance(plan, str) else plan
    return int(document[0]["Plan"]["Plan Rows"])


def _sampled(
    connection: LegacyConnection, parent: MappedColumn, parts: int, share: float, where: str | None
) -> Sequence[UUID] | None:
    """The cuts of a sample; None: it had too few rows."""
    shares = ", ".join(f"{number / parts:.9f}" for number in range(1, parts))
    statement = _CUTS.format(
        shares=shares, key=f"t.{quoted(parent.uuid)}", table=parent.table.sql, share=share, where=_condition(where)
    )
    ((count, keys),) = _only_read(connection, statement)
    return [UUID(key) for key in keys] if count >= ROWS_PER_CUT * parts else None


def _even(parts: int) -> list[UUID]:
    return [UUID(int=2**128 * number // parts) for number in range(1, parts)]


def _only_read(connection: LegacyConnection, statement: str) -> Sequence[Row]:
    """With the search path that a session of the role has: a predicate may rely on it."""
    with _reading(connection):
        return rows_of_one(connection.rows, statement, connection.search_path)


@contextmanager
def _reading(connection: LegacyConnection) -> Iterator[None]:
    """A transaction that leaves nothing, settings of the session included."""
    connection.rows("BEGIN READ ONLY")
    try:
        yield
    finally:
        if not connection.is_idle and not connection.is_broken:
            connection.rows("ROLLBACK")


def _condition(where: str | None) -> str:
    return "" if where is None else f" AND (\n{where}\n)"


def _check_where(connection: LegacyConnection, parent: MappedColumn, where: str) -> None:
    """One expression and nothing else: what would end it, or the statement around it, is refused unseen."""
    depth = 0
    for token in tokens(where):
        if refused := _refused(token):
            raise _no_condition(parent, f"{refused!r} cannot stand in it{_OUTSIDE if refused not in _NEVER else ''}")
        if token.type is Type.OTHER and token.raw in "()":
            depth += 1 if token.raw == "(" else -1
            if depth < 0:
                break
    if depth or not where.strip():
        raise _no_condition(parent, "its brackets do not match" if where.strip() else "it is empty")
    try:
        _only_read(connection, _TRY.format(table=parent.table.sql, where=_condition(where)))
    except (SchemalessError, Again) as error:
        cause = error.__cause__
        if isinstance(cause, psycopg2.Error) and (cause.pgcode or "").startswith(_OF_THE_TEXT):
            raise _no_condition(parent, cause.diag.message_primary or "Postgres does not read it") from error
        raise


def _refused(token: Token) -> str:
    """What of a token is in no condition: the end of a statement, and what others may cut otherwise than we do."""
    if token.type is Type.COMMENT or (token.type is Type.OTHER and token.raw == ";"):
        return token.raw[:2]
    if token.type is Type.TEXT or (token.type is Type.QUOTED and token.raw[-1] == '"'):
        return ""
    return next((each for each in token.raw if each in "\\`" or not (each.isascii() and each.isprintable())), "")


def _no_condition(parent: MappedColumn, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"The predicate is no condition on a row of {parent.table}: {reason}.",
        hint="Write one boolean expression of SQL over the row, which is t, like: t.status = 'completed'",
    )
