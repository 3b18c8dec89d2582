"""`Doorkeeper`: which service calls, and whether it may. Without tokens every process of this machine may."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from http import HTTPStatus

from tripstore.http.errors import RequestRefused
from tripstore.http.settings import ServiceRight, ServiceToken

_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Doorkeeper:
    """Compares digests, each with all tokens: how long it takes says nothing of any."""

    def __init__(self, tokens: Sequence[ServiceToken]) -> None:
        self._services = [(each, _digest(each.token)) for each in tokens]

    def admit(self, authorization: str | None, host: str | None, wanted: ServiceRight | None) -> str:
        """Return the name of the service that may make a call, or refuse."""
        if wanted is None:
            return "any"
        if not self._services:
            return self._local(host)
        service = self._known(authorization or "")
        if service is None:
            hint = "Send `Authorization: Bearer TOKEN`, with a token of http.tokens."
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, "No service has this token.", hint=hint)
        if wanted is ServiceRight.WRITE and service.right is ServiceRight.READ:
            hint = "Give it rights: write in http.tokens."
            raise RequestRefused(HTTPStatus.FORBIDDEN, f"{service.service} may only read.", hint=hint)
        return service.service

    def _known(self, authorization: str) -> ServiceToken | None:
        scheme, _, token = authorization.partition(" ")
        asked = _digest(token.strip())
        same = [each for each, digest in self._services if hmac.compare_digest(asked, digest)]
        return same[0] if same and scheme.lower() == "bearer" else None

    @staticmethod
    def _local(host: str | None) -> str:
        """A page of a browser can give its own name the address of loopback: then it is in the header."""
        name = (host or "").rsplit(":", 1)[0] if not (host or "").endswith("]") else host
        if name not in _LOCAL_NAMES:
            hint = "Call it as 127.0.0.1 or localhost, or give services tokens (http.tokens)."
            raise RequestRefused(HTTPStatus.FORBIDDEN, "Without tokens only this machine may call.", hint=hint)
        return "local"


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
