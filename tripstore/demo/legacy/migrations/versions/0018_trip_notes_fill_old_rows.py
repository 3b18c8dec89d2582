"""trip_notes.trip_uuid: fill the rows that are there.

    UPDATE "public"."trip_notes" AS t SET "trip_uuid" = COALESCE((SELECT parent."trip_uuid" FROM "public"."trips"
      AS parent WHERE parent."id" = t."trip_id"), (SELECT (pg_catalog.substr(h, 1, 12) || '3' ||
      pg_catalog.substr(h, 14, 3) || pg_catalog.translate(pg_catalog.substr(h, 17, 1), '0123456789abcdef',
      '89ab89ab89ab89ab') || pg_catalog.substr(h, 18))::pg_catalog.uuid FROM (SELECT
      pg_catalog.md5(pg_catalog.decode('6f0c3c5e0f434d0e9b555b4d8a0c7a117075626c69632e74726970732f', 'hex') ||
      pg_catalog.convert_to(((t."trip_id")::pg_catalog.int8)::pg_catalog.text, 'UTF8'))) AS digest(h))) WHERE
      t."trip_uuid" IS NULL  -- in batches along the primary key;

In transactions of a tenth of a second along the primary key; rows that a session has locked come last.
Written by `tripstore ids revisions`. What is done is passed over: killed anywhere, it is run again.
"""

from __future__ import annotations

from alembic import op

from tripstore.backends.postgres.ids.id_step import IdStep

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

STEP = IdStep(
    kind="FillOldRows",
    table=("public", "trip_notes"),
    uuid="trip_uuid",
    id="trip_id",
    number="n",
    parent=("public", "trips"),
    parent_id="id",
    parent_uuid="trip_uuid",
)


def upgrade() -> None:
    with op.get_context().autocommit_block():
        STEP.apply(op.get_bind())


def downgrade() -> None:
    with op.get_context().autocommit_block():
        STEP.revert(op.get_bind())
