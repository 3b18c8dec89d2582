"""Notes on trips, shared trips, routes and signatures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TOUCH_NOTES = (
    "CREATE TRIGGER touch_trip_notes BEFORE UPDATE ON trip_notes FOR EACH ROW EXECUTE FUNCTION touch_updated_at()"
)


def upgrade() -> None:
    op.create_table(
        "trip_notes",
        sa.Column("id", sa.BigInteger, nullable=False),
        sa.Column("trip_id", sa.BigInteger, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("author_id", sa.BigInteger),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("rating", sa.SmallInteger),
        sa.Column("is_public", sa.Boolean),
        sa.Column("tags", ARRAY(sa.Text)),
        sa.Column("attachment", sa.LargeBinary),
        sa.Column("context", JSONB),
        sa.Column("written_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("reads", sa.Integer, server_default="0", nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="trip_notes_pkey"),
        sa.ForeignKeyConstraint(["trip_id"], ["trips.id"], name="fk_trip_notes_trip_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["author_id"], ["users.id"], name="fk_trip_notes_author_id"),
        sa.UniqueConstraint("trip_id", "n", name="uq_trip_notes_trip_id_n"),
        sa.CheckConstraint("kind IN ('rider', 'driver', 'support')", name=op.f("ck_trip_notes_kind")),
    )
    op.create_index("ix_trip_notes_author_id", "trip_notes", ["author_id"])
    op.execute(TOUCH_NOTES)
    op.add_column("trips", sa.Column("passengers", sa.SmallInteger))
    op.add_column("trips", sa.Column("is_shared", sa.Boolean, server_default=sa.false(), nullable=False))
    op.add_column("trips", sa.Column("tags", ARRAY(sa.Text)))
    op.add_column("trips", sa.Column("leg_km", ARRAY(sa.Double)))
    op.add_column("trips", sa.Column("route", JSONB))
    op.add_column("trips", sa.Column("signature", sa.LargeBinary))
    op.create_check_constraint(op.f("ck_trips_passengers"), "trips", "passengers BETWEEN 1 AND 8")


def downgrade() -> None:
    op.drop_constraint(op.f("ck_trips_passengers"), "trips")
    for column in ("signature", "route", "leg_km", "tags", "is_shared", "passengers"):
        op.drop_column("trips", column)
    op.drop_table("trip_notes")
