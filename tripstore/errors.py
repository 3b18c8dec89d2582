"""The base of the facade's errors. Whatever leaves `tripstore` on purpose is one of these or one of the core's."""

from schemaless_core.told import Told


class TripstoreError(Told):
    """Base of everything the facade raises on purpose; `hint` says what to do next."""
