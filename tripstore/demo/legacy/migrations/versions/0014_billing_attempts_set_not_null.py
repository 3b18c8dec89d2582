"""billing_attempts.trip_uuid: NOT NULL.

    ALTER TABLE "public"."billing_attempts" ADD CONSTRAINT tripstore_uuid_not_null CHECK ("trip_uuid" IS NOT NULL)
      NOT VALID;
    ALTER TABLE "public"."billing_attempts" VALIDATE CONSTRAINT tripstore_uuid_not_null;
    ALTER TABLE "public"."billing_attempts" ALTER COLUMN "trip_uuid" SET NOT NULL;
    ALTER TABLE "public"."billing_attempts" DROP CONSTRAINT IF EXISTS tripstore_uuid_not_null;

No lock is waited for longer than 0.3 s; then everybody passes, and it is tried again.
The sessions that are still in the way are named.
Written by `tripstore ids revisions`. What is done is passed over: killed anywhere, it is run again.
"""

from __future__ import annotations

from alembic import op

from tripstore.backends.postgres.ids.id_step import IdStep

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

STEP = IdStep(
    kind="SetNotNull",
    table=("public", "billing_attempts"),
    uuid="trip_uuid",
    id="trip_id",
    number="attempt_no",
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
