"""Queue, log, tombs, cells of our own, the numbering of the shard log, and the gate."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None

_CHANGE = """
    row_key uuid NOT NULL,
    column_name text COLLATE "C" NOT NULL,
    ref_key bigint NOT NULL,
    id bigint {id},
    xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    layout int,
    row text,
    previous bigint,
    origin text,
    application text DEFAULT pg_catalog.current_setting('application_name', true),
    role text DEFAULT coalesce(nullif(pg_catalog.current_setting('role', true), 'none'), session_user)
"""

_TABLES = f"""
CREATE TABLE tripstore.layout (
    number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    document text NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE tripstore.queue (
    {_CHANGE.format(id="GENERATED ALWAYS AS IDENTITY")},
    PRIMARY KEY (row_key, column_name, ref_key)
);
CREATE TABLE tripstore.log (
    {_CHANGE.format(id="NOT NULL")},
    delivered_at timestamptz
) PARTITION BY RANGE (at);
CREATE INDEX log_key ON tripstore.log (row_key, column_name, ref_key);
CREATE TABLE tripstore.log_rest PARTITION OF tripstore.log DEFAULT;
CREATE TABLE tripstore.tomb (
    row_key uuid NOT NULL,
    column_name text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    ref_key bigint NOT NULL,
    PRIMARY KEY (row_key, column_name, n)
);
CREATE TABLE tripstore.cell (
    row_key uuid NOT NULL,
    column_name text COLLATE "C" NOT NULL,
    ref_key bigint NOT NULL,
    body bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (row_key, column_name, ref_key)
);
CREATE INDEX cell_column ON tripstore.cell (column_name, row_key, ref_key);
CREATE TABLE tripstore.numbered (
    shard int NOT NULL,
    added_id bigint NOT NULL,
    row_key uuid NOT NULL,
    column_name text COLLATE "C" NOT NULL,
    ref_key bigint NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (shard, added_id),
    UNIQUE (row_key, column_name, ref_key)
);
CREATE TABLE tripstore.capture (since timestamptz, layout int, broken text);
INSERT INTO tripstore.capture VALUES (NULL, NULL, NULL);
CREATE UNIQUE INDEX capture_one ON tripstore.capture ((true));
CREATE SEQUENCE tripstore.gate MINVALUE 0 START 1;
SELECT pg_catalog.setval('tripstore.gate', 1);
GRANT SELECT ON SEQUENCE tripstore.gate TO PUBLIC;
GRANT USAGE ON SCHEMA tripstore TO PUBLIC;
"""


def upgrade() -> None:
    op.execute(_TABLES)


def downgrade() -> None:
    op.execute(
        "DROP TABLE tripstore.layout, tripstore.queue, tripstore.log, tripstore.tomb, tripstore.cell, "
        "tripstore.numbered, tripstore.capture; DROP SEQUENCE tripstore.gate"
    )
