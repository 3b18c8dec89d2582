"""What `tripstore serve` and its callers meet beside the errors of the stores."""

from __future__ import annotations

from http import HTTPStatus

from schemaless_core.errors import Invalid, Unavailable
from tripstore.errors import TripstoreError


class NotServed(Invalid, TripstoreError):
    """The front cannot listen: a library is missing, an address is taken, or what protects it is not configured."""


class CallOverdue(Unavailable, TripstoreError):
    """The caller's deadline is over, and the store has not answered yet."""

    is_timeout = True

    def __init__(self, seconds: float) -> None:
        hint = "Repeat it later; a put of unknown outcome as it was."
        super().__init__(f"The deadline of {seconds:g} seconds passed.", hint=hint)
        self.seconds = seconds


class RequestRefused(TripstoreError):
    """A request that reaches no store: no such path, no token, too large, too slow. `status` is that of HTTP."""

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class MethodRefused(RequestRefused):
    """A path that takes other methods."""

    def __init__(self, allowed: str) -> None:
        super().__init__(HTTPStatus.METHOD_NOT_ALLOWED, "The path takes another method.", hint=f"Use {allowed}.")
        self.allowed = allowed
