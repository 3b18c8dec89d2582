"""`Tables`: where the cells of a company's database are, and how its rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from schemaless_core.cell.children import Children
from tripstore.backends.postgres.cells.read.columns import ColumnPlaces
from tripstore.backends.postgres.cells.sums.turns import Turns
from tripstore.backends.postgres.codec.columnar import ColumnarCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.wire.database import LegacyDatabase


class Tables(NamedTuple):
    """Where cells are, and how rows are read."""

    database: LegacyDatabase
    places: ColumnPlaces
    codecs: Mapping[str, ColumnarCodec]
    lookups: LookupCache
    shards: int
    #: Of which columns every child is looked at; of others the one with the highest ref key.
    children: Children
    #: By which they are read; None: as fast as it goes.
    turns: Turns | None = None
