"""Move trips, live, from one overloaded Postgres to Schemaless: one API over both."""

_HOMES = {
    "tripstore.errors": ("TripstoreError",),
    "tripstore.store": ("TripStore",),
    "tripstore.wiring": ("connect",),
}

__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> object:
    # Even what finds names is imported when one is asked for: the command's main() is behind this file, and only from
    # there on an interrupt is told as one.
    from schemaless_core.lazy import imported_when_asked
    from schemaless_core.version import VERSION

    return VERSION if name == "__version__" else imported_when_asked(__name__, _HOMES)(name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
