"""What stands beside a table, as SQL: of each child the last tomb or cell of our own, and whether it has a row."""

from __future__ import annotations

from collections.abc import Callable

from schemaless_core.cell.children import FACTS
from tripstore.backends.postgres.cells.rows import ColumnRows

_BODY = "pg_catalog.encode(c.body, 'hex')"
#: A tomb has no body; a cell of our own that is a tombstone has this one.
_IS_TOMBSTONE = "body IN ('', '6e756c6c')"


def last_owns(rows: ColumnRows, bits: int | None, within: Callable[[str], str]) -> str:
    """Row key, ref key, body in hexadecimal digits ('' of a tomb), and whether the table has a row of this child."""
    tombs = f"SELECT t.row_key, t.ref_key, '' FROM tripstore.tomb AS t WHERE t.column_name = {rows.name}"
    cells = f"SELECT c.row_key, c.ref_key, {_BODY} FROM tripstore.cell AS c WHERE c.column_name = {rows.name}"
    both = f"{tombs} AND {within('t.row_key')} UNION ALL {cells} AND {within('c.row_key')}"
    owns = f"({both}) AS own (row_key, ref_key, body)"
    if bits == FACTS:  # what is below a tombstone went with its parent
        ended = f"max(ref_key) FILTER (WHERE {_IS_TOMBSTONE}) OVER (PARTITION BY row_key)"
        owns = (
            f"(SELECT * FROM (SELECT own.*, {ended} AS ended FROM {owns}) AS facts "
            "WHERE ended IS NULL OR ref_key >= ended) AS own"
        )
    child = "own.row_key" if bits is None else f"own.row_key, own.ref_key >> {bits}"
    last = (
        f"SELECT DISTINCT ON ({child}) own.row_key, own.ref_key, own.body "
        f"FROM {owns} ORDER BY {child}, own.ref_key DESC"
    )
    number = "" if bits is None else f" AND r.{rows.number} = own.ref_key >> {bits}"
    if bits == FACTS:  # those below a tombstone came back unseen
        number = f" AND (r.{rows.number} = own.ref_key OR r.{rows.number} < own.ref_key AND own.{_IS_TOMBSTONE})"
    there = f"EXISTS (SELECT FROM {rows.table} AS r WHERE r.{rows.uuid} = own.row_key{number})"
    return f"SELECT own.row_key, own.ref_key, own.body, {there} FROM ({last}) AS own"
