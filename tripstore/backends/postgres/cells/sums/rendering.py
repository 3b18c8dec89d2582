"""The canonical bytes of many rows of a column at once."""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.cells.sums.lines import Texts
from tripstore.backends.postgres.cells.sums.tables import Tables
from tripstore.backends.postgres.errors import UnreadableRow
from tripstore.backends.postgres.wire.wire import LegacyConnection

#: Of one batch, its looks at other tables included.
BATCH_SECONDS = 60.0


def rendered(tables: Tables, column_name: str, texts: Texts) -> Sequence[bytes | UnreadableRow]:
    """The bodies of rows. What they point to is looked up on a connection that is lent: the caller's is busy."""
    codec, lookups = tables.codecs[column_name], tables.lookups

    def render(lent: LegacyConnection) -> Sequence[bytes | UnreadableRow]:
        lookups.fill(codec.wanted(texts), lent.rows)
        return codec.canonical(texts, lent.rows)

    return tables.database.run(render, Deadline(BATCH_SECONDS))
