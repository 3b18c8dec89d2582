"""Whether child rows carry their parent's row key, asked of a sample of the rows, or of all.

A table may have a column of the very name for a UUID of its own. Taken for the parent's key, each of its rows would
be a cell of a row that does not exist, and both stores would agree on it: no diff tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.ids.ids import uuid_of_id_sql
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.layout.fitting import INTEGERS
from tripstore.backends.postgres.layout.layout import quoted
from tripstore.backends.postgres.layout.live import LiveTable, TableKind
from tripstore.backends.postgres.sizes import ABOUT_ROWS
from tripstore.backends.postgres.wire.connections import rows

#: Rows of a child that a look compares with their parents, at most.
SAMPLE_ROWS = 5_000
#: As dense as rows of two numbers are: where no count exists, the sample is too small rather than from one end.
ROWS_PER_PAGE_MAX = 226

# Whole pages at random; which of their rows come first says nothing of their keys.
_SAMPLE = """\
SELECT count(*), count(*) FILTER (WHERE key <> expected), min(id) FILTER (WHERE key <> expected)
FROM (
  SELECT sample.id, sample.key, {expected} AS expected
  FROM (SELECT {id} AS id, {uuid} AS key FROM {table} TABLESAMPLE SYSTEM ({percent})
    WHERE {uuid} IS NOT NULL AND {id} IS NOT NULL LIMIT {limit}) AS sample
  JOIN {parent} AS parent ON parent.{parent_id} = sample.id
) AS pair"""


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """Of the rows that were compared, how many carry another key than their parent."""

    compared: int
    different: int
    parent_id: int | None = None  #: Of one that does.
    is_all: bool = False  #: Whether no row was left out.
    orphans: int = 0  #: Rows without a parent, where none was left out.


#: What a table says that has no such column yet.
NOTHING = KeyMatch(0, 0)


def sample_keys(connection: Connection, column: KeyColumn, child: LiveTable, parent: LiveTable) -> KeyMatch:
    """Compare a sample; a column that is not there, or is no uuid, matches nothing."""
    if not _can_be_compared(column, child, parent):
        return NOTHING
    # Rows of a parent without a UUID will have the one of their id.
    expected = uuid_of_id_sql(column.source, "sample.id")
    if column.source.uuid in parent.columns:
        expected = f"COALESCE(parent.{quoted(column.source.uuid)}, {expected})"
    statement = _SAMPLE.format(
        expected=expected,
        id=quoted(column.id),
        uuid=quoted(column.uuid),
        table=column.table.sql,
        percent=_percent(connection, child),
        limit=SAMPLE_ROWS,
        parent=column.source.table.sql,
        parent_id=quoted(column.source.id),
    )
    [(compared, different, parent_id)] = rows(connection, statement)
    return KeyMatch(compared, different, parent_id)


def carries_parents_key(child: LiveTable, name: str, parent: LiveTable, uuid: str, match: KeyMatch) -> bool:
    """Whether a column that is there may be taken for the parent's key; without rows its own look decides."""
    column = child.columns[name]
    if column.type.plain.name != "uuid" or column.is_generated or match.different:
        return False
    if match.compared:
        return True
    points = any(key.leads(name, parent.name, uuid) for key in child.foreign_keys)
    return points or not (column.has_default or child.find_unique(name))


def match_keys(connection: Connection, column: KeyColumn) -> KeyMatch:
    """Compare all rows. A row without a key is different."""
    if column.find(connection) is None or column.find_in_parent(connection) is None:
        return NOTHING
    [(compared, different, orphans)] = rows(connection, column.match_sql)
    return KeyMatch(compared, different, is_all=True, orphans=orphans)


def free_name(child: LiveTable, *wanted: str) -> str:
    """The first of these names that no column has, or the last of them with a number."""
    numbered = (f"{wanted[-1]}_{number}" for number in range(2, len(child.columns) + 3))
    return next(name for name in (*wanted, *numbered) if name not in child.columns)


def _can_be_compared(column: KeyColumn, child: LiveTable, parent: LiveTable) -> bool:
    """Whether all of it is there and of the types that it should be; what is not has complaints of its own."""
    if child.kind not in (TableKind.TABLE, TableKind.PARTITIONED) or child.foreign_leaves:
        return False
    key, numbers = child.columns.get(column.uuid), (child.columns.get(column.id), parent.columns.get(column.source.id))
    if key is None or key.type.plain.name != "uuid" or key.is_generated:
        return False
    return all(number is not None and number.type.plain.name in INTEGERS for number in numbers)


def _percent(connection: Connection, table: LiveTable) -> str:
    """What share of the pages holds a sample, by their number of today: of a table that was never analysed, or has
    grown since, more than that would be cut to what comes first."""
    ((about,),) = rows(connection, ABOUT_ROWS, (table.name.sql, ROWS_PER_PAGE_MAX))
    return "100" if about <= SAMPLE_ROWS else f"{100 * SAMPLE_ROWS / about:.9f}"
