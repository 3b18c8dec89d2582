"""Move trips, live, from one overloaded Postgres to Schemaless: one API over both."""

from schemaless_core.lazy import imported_when_asked
from schemaless_core.version import VERSION

_HOMES = {
    "tripstore.errors": ("TripstoreError",),
    "tripstore.store": ("TripStore",),
    "tripstore.wiring": ("connect",),
}

__version__ = VERSION
__all__ = sorted(name for names in _HOMES.values() for name in names)
__getattr__ = imported_when_asked(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
