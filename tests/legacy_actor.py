"""A process that puts one cell into a legacy store and meets an accident: `python -m tests.legacy_actor URL …`."""

from __future__ import annotations

import json
import sys
from uuid import UUID

from tests.legacy import layout
from tests.legacy_backends import SHARDS
from tests.legacy_databases import PATIENT
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.settings import LegacySettings


def main(url: str, row_key: str, column: str, ref_key: str, body: str) -> None:
    settings = LegacySettings(PATIENT.deadlines, idle_transaction_seconds=0.5)
    with PostgresBackend(LegacyDatabase(url, settings), layout(), shards=SHARDS) as store:
        result = store.put_cell(UUID(row_key), column, int(ref_key), json.loads(body))
    print(result.status)


if __name__ == "__main__":
    main(*sys.argv[1:])
