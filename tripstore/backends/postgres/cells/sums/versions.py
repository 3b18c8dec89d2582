"""`VersionsWalk`: the changes of many rows of one column, rendered field by field, and what stands above them.

For a comparison of older versions that looks closer by itself where anything is out of the ordinary: tombstones, cells
of our own, changes that another layout wrote, rows with very many of them. Such a row is left to it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple
from uuid import UUID

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.cells.rows import CHANGES, ColumnRows
from tripstore.backends.postgres.cells.sums.lines import Texts, columns_of, copied, row_keys
from tripstore.backends.postgres.cells.sums.rendering import rendered
from tripstore.backends.postgres.cells.sums.tables import Tables
from tripstore.backends.postgres.codec.copy_text import NULL
from tripstore.backends.postgres.errors import UnreadableRow
from tripstore.backends.postgres.layout.layout import MappedColumn, quoted
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import rows as rows_of

_LAYOUTS = "SELECT number, document FROM tripstore.layout ORDER BY number"


class KnownChange(NamedTuple):
    """A version that a captured change made."""

    body: bytes
    #: The version that it replaced; None: it was the first.
    previous: int | None


@dataclass
class KnownVersions:
    """What Postgres knows of many rows of one column, by row key."""

    changes: defaultdict[bytes, dict[int, KnownChange]] = field(default_factory=lambda: defaultdict(dict))
    #: The ref keys that rows hold now.
    current: defaultdict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    #: Rows that need a closer look.
    left: set[bytes] = field(default_factory=set)


class VersionsWalk:
    """On a connection with an open snapshot."""

    def __init__(self, connection: Connection, tables: Tables, datastore: str) -> None:
        self._connection = connection
        self._tables = tables
        self._datastore = datastore

    def known(self, rows: ColumnRows, keys: Sequence[UUID], limit: int) -> KnownVersions:
        """What is known of these rows. One with so many versions in one place is left."""
        found, column = KnownVersions(), rows.column
        wanted = f"unnest('{{{','.join(map(str, keys))}}}'::pg_catalog.uuid[]) AS k (row_key)"
        layouts = self._layouts(column)

        def take_beside(lines: list[bytes]) -> None:
            texts = columns_of(lines)
            for key, ref_key, is_row in zip(row_keys(texts[0]), *texts[1:], strict=True):
                if is_row != "t" or ref_key == NULL:
                    found.left.add(key)
                else:
                    found.current[key].add(int(ref_key))

        def take_changes(lines: list[bytes]) -> None:
            self._changes(column.name, columns_of(lines), layouts, found)

        turns = self._tables.turns
        copied(self._connection, _beside(rows, wanted, limit), take_beside, turns)
        if column.ref_key.version is not None:  # facts have no older versions
            for table in CHANGES:
                copied(self._connection, _changes_of(rows, table, wanted, layouts, limit), take_changes, turns)
        for many in (found.changes, found.current):
            found.left |= {key for key, versions in many.items() if len(versions) >= limit}
        return found

    def _changes(self, name: str, texts: Texts, layouts: Mapping[str, bool], found: KnownVersions) -> None:
        keys, (ref_keys, previous, written_by) = row_keys(texts[0]), texts[1:4]
        is_plain = [layouts.get(number, False) for number in written_by]
        found.left.update(key for key, plain in zip(keys, is_plain, strict=True) if not plain)
        bodies: Sequence[bytes | UnreadableRow] = (
            rendered(self._tables, name, texts[4:]) if any(is_plain) else list(repeat(b"", len(keys)))
        )
        for key, ref_key, before, body, plain in zip(keys, ref_keys, previous, bodies, is_plain, strict=True):
            if plain and isinstance(body, bytes):
                found.changes[key][int(ref_key)] = KnownChange(body, None if before == NULL else int(before))
            else:
                found.left.add(key)

    def _layouts(self, column: MappedColumn) -> dict[str, bool]:
        """The numbers of layouts, and whether what they wrote of a column is read as it is now."""
        same = {}
        for number, document in rows_of(self._connection, _LAYOUTS):
            written_by = load_layout(json.loads(document), self._datastore)
            known = written_by.columns.get(column.name)
            same[str(number)] = known is not None and _reading(known) == _reading(column)
        return same


def _reading(column: MappedColumn) -> tuple[object, ...]:
    """What decides how texts become a body. A document has the fields in an order of its own."""
    return frozenset(column.fields), column.extra


def _beside(rows: ColumnRows, wanted: str, limit: int) -> str:
    """What a row holds now, and whether anything else stands beside it."""
    own = "SELECT c.ref_key FROM tripstore.cell AS c WHERE c.row_key = k.row_key"
    tomb = "SELECT t.ref_key FROM tripstore.tomb AS t WHERE t.row_key = k.row_key"
    parts = [
        f"SELECT {rows.ref_key} AS ref_key FROM {rows.table} AS r WHERE r.{rows.uuid} = k.row_key LIMIT {limit}",
        f"{tomb} AND t.column_name = {rows.name} LIMIT 1",
        f"{own} AND c.column_name = {rows.name} LIMIT 1",
    ]
    return " UNION ALL ".join(
        f"SELECT k.row_key, found.ref_key, {is_row} FROM {wanted} CROSS JOIN LATERAL ({part}) AS found"
        for is_row, part in zip(("true", "false", "false"), parts, strict=True)
    )


def _changes_of(rows: ColumnRows, table: str, wanted: str, layouts: Mapping[str, bool], limit: int) -> str:
    """The newest changes of each row, what they hold as texts. What another layout wrote is not read."""
    captured = rows.column.captured
    plain = ", ".join(number for number, is_same in layouts.items() if is_same) or "NULL"
    values = ", ".join(f"x.{quoted(name)}" for name in captured)
    types = ", ".join(f"{quoted(name)} pg_catalog.text" for name in captured)
    newest = (
        f"SELECT q.ref_key, q.previous, q.layout, q.row FROM {table} AS q WHERE q.row_key = k.row_key"
        f" AND q.column_name = {rows.name} ORDER BY q.ref_key DESC LIMIT {limit}"
    )
    row = f"CASE WHEN q.layout IN ({plain}) THEN q.row::pg_catalog.json END"
    number = "CASE WHEN q.row IS NULL THEN NULL ELSE q.layout END"  # a tombstone is none
    return (
        f"SELECT k.row_key, q.ref_key, q.previous, {number}, {values} FROM {wanted} CROSS JOIN LATERAL ({newest}) AS q"
        f" LEFT JOIN LATERAL pg_catalog.json_to_record({row}) AS x ({types}) ON true"
    )
