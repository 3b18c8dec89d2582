"""The row that decides, its history, and what relays note in the queue: who has a change, why one is set aside."""

from __future__ import annotations

from alembic import op

from tripstore.backends.postgres.migrations.locking import lock_without_a_queue

revision = "0005"
down_revision = "0004"

_LOCK = lock_without_a_queue("tripstore.queue", "tripstore.log")

_ROW = """
    epoch bigint NOT NULL{key},
    backend text NOT NULL CHECK (backend IN ('postgres', 'schemaless')),
    target text CHECK (target IN ('postgres', 'schemaless') AND target <> backend),
    switch_id text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    who text NOT NULL
"""

# The authority's epoch, of one look at the gate: 4e + 1 while it is open, 4(e + 1) + 2 while it is closing. To exclude
# by 3 turns the order of the states around, so that what closes at e + 1 comes right after what is open at e.
_EPOCH = "((pg_catalog.pg_sequence_last_value('tripstore.gate'::regclass) # 3) - 2) / 4"

_TABLES = f"""
CREATE TABLE tripstore.authority ({_ROW.format(key="")});
CREATE UNIQUE INDEX authority_one ON tripstore.authority ((true));
CREATE TABLE tripstore.authority_history ({_ROW.format(key=" PRIMARY KEY")});
INSERT INTO tripstore.authority (epoch, backend, switch_id, who)
SELECT pg_catalog.pg_sequence_last_value('tripstore.gate'::regclass) / 4, 'postgres', '', 'schema apply';
INSERT INTO tripstore.authority_history SELECT * FROM tripstore.authority;
ALTER TABLE tripstore.queue
    ADD COLUMN claimed_by text,
    ADD COLUMN claimed_until timestamptz,
    ADD COLUMN attempts int NOT NULL DEFAULT 0,
    ADD COLUMN parked text CHECK (parked IN ('conflict', 'unreadable', 'refused')),
    ADD COLUMN because text,
    ADD COLUMN epoch bigint DEFAULT 0;
ALTER TABLE tripstore.log ADD COLUMN epoch bigint DEFAULT 0;
ALTER TABLE tripstore.queue ALTER COLUMN epoch SET DEFAULT {_EPOCH};
ALTER TABLE tripstore.log ALTER COLUMN epoch SET DEFAULT {_EPOCH};
CREATE INDEX queue_id ON tripstore.queue (id);
"""

# A claim is an UPDATE that finds room on its page, or it would be told to both indexes. What was delivered is swept
# soon: claims begin at the oldest change, and would walk over all that was there.
_STORAGE = """
ALTER TABLE tripstore.queue SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000
)
"""
_STORAGE_BEFORE = """
ALTER TABLE tripstore.queue RESET (
    fillfactor,
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor,
    autovacuum_analyze_threshold
)
"""


def upgrade() -> None:
    op.execute(_LOCK)
    op.execute(_TABLES)
    op.execute(_STORAGE)


def downgrade() -> None:
    op.execute(_LOCK)
    op.execute(
        "DROP INDEX tripstore.queue_id; ALTER TABLE tripstore.log DROP COLUMN epoch; ALTER TABLE tripstore.queue"
        " DROP COLUMN claimed_by, DROP COLUMN claimed_until, DROP COLUMN attempts, DROP COLUMN parked,"
        " DROP COLUMN because, DROP COLUMN epoch; DROP TABLE tripstore.authority, tripstore.authority_history"
    )
    op.execute(_STORAGE_BEFORE)
