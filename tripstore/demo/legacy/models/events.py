"""What happened to trips, for the analysts: partitioned by time, so its key is more than trip and number.

Time is part of every unique key of such a table: no layout can take it for numbered rows of a trip.
"""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from tripstore.demo.legacy.models.base import Base, Moment


class TripEvent(Base):
    """One event of a trip. Trips come and go without it: there is no foreign key."""

    __tablename__ = "trip_events"
    __table_args__ = ({"postgresql_partition_by": "RANGE (happened_at)"},)

    trip_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    happened_at: Mapped[datetime] = mapped_column(Moment, primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    details: Mapped[object | None] = mapped_column(JSONB(none_as_null=True))
