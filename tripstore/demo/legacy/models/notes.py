"""Notes on trips, by riders, drivers and support. They are edited and deleted."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from tripstore.demo.legacy.models.base import NOTE_KINDS, Base, Moment
from tripstore.demo.legacy.models.trips import Trip


class TripNote(Base):
    """The nth note of a trip. `updated_at` is set by a trigger; `reads` counts and says nothing of the note."""

    __tablename__ = "trip_notes"
    __table_args__ = (
        sa.UniqueConstraint("trip_id", "n"),
        sa.CheckConstraint(f"kind IN {NOTE_KINDS}", name="kind"),
        sa.Index("ix_trip_notes_author_id", "author_id"),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    trip_id: Mapped[int] = mapped_column(sa.BigInteger, sa.ForeignKey("trips.id", ondelete="CASCADE"))
    n: Mapped[int] = mapped_column(sa.Integer)
    kind: Mapped[str] = mapped_column(sa.String(16))
    author_id: Mapped[int | None] = mapped_column(sa.BigInteger, sa.ForeignKey("users.id"))
    text: Mapped[str] = mapped_column(sa.Text)
    rating: Mapped[int | None] = mapped_column(sa.SmallInteger)
    is_public: Mapped[bool | None] = mapped_column(sa.Boolean)
    tags: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))
    attachment: Mapped[bytes | None] = mapped_column(sa.LargeBinary)
    context: Mapped[object | None] = mapped_column(JSONB(none_as_null=True))
    written_at: Mapped[datetime] = mapped_column(Moment, server_default=sa.func.now())
    reads: Mapped[int] = mapped_column(sa.Integer, server_default="0")
    updated_at: Mapped[datetime] = mapped_column(Moment, server_default=sa.func.now())

    trip: Mapped[Trip] = relationship(back_populates="notes")
