"""trip_notes: unique index on (trip_uuid, n).

    CREATE UNIQUE INDEX CONCURRENTLY "tripstore_trip_notes_trip_uuid_n" ON "public"."trip_notes" ("trip_uuid",
      "n");

No statement is blocked. Of a table with partitions one after the other, then they are attached.
Written by `tripstore ids revisions`. What is done is passed over: killed anywhere, it is run again.
"""

from __future__ import annotations

from alembic import op

from tripstore.backends.postgres.ids.id_step import IdStep

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

STEP = IdStep(
    kind="UniqueIndex",
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
