"""The company's SQLAlchemy models, one file per group of nouns."""

from tripstore.demo.legacy.models.base import Base
from tripstore.demo.legacy.models.billing import BillingAttempt
from tripstore.demo.legacy.models.events import TripEvent
from tripstore.demo.legacy.models.fares import FareAdjustment
from tripstore.demo.legacy.models.notes import TripNote
from tripstore.demo.legacy.models.people import City, User
from tripstore.demo.legacy.models.trips import Trip

__all__ = ["Base", "BillingAttempt", "City", "FareAdjustment", "Trip", "TripEvent", "TripNote", "User"]
