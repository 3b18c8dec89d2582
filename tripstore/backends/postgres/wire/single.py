"""`rows_of_one`: a statement with an operator's text in it, run as one statement, whatever that text is.

The driver sends texts as they are, and a server runs as many statements as it finds in one. So the statement goes as
a value, and the server opens a cursor for it: it has one for a single statement that answers rows, and for no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

RowsOf = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]

# The last setting: all rows of the cursor are wanted, not the first ones soon.
_OPEN = """\
SELECT pg_catalog.set_config('search_path', %s, true), pg_catalog.set_config('tripstore.statement', %s, true),
    pg_catalog.set_config('cursor_tuple_fraction', '1', true);
DO $$DECLARE one pg_catalog.refcursor := 'tripstore_one';
BEGIN OPEN one FOR EXECUTE pg_catalog.current_setting('tripstore.statement'); END$$;
FETCH ALL FROM tripstore_one"""
_CLOSE = "CLOSE tripstore_one; SELECT pg_catalog.set_config('search_path', %s, true)"


def rows_of_one(
    rows_of: RowsOf, statement: str, search_path: str, *, then: str = "pg_catalog, pg_temp"
) -> Sequence[tuple[Any, ...]]:
    """The rows of one statement under this search path, within a transaction that is open and only reads.

    Names may be found in the company's schemas meanwhile, so nothing else is asked before the path is ours again.
    """
    found = rows_of(_OPEN, (search_path, statement))
    rows_of(_CLOSE, (then,))
    return found
