"""What `tripstore serve` and its callers meet beside the errors of the stores."""

from __future__ import annotations

from schemaless_core.errors import Invalid
from tripstore.errors import TripstoreError


class NotServed(Invalid, TripstoreError):
    """The front cannot listen: a library is missing, an address is taken, or what protects it is not configured."""


class RequestRefused(TripstoreError):
    """A request that reaches no store: no such path, no token, too large, too slow. `status` is that of HTTP."""

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
