"""Which Postgres gave the authority row: the timeline of the server that did, and a sequence that triggers look at.

The sequence has no value before the first hand-over is prepared: until then nothing is compared. Where there was one,
this server is the one that knows of it.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"

_ACCEPTED = """
ALTER TABLE tripstore.authority ADD COLUMN timeline bigint;
ALTER TABLE tripstore.authority_history ADD COLUMN timeline bigint;
CREATE SEQUENCE IF NOT EXISTS tripstore.accepted MINVALUE 0 START 1;
GRANT SELECT ON SEQUENCE tripstore.accepted TO PUBLIC;
UPDATE tripstore.authority SET timeline = ('x' || pg_catalog.substr(
    pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint WHERE epoch > 0;
SELECT pg_catalog.setval('tripstore.accepted', timeline) FROM tripstore.authority WHERE timeline IS NOT NULL
"""


def upgrade() -> None:
    op.execute(_ACCEPTED)


def downgrade() -> None:
    # The functions of this version look at the sequence until another version has made its own. Without a value it
    # refuses no session.
    op.execute(
        "ALTER SEQUENCE tripstore.accepted RESTART; ALTER TABLE tripstore.authority DROP COLUMN timeline;"
        " ALTER TABLE tripstore.authority_history DROP COLUMN timeline"
    )
