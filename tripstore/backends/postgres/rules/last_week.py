"""What only Postgres can refuse, and how many of last week's changes were under each such constraint.

While Schemaless is the authority such a put is acknowledged, and parked when Postgres refuses it. Last week Postgres
took them all; how many there were is the most that live could have parked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.rules.column_rules import OnlyPostgres
from tripstore.backends.postgres.rules.table_rules import TableRules, read_document
from tripstore.backends.postgres.wire.connections import rows

#: A log is read as a whole, for an operator that only wants to see a plan.
COUNT_SECONDS = 10
_HAS_LOG = "SELECT pg_catalog.to_regclass('tripstore.log') IS NOT NULL"
_CHANGES = """
SELECT row::pg_catalog.json AS row FROM tripstore.{table}
WHERE column_name = %(column)s AND at > pg_catalog.now() - interval '7 days' AND row IS NOT NULL AND layout IS NOT NULL
"""
_COUNT = "SELECT {counts} FROM ({log} UNION ALL {queue}) AS change"


class Exposure(NamedTuple):
    """A constraint, and the changes that were under it; None: there is no log, or it takes too long to read."""

    constraint: OnlyPostgres
    writes: int | None


def exposures(connection: Connection, layout: Layout) -> list[Exposure]:
    """All constraints that are not decided at the put, column by column. Changes nothing."""
    rules = TableRules(layout, read_document(lambda sql, values: rows(connection, sql, values), layout))
    has_log = bool(rows(connection, _HAS_LOG)[0][0])
    found = []
    for name, column_rules in rules.columns.items():
        constraints = column_rules.only_postgres
        counts = _counts(connection, name, constraints) if has_log and constraints else [None] * len(constraints)
        found += [Exposure(each, count) for each, count in zip(constraints, counts, strict=True)]
    return found


def _counts(connection: Connection, column_name: str, constraints: Sequence[OnlyPostgres]) -> list[int | None]:
    """Of each, the changes whose row holds a value in one of its columns; all, where none of them is captured."""
    values: dict[str, object] = {"column": column_name}
    counts = []
    for n, constraint in enumerate(constraints):
        holds = []
        for m, name in enumerate(constraint.columns):
            values[f"name_{n}_{m}"] = name
            holds.append(f"(change.row OPERATOR(pg_catalog.->>) %(name_{n}_{m})s) IS NOT NULL")
        counts.append(f"count(*) FILTER (WHERE {' OR '.join(holds) or 'true'})")
    log, queue = (_CHANGES.format(table=table) for table in ("log", "queue"))
    try:
        rows(connection, f"SET statement_timeout = '{COUNT_SECONDS}s'")
        return list(rows(connection, _COUNT.format(counts=", ".join(counts), log=log, queue=queue), values)[0])
    except psycopg2.errors.QueryCanceled:
        return [None] * len(constraints)
    finally:
        rows(connection, "RESET statement_timeout")
