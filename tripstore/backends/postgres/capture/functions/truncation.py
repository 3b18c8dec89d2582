"""TRUNCATE of a mapped table: refused, or allowed at the price of capture's word that nothing is missed.

That of a table with looked-up pairs is refused alike; where it is allowed, they are remembered as deleted ones are.
"""

from __future__ import annotations

from collections.abc import Sequence

from tripstore.backends.postgres.capture.functions.changes import KEEP_FACTS, Changes
from tripstore.backends.postgres.capture.functions.function import SEEING, Function, plain, refuse
from tripstore.backends.postgres.capture.functions.pairs import LookupPairs
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger
from tripstore.backends.postgres.capture.names import FIRST, literal
from tripstore.backends.postgres.layout.layout import RefKeyKind, TableName
from tripstore.backends.postgres.sqlstates import TRUNCATE_REFUSED


def truncation(
    name: TableName, changes: Sequence[Changes], pairs: Sequence[LookupPairs], *, is_allowed: bool
) -> tuple[Function, RowTrigger]:
    """For all columns and pairs of one table; on every partition, since it may be truncated alone."""
    part = (changes or pairs)[0].part
    function, table = f"{part}_truncate", plain(str(name))
    if is_allowed:
        kept = [*map(_remember, changes), *(each.remember_all() for each in pairs)]
        broken = _broken(table) if changes else ""
        body = f"\nBEGIN\n{_check_snapshot(table)}{''.join(kept)}{broken}  RETURN NULL;\nEND\n"
    else:
        why = "every row would have to become a tombstone" if changes else "cells point to its rows"
        price = ": then the mirror needs a new backfill" if changes else ""
        refused = refuse(
            TRUNCATE_REFUSED,
            f"{table} is not truncated: {why}.",
            f"DELETE the rows, or allow it in the configuration{price}.",
        )
        body = f"\nBEGIN\n  {refused}\nEND\n"
    trigger = RowTrigger(f"{FIRST}{part}_truncate", "BEFORE", "TRUNCATE", function, level="STATEMENT")
    return Function(function, body, SEEING), trigger


def _check_snapshot(table: str) -> str:
    """Rows that the transaction's snapshot does not show would go and not be remembered."""
    refused = refuse(
        TRUNCATE_REFUSED,
        f"{table} is not truncated: the snapshot of this transaction may not show all of its rows.",
        "TRUNCATE under READ COMMITTED.",
    )
    return f"""\
  IF pg_catalog.current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
    {refused}
  END IF;
"""


def _remember(changes: Changes) -> str:
    """Rows that come back start above what they were; that they went is not captured."""
    statement = f"""\
INSERT INTO tripstore.kept AS t (row_key, column_name, n, ref_key)
SELECT r.{changes.uuid}, {changes.name}, {changes.n("r")}, max({changes.ref_key("r")}) FROM ONLY """
    rest = """ r GROUP BY 1, 3
ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = excluded.ref_key WHERE t.ref_key < excluded.ref_key"""
    return _execute(statement, rest) + _remember_facts(changes)


def _remember_facts(changes: Changes) -> str:
    """Each by itself, where deletions are ignored."""
    if not changes.is_ignored or changes.column.ref_key.kind is not RefKeyKind.FACT:
        return ""
    return _execute(f"{KEEP_FACTS}\nSELECT {changes.kept_fact('r')} FROM ONLY ", " r ON CONFLICT DO NOTHING")


def _execute(statement: str, rest: str) -> str:
    """On the table that is truncated."""
    return f"  EXECUTE {literal(statement)} || TG_RELID::regclass || {literal(rest)};\n"


def _broken(table: str) -> str:
    text = literal(f"{table} was truncated at %s".replace("%%", "%%%%"))
    return f"""\
  UPDATE tripstore.capture SET since = NULL, broken = concat_ws('; ', broken, format({text}, clock_timestamp()));
"""
