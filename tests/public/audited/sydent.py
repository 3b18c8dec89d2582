"""A server without an ORM: SQL in texts, some of it in SQLite's own words. Read by hand; paths and lines only."""

from __future__ import annotations

from tests.public.audited.code import AuditedCode

SYDENT = AuditedCode(
    name="sydent",
    repository="matrix-org/sydent",
    commit="a37d60bd8efd78cd71a109136c30b7c9c633f56a",
    kind="SQL in texts (SQLite's)",
    table="local_threepid_associations",
    uses={
        "scripts/casefold_db.py": "155-158 239-242 256-264",
        "sydent/db/hashing_metadata.py": "84-86 118 128-132 150-153",
        "sydent/db/sqlitedb.py": "80-82 83-91 92-95 96-98 160-163",
        "sydent/db/threepid_associations.py": "49-62 83-87 160-164 168-173",
        "sydent/db/threepid_associations.sql": "19",
        "tests/test_casefold_migration.py": "90-106 243 327 343",
        "tests/test_replication.py": "111-127",
    },
    rows={},
    either={
        "sydent/db/hashing_metadata.py": "97-103",
        "sydent/db/sqlitedb.py": "79 99",
    },
)
