"""Move trips, live, from one overloaded Postgres to Schemaless."""

from tripstore.errors import TripstoreError

__all__ = ["TripstoreError"]
