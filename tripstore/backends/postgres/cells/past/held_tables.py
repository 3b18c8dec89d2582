"""The tables that a chunk reads, held before its snapshot is made.

ALTER TABLE holds its table exclusively, and all that it writes anew carries the number of its transaction. A snapshot
of before sees none of it, and a reader that made one, and then waited for the table, would read it as empty. The
weakest lock is enough: as long as it is held there is no ALTER TABLE that writes anew, and no TRUNCATE.
"""

from __future__ import annotations

from tripstore.backends.postgres.layout.layout import Layout

_HOLD = "LOCK TABLE {tables} IN ACCESS SHARE MODE"
_OURS = ("tripstore.cell", "tripstore.tomb")


def hold_all(layout: Layout) -> str:
    """The statement that holds all mapped tables, with their partitions, the looked-up ones, and ours."""
    mapped = sorted(table.sql for table in layout.tables)
    return _hold(mapped, layout)


def hold_beside_blocks(layout: Layout) -> str:
    """What is read beside the rows of one leaf: pairs that bodies name, and the ids that rows had before."""
    return _hold([], layout)


def _hold(mapped: list[str], layout: Layout) -> str:
    looked_up = sorted({lookup.table.sql for lookup in layout.lookups})
    return _HOLD.format(tables=", ".join(dict.fromkeys([*mapped, *looked_up, *_OURS])))
