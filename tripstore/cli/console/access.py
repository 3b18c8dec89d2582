"""`ConsoleAccess`: which request may read, and which may change something.

On loopback every process of this machine may read, and no page that has another name. Elsewhere a browser gives the
token once and begins a session. What changes something needs the session's cookie, an origin that is ours, and the
session's own seal in a header that no form and no other page can send.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from hashlib import sha256
from http import HTTPStatus
from typing import NamedTuple

from tripstore.http.errors import RequestRefused
from tripstore.http.request import HttpRequest

COOKIE = "tripstore_console"
#: A browser sends a header of this name to another site only if that site allows it; we never do.
HEADER = "tripstore-console"


class BegunSession(NamedTuple):
    """What a browser gets for the token: a cookie that no script reads, and the seal of its requests."""

    cookie: bytes
    seal: str


class ConsoleAccess:
    """One token for the life of the process, known to the operator who started it."""

    def __init__(self, *, is_loopback: bool, is_tls: bool) -> None:
        self.token = secrets.token_urlsafe(32)
        self._key = secrets.token_bytes(32)
        #: Its own name: all ports of a host share their cookies.
        self.cookie = f"{COOKIE}_{secrets.token_hex(4)}"
        self._is_loopback = is_loopback
        self._is_tls = is_tls

    def refuse_stranger(self, request: HttpRequest) -> None:
        """A page of a browser can give its own name the address of loopback: then it is in the header."""
        host = request.header("host") or ""
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]
        if self._is_loopback and not _is_local(name):
            raise RequestRefused(HTTPStatus.FORBIDDEN, "The console has another name.", hint="Call it as 127.0.0.1.")

    def may_read(self, request: HttpRequest) -> bool:
        return self._is_loopback or self.knows(request)

    def knows(self, request: HttpRequest) -> bool:
        """Whether the browser has given the token."""
        return self.session(request) is not None

    def seal(self, request: HttpRequest) -> str:
        """What the page of this session sends with each change; "": the browser has not given the token."""
        session = self.session(request)
        return "" if session is None else self._signed("seal", session)

    def refuse_forged(self, request: HttpRequest) -> None:
        """Refuse what another page could have made a browser send."""
        scheme = "https" if self._is_tls else "http"
        if request.header("origin") != f"{scheme}://{request.header('host')}" or request.header(HEADER) is None:
            raise RequestRefused(HTTPStatus.FORBIDDEN, "Another page sent this.", hint="Use the console's own page.")

    def refuse_unsealed(self, request: HttpRequest) -> None:
        """Refuse what does not come from the page of a session: what changes something needs all of it."""
        self.refuse_forged(request)
        seal = self.seal(request)
        if not seal:
            hint = "The command printed it when it started."
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, "Changes need the token.", hint=hint)
        if not _is_same(request.header(HEADER) or "", seal):
            hint = "Load the page again."
            raise RequestRefused(HTTPStatus.FORBIDDEN, "The page belongs to another session.", hint=hint)

    def begin_session(self, token: str, former: str | None = None) -> BegunSession:
        """Make a browser known, or refuse. Its `former` session goes on, and with it the browser's other pages."""
        if not _is_same(token, self.token):
            hint = "The command printed it when it started."
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, "This is not the token of this console.", hint=hint)
        session = former or secrets.token_urlsafe(16)
        secure = "; Secure" if self._is_tls else ""
        value = f"{session}.{self._signed('session', session)}"
        cookie = f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return BegunSession(cookie.encode(), self._signed("seal", session))

    def session(self, request: HttpRequest) -> str | None:
        """The session of a cookie that we signed."""
        pairs = (each.strip().partition("=") for each in (request.header("cookie") or "").split(";"))
        for name, _, value in pairs:
            session, _, signature = value.partition(".")
            if name == self.cookie and _is_same(signature, self._signed("session", session)):
                return session
        return None

    def _signed(self, purpose: str, session: str) -> str:
        text = f"{purpose}:{session}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, sha256).hexdigest()


def _is_local(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_same(one: str, other: str) -> bool:
    """Compares digests: how long it takes says nothing of either."""
    return hmac.compare_digest(*(sha256(each.encode("utf-8", "surrogatepass")).digest() for each in (one, other)))
