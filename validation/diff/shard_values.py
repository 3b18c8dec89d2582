"""`ShardValues`: a sample of the shard values that rows really have, for questions to an index.

From shards in any order, and from anywhere in each. Another seed looks elsewhere; the same one, after a crash, at the
same places.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from random import Random
from uuid import UUID

from schemaless_core.cell.answers import Row, Scalar
from schemaless_core.cell.cell import Cell
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.store import CellStore
from tripstore.engines.validation.reads import Incomparable

#: Shard values that are asked about.
VALUES = 100
#: Of which so many are taken from one place.
VALUES_PER_LOOK = 5
ROWS_PER_LOOK = 25
#: Rows that are looked at where few have values of their own.
ROWS_MAX = 2_000
_KEY_BITS = 128
_LAST_KEY = 2**_KEY_BITS - 1


class ShardValues:
    """Of one comparison."""

    def __init__(self, shards: int, seed: str, incomparable: Incomparable = ()) -> None:
        self._shards = shards
        self._seed = seed
        self._incomparable = incomparable

    def sample(self, store: CellStore, definition: IndexDefinition) -> list[Scalar]:
        """Values of an index's rows: all of a small store's, of others a few from each of many places."""
        chance, places = Random(f"{self._seed} {definition.name}"), _Places(store, definition.column_names)
        found, looked_at = dict[Scalar, None](), 0
        shards = list(range(self._shards))
        chance.shuffle(shards)
        for shard in islice(cycle(shards), max(len(shards), VALUES // VALUES_PER_LOOK)):
            try:
                rows = places.rows(shard, chance)
            except self._incomparable:
                continue  # other places have values, too; that a row cannot be read is told elsewhere
            looked_at += len(rows)
            values = [value for value in _values(rows, definition) if value not in found]
            found |= dict.fromkeys(chance.sample(values, min(len(values), VALUES_PER_LOOK)))
            if len(found) >= VALUES or looked_at >= ROWS_MAX:
                break
        return list(found)


class _Places:
    """Rows from somewhere in a shard."""

    def __init__(self, store: CellStore, columns: Sequence[str]) -> None:
        self._store = store
        self._columns = columns
        #: The first key of a shard, and about how far the last one is from it. Shards are alike: one tells of all.
        self._range: tuple[int, int] | None = None

    def rows(self, shard: int, chance: Random) -> list[Row]:
        """Some that follow each other, from a key that is chosen; those behind the last are the first ones."""
        if self._range is None:
            self._range = self._found_range(shard)
        if self._range is None:
            return []
        first, length = self._range
        rows = self._scanned(shard, first + chance.randrange(length), ROWS_PER_LOOK)
        missing = ROWS_PER_LOOK - len(rows)
        known = {row.row_key for row in rows}
        return rows + [row for row in self._scanned(shard, None, missing) if row.row_key not in known]

    def _found_range(self, shard: int) -> tuple[int, int] | None:
        """Keys that begin with a time are close together: the power of two is sought behind which there are none."""
        rows = self._scanned(shard, None, 1)
        if not rows:
            return None
        first, low, high = rows[0].row_key.int, 0, _KEY_BITS
        while low < high:
            middle = (low + high) // 2
            if self._scanned(shard, first + 2**middle, 1):
                low = middle + 1
            else:
                high = middle
        return first, 2**low

    def _scanned(self, shard: int, after: int | None, limit: int) -> list[Row]:
        if limit == 0:
            return []
        key = None if after is None else UUID(int=min(after, _LAST_KEY))
        return self._store.scan_rows(shard, key, limit, self._columns).rows


def _values(rows: Sequence[Row], definition: IndexDefinition) -> list[Scalar]:
    """Each once, in the order of the rows."""
    found = dict[Scalar, None]()
    for row in rows:
        latest: dict[str, Cell | None] = dict(row.cells)
        value = definition.fields_of(latest).values[0]
        if value is not None:
            found[value] = None
    return list(found)
