"""`Children`: which columns hold many rows of a company's below one row key, and how their ref keys tell these apart.

The core knows no layout. The diff says it as data, by the name of the column. A column that is not
named holds one row, whose latest cell is the one with the highest ref key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from schemaless_core.cell.cell import ColumnKey

#: By column, how many of the lowest bits of a ref key are the version of a child; the bits above are its number.
#: 0 of facts: each is a child with one version, and a tombstone ends every fact below it.
Children = Mapping[str, int]

NO_CHILDREN: Children = {}
#: The bits of a column of facts.
FACTS = 0


class ChildKey(NamedTuple):
    """One row of a company's: its column, and its number among the children there. None: the column's latest cell."""

    row_key: UUID
    column_name: str
    child: int | None = None

    @property
    def column(self) -> ColumnKey:
        return ColumnKey(self.row_key, self.column_name)


def child_of(children: Children, column_name: str, ref_key: int) -> int | None:
    """The number of the child that a cell is a version of; None: its column holds one row."""
    bits = children.get(column_name)
    return None if bits is None else ref_key >> bits


def latest_of(ref_keys: Iterable[int], tombstones: Collection[int], bits: int | None) -> set[int]:
    """Those ref keys of a column that are the latest of a child: its last version, tombstone or not."""
    if bits == FACTS:
        ended = max(tombstones, default=None)
        return {ref_key for ref_key in ref_keys if ended is None or ref_key >= ended}
    latest: dict[int, int] = {}
    for ref_key in sorted(ref_keys):
        latest[0 if bits is None else ref_key >> bits] = ref_key
    return set(latest.values())
