"""For type checkers: the names of `__init__.py`, which imports each when it is asked for."""

from tripstore.errors import (
    TripstoreError as TripstoreError,
)
from tripstore.store import (
    TripStore as TripStore,
)
from tripstore.wiring import (
    connect as connect,
)

__version__: str
__all__: list[str]
