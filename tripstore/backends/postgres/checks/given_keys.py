"""Keys of deleted pairs that another row has by now: capture refuses that, but it was not always asked.

Changes that were captured while the deleted row was there are rendered by the other one's value (I2).
"""

from __future__ import annotations

from collections.abc import Iterator

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.codec.lookups import pair_name
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.layout.complaints import Complaint, error
from tripstore.backends.postgres.layout.layout import Layout, Lookup, quoted
from tripstore.backends.postgres.wire.connections import rows

#: Keys that are named; all are counted.
NAMED = 5
_HINT = (
    "Cells of before mean the deleted row. Insert that row under a key of its own, let what points to it point there,"
    " and delete it here; then `tripstore diff start --older 1` and `tripstore repair`."
)
#: The cast has the company's index find the key, where a number of the table's type was written as a text.
_GIVEN = """\
SELECT p.key, count(*) OVER () FROM tripstore.pair AS p JOIN {table} AS r ON r.{key} = p.key::{type}
WHERE p.lookup = %s AND r.{key}::pg_catalog.text = p.key AND r.{value}::pg_catalog.text <> p.value
ORDER BY p.key LIMIT {limit}"""


def check_given_keys(connection: Connection, layout: Layout, live: LiveCatalogue) -> Iterator[Complaint]:
    """One complaint for each lookup that has any."""
    for lookup in layout.lookups:
        found = rows(connection, _statement(lookup, live), (pair_name(lookup),))
        if found:
            names = ", ".join(key for key, _count in found) + (", …" if found[0][1] > len(found) else "")
            reason = f"other rows have keys of deleted ones by now, {found[0][1]:,} in all: {names}"
            yield error(f"{lookup.table}.{lookup.key}", reason, _HINT)


def _statement(lookup: Lookup, live: LiveCatalogue) -> str:
    column = live.tables[lookup.table].columns[lookup.key]
    key, value = quoted(lookup.key), quoted(lookup.value)
    return _GIVEN.format(table=lookup.table.sql, key=key, value=value, type=column.shown_type, limit=NAMED)
