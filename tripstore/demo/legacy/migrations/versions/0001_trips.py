"""Users, cities and trips, as on the first day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import DOMAIN, ENUM, INET, JSON

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TOUCH = """
CREATE FUNCTION touch_updated_at() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.updated_at := now();
  RETURN NEW;
END $$
"""
TOUCH_TRIPS = "CREATE TRIGGER touch_trips BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION touch_updated_at()"


def upgrade() -> None:
    op.execute("CREATE TYPE user_role AS ENUM ('rider', 'driver')")
    op.execute("CREATE TYPE trip_status AS ENUM ('requested', 'accepted', 'in_progress', 'completed', 'cancelled')")
    op.execute("CREATE DOMAIN currency_code AS text CHECK (VALUE ~ '^[A-Z]{3}$')")
    op.execute(TOUCH)
    _create_people()
    _create_trips()
    op.execute(TOUCH_TRIPS)


def downgrade() -> None:
    for table in ("trips", "cities", "users"):
        op.drop_table(table)
    op.execute("DROP FUNCTION touch_updated_at()")
    op.execute("DROP DOMAIN currency_code")
    op.execute("DROP TYPE trip_status")
    op.execute("DROP TYPE user_role")


def _create_people() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.BigInteger, nullable=False),
        sa.Column("role", ENUM(name="user_role", create_type=False), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("rating", sa.Numeric(3, 2)),
        sa.Column("signed_up_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="users_pkey"),
    )
    op.create_index("uq_users_email", "users", [sa.text("lower(email)")], unique=True)
    op.create_table(
        "cities",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("code", sa.String(8), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("timezone", sa.Text, nullable=False),
        sa.Column("currency", DOMAIN("currency_code", sa.Text(), create_type=False), nullable=False),
        sa.PrimaryKeyConstraint("id", name="cities_pkey"),
        sa.UniqueConstraint("code", name="uq_cities_code"),
    )


def _create_trips() -> None:
    op.create_table(
        "trips",
        sa.Column("id", sa.BigInteger, nullable=False),
        sa.Column("rider_id", sa.BigInteger, nullable=False),
        sa.Column("driver_id", sa.BigInteger),
        sa.Column("city_id", sa.Integer, nullable=False),
        sa.Column("status", ENUM(name="trip_status", create_type=False), server_default="requested", nullable=False),
        sa.Column("product", sa.String(32), server_default="standard", nullable=False),
        sa.Column("request_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("begin_at", sa.DateTime(timezone=True)),
        sa.Column("dropoff_at", sa.DateTime(timezone=True)),
        sa.Column("currency", DOMAIN("currency_code", sa.Text(), create_type=False)),
        sa.Column("fare_amount", sa.Numeric(12, 2)),
        sa.Column("distance_km", sa.Double),
        sa.Column("duration_seconds", sa.Integer),
        sa.Column("client", JSON),
        sa.Column("request_ip", INET),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="trips_pkey"),
        sa.ForeignKeyConstraint(["rider_id"], ["users.id"], name="fk_trips_rider_id"),
        sa.ForeignKeyConstraint(["driver_id"], ["users.id"], name="fk_trips_driver_id"),
        sa.ForeignKeyConstraint(["city_id"], ["cities.id"], name="fk_trips_city_id"),
        sa.CheckConstraint("fare_amount >= 0", name=op.f("ck_trips_fare_amount")),
    )
    for column in ("rider_id", "driver_id", "city_id"):
        op.create_index(f"ix_trips_{column}_request_at", "trips", [column, "request_at"])
    op.create_index("ix_trips_open", "trips", ["request_at"], postgresql_where=sa.text("dropoff_at IS NULL"))
