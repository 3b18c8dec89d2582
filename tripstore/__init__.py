"""Move trips, live, from one overloaded Postgres to Schemaless: one API over both."""

from schemaless_core import __version__ as __version__
from tripstore.errors import TripstoreError
from tripstore.store import TripStore
from tripstore.wiring import connect

__all__ = ["TripStore", "TripstoreError", "connect"]
