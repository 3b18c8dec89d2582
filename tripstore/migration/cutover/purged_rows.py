"""Rows that were purged from Schemaless, and that Postgres has yet, or again."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout, quoted
from tripstore.migration.cutover.facts import PurgedFacts

LOOK_SECONDS = 20.0
#: Rows that are named.
FIRST_MAX = 3
# Mapped rows, and free columns whose latest cell is no tombstone.
_THERE = """\
SELECT p.{uuid}::text FROM {table} AS p WHERE p.{uuid} = ANY(%s::uuid[])
UNION SELECT c.row_key::text FROM tripstore.cell AS c
WHERE c.row_key = ANY(%s::uuid[]) AND c.column_name <> ALL(%s::text[]) AND c.body <> 'null'::bytea
    AND NOT EXISTS (SELECT FROM tripstore.cell AS n
        WHERE n.row_key = c.row_key AND n.column_name = c.column_name AND n.ref_key > c.ref_key)
ORDER BY 1"""


def find_purged_rows(legacy: PostgresBackend, store: Datastore) -> PurgedFacts:
    """Count them, and name the first."""
    there = set[str]()
    for row_keys in store.purges.whole_rows():
        there.update(_there(legacy, row_keys))
    return PurgedFacts(len(there), tuple(sorted(there)[:FIRST_MAX]))


def _there(legacy: PostgresBackend, row_keys: Sequence[UUID]) -> list[str]:
    keys = [str(key) for key in row_keys]
    mapped = [*legacy.layout.columns, LEGACY_ID]
    values, statement = (keys, keys, mapped), _statement(legacy.layout)
    found = legacy.database.run(lambda connection: connection.rows(statement, values), Deadline(LOOK_SECONDS))
    return [str(key) for (key,) in found]


def _statement(layout: Layout) -> str:
    return _THERE.format(uuid=quoted(layout.row_key.uuid), table=layout.row_key.table.sql)
