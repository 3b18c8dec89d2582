"""What a diff counts of the company's tables: how many rows they have, and how many of them it compared.

Both are as of one moment, so a number that is another says that rows were left out: these were not compared (I12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import md5

from tripstore.engines.validation.diff.buckets import TableRows

#: Rows of all tables, as Postgres counts them, and those that were compared.
ROWS, COMPARED = "table_rows", "table_rows_compared"
#: Rows that one of the two numbers lacks, table by table.
NOT_COMPARED = "table_not_compared"
#: How long the name of a count may be.
NAME_MAX = 64


def counts_of(tables: Mapping[str, TableRows]) -> Counter[str]:
    """All tables together, and each by its column."""
    counts = Counter[str]()
    for name, (rows, compared) in tables.items():
        counts.update({ROWS: rows, COMPARED: compared, NOT_COMPARED: abs(rows - compared)})
        counts.update({_of_column(ROWS, name): rows, _of_column(COMPARED, name): compared})
    return counts


def tables_of(counts: Mapping[str, int], columns: Iterable[str]) -> dict[str, TableRows]:
    """What was counted of each of these columns."""
    return {
        name: TableRows(counts.get(_of_column(ROWS, name), 0), counts.get(_of_column(COMPARED, name), 0))
        for name in columns
    }


def _of_column(kind: str, name: str) -> str:
    """A count by the column's name, or by its digest where there is no room for that."""
    full = f"{kind}:{name}"
    return full if len(full) <= NAME_MAX else f"{kind}:{md5(name.encode(), usedforsecurity=False).hexdigest()}"
