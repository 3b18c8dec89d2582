"""trip_notes.trip_uuid: give it to new rows.

    CREATE OR REPLACE FUNCTION tripstore."public.trip_notes.uuid"() RETURNS trigger LANGUAGE plpgsql SECURITY
      DEFINER SET search_path = pg_catalog, pg_temp AS $tripstore$ BEGIN   NEW."trip_uuid" := COALESCE((SELECT
      parent."trip_uuid" FROM "public"."trips" AS parent WHERE parent."id" = NEW."trip_id"), (SELECT
      (pg_catalog.substr(h, 1, 12) || '3' || pg_catalog.substr(h, 14, 3) ||
      pg_catalog.translate(pg_catalog.substr(h, 17, 1), '0123456789abcdef', '89ab89ab89ab89ab') ||
      pg_catalog.substr(h, 18))::pg_catalog.uuid FROM (SELECT
      pg_catalog.md5(pg_catalog.decode('6f0c3c5e0f434d0e9b555b4d8a0c7a117075626c69632e74726970732f', 'hex') ||
      pg_catalog.convert_to(((NEW."trip_id")::pg_catalog.int8)::pg_catalog.text, 'UTF8'))) AS digest(h)));   RETURN
      NEW; END $tripstore$;
    CREATE OR REPLACE TRIGGER zz_tripstore_0_uuid BEFORE INSERT ON "public"."trip_notes" FOR EACH ROW WHEN
      (NEW."trip_uuid" IS NULL) EXECUTE FUNCTION tripstore."public.trip_notes.uuid"();
    ALTER TABLE "public"."trip_notes" ENABLE ALWAYS TRIGGER zz_tripstore_0_uuid;
    CREATE OR REPLACE TRIGGER zz_tripstore_0_uuid_moved BEFORE UPDATE OF "trip_id" ON "public"."trip_notes" FOR
      EACH ROW WHEN (NEW."trip_id" IS DISTINCT FROM OLD."trip_id" AND NEW."trip_uuid" IS NOT DISTINCT FROM
      OLD."trip_uuid") EXECUTE FUNCTION tripstore."public.trip_notes.uuid"();
    ALTER TABLE "public"."trip_notes" ENABLE ALWAYS TRIGGER zz_tripstore_0_uuid_moved;

No lock is waited for longer than 0.3 s; then everybody passes, and it is tried again.
The sessions that are still in the way are named.
Written by `tripstore ids revisions`. What is done is passed over: killed anywhere, it is run again.
"""

from __future__ import annotations

from alembic import op

from tripstore.backends.postgres.ids.id_step import IdStep

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

STEP = IdStep(
    kind="FillNewRows",
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
