"""`BlockRows`: the rows that stand in some blocks of a table; and whether blocks, or a leaf, are those that were meant.

A table keeps its file while our transaction holds the weakest of its locks. The lock comes before the snapshot: what
ALTER TABLE wrote anew is not seen by a snapshot of before, as if the table were empty.
"""

from __future__ import annotations

from typing import NamedTuple

from psycopg2.extensions import cursor as Cursor  # noqa: N812  # the driver's class has a small letter

from tripstore.handover.ports import Blocks, WalkedLeaf

_HOLD = "LOCK TABLE ONLY {leaf} IN ACCESS SHARE MODE"
_STANDS = """\
SELECT pg_catalog.to_regclass(%s) = %s::pg_catalog.oid AND pg_catalog.pg_relation_filenode(%s::pg_catalog.oid) = %s"""
_IS_THERE = "SELECT pg_catalog.to_regclass(%s) = %s::pg_catalog.oid"


class BlockRows(NamedTuple):
    """A condition of SQL that holds in so many blocks."""

    first: int
    upto: int

    def within(self, key: str) -> str:
        """The condition on a row, of which `key` is the row key. Postgres reads these blocks and no others."""
        first, upto = (f"'({block},0)'::pg_catalog.tid" for block in self)
        return f"ctid >= {first} AND ctid < {upto} AND {key} IS NOT NULL"


def hold(leaf: str) -> str:
    """The statement that holds the leaf; it comes before the snapshot. `UndefinedTable`: it is gone."""
    return _HOLD.format(leaf=leaf)


def stands(cursor: Cursor, blocks: Blocks) -> bool:
    """Whether the file of the leaf, which is held, is still the one whose blocks these are."""
    cursor.execute(_STANDS, (blocks.leaf, blocks.oid, blocks.oid, blocks.filenode))
    ((found,),) = cursor.fetchall()
    return bool(found)


def is_there(cursor: Cursor, leaf: WalkedLeaf) -> bool:
    """Whether what is held is the leaf that was meant, and no other of its name."""
    cursor.execute(_IS_THERE, (leaf.name, leaf.oid))
    ((found,),) = cursor.fetchall()
    return bool(found)
