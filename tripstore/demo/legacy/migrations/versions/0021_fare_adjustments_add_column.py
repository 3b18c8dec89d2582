"""fare_adjustments.trip_uuid: add the column.

    ALTER TABLE "public"."fare_adjustments" ADD COLUMN "trip_uuid" uuid;
    COMMENT ON COLUMN "public"."fare_adjustments"."trip_uuid" IS 'Added by tripstore: the row key.';

No lock is waited for longer than 0.3 s; then everybody passes, and it is tried again.
The sessions that are still in the way are named.
Written by `tripstore ids revisions`. What is done is passed over: killed anywhere, it is run again.
"""

from __future__ import annotations

from alembic import op

from tripstore.backends.postgres.ids.id_step import IdStep

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

STEP = IdStep(
    kind="AddColumn",
    table=("public", "fare_adjustments"),
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
