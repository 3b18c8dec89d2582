"""The base of the facade's errors. Whatever leaves `tripstore` on purpose is one of these or one of the core's."""

from schemaless_core.errors import Unavailable
from schemaless_core.told import Told


class TripstoreError(Told):
    """Base of everything the facade raises on purpose; `hint` says what to do next."""


class StaleLayout(Unavailable, TripstoreError):
    """This process goes by a layout that is not in force. It may do nothing before it has loaded the one that is."""

    def __init__(self, known: str, in_force: str) -> None:
        super().__init__(
            f"This process goes by layout {known}, and layout {in_force} is in force.",
            hint="Start it again with the layout in force, or put its own in force: `tripstore schema apply`.",
        )
        #: Digests.
        self.known = known
        self.in_force = in_force
