"""`http` of the configuration: where the front listens, which services may call, how much of one request is taken.

It is checked, and its `${REFERENCES}` are looked up, where it is served: another process with the same file needs none
of the tokens.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from schemaless_core.config import refuse_unknown, resolve_references, section
from schemaless_core.errors import InvalidConfig
from schemaless_core.urls import shown_setting
from tripstore.config import HttpDocument
from tripstore.http.errors import NotServed

#: A token of fewer characters can be guessed.
TOKEN_MIN = 16
PORT_MAX = 65535
_TOKENS = "Write tokens: [{service: billing, token: ${BILLING_TOKEN}, rights: read}]."


class ServiceRight(StrEnum):
    """What the token of a service allows."""

    READ = "read"  #: Every call that changes nothing.
    WRITE = "write"  #: Those, and puts.


@dataclass(frozen=True, slots=True)
class ServiceToken:
    """The secret of one service. It is never shown."""

    service: str
    token: str
    right: ServiceRight

    def __repr__(self) -> str:
        return f"ServiceToken({self.service!r}, {self.right.value})"


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Where the front listens, and what of one request it takes."""

    host: str = "127.0.0.1"  #: Elsewhere than on loopback it needs a certificate and tokens.
    port: int = 8080
    request_bytes_max: int = 16 * 1024 * 1024  #: Of the body of a request; of one cell `max_body_bytes` says it.
    request_seconds: float = 30.0  #: So long the body of a request may take to arrive.
    deadline_seconds_max: float = 60.0  #: The longest deadline that a caller may ask for.
    drain_seconds: float = 30.0  #: After SIGTERM calls have so long to end.
    connections_max: int = 1000  #: More are told to come back later.


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """All of `http`, checked."""

    limits: HttpLimits
    tokens: tuple[ServiceToken, ...] = ()
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether no other machine can reach it."""
        if self.limits.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.limits.host).is_loopback
        except ValueError:
            return False

    def refuse_unprotected(self) -> None:
        """Refuse to listen where others could listen, too, or call without a token."""
        if self.is_loopback:
            return
        if self.certificate is None:
            hint = "Set http.tls_certificate and http.tls_key, or listen at 127.0.0.1."
            raise NotServed(f"Without TLS the front does not listen at {self.limits.host}.", hint=hint)
        if not self.tokens:
            raise NotServed(f"Without tokens the front does not listen at {self.limits.host}.", hint=_TOKENS)


def http_settings(document: HttpDocument, **changes: Any) -> HttpSettings:
    """Check the section, with what the command line says instead."""
    given = resolve_references(document.given or {}, document.folder)
    if not isinstance(given, Mapping):
        raise InvalidConfig("http", f"{shown_setting(given)} is no mapping", hint="Write http: {…}.")
    known = (*(each.name for each in fields(HttpLimits)), "tokens", "tls_certificate", "tls_key")
    refuse_unknown("http.", given, known)
    rest = dict(given)
    tokens = _tokens(rest.pop("tokens", []))
    certificate, key = (_file(name, rest.pop(name, None), document.folder) for name in ("tls_certificate", "tls_key"))
    if (certificate is None) != (key is None):
        raise InvalidConfig("http.tls_certificate", "and tls_key belong together", hint="Name both files, or none.")
    host = rest.pop("host", HttpLimits().host)
    if not isinstance(host, str) or not host:
        raise InvalidConfig("http.host", f"{shown_setting(host)} is no host", hint="Write e.g. 127.0.0.1.")
    limits = section("http", HttpLimits, rest)
    if limits.port > PORT_MAX:
        raise InvalidConfig("http.port", f"{limits.port} is no port", hint="Write e.g. 8080.")
    said = {each.name: getattr(limits, each.name) for each in fields(HttpLimits)} | {"host": host} | changes
    return HttpSettings(HttpLimits(**said), tokens, certificate, key)


def _tokens(given: object) -> tuple[ServiceToken, ...]:
    if not isinstance(given, list):
        raise InvalidConfig("http.tokens", "is no list", hint=_TOKENS)
    tokens = tuple(_token(f"http.tokens[{number}]", each) for number, each in enumerate(given))
    for what, kept in (("services", {each.service for each in tokens}), ("tokens", {each.token for each in tokens})):
        if len(kept) < len(tokens):
            raise InvalidConfig("http.tokens", f"has the same of two {what}", hint="Give each service a token.")
    return tokens


def _token(key: str, given: object) -> ServiceToken:
    if not isinstance(given, dict):
        raise InvalidConfig(key, "is no mapping", hint=_TOKENS)
    refuse_unknown(f"{key}.", given, ("service", "token", "rights"))
    service, token, rights = (given.get(name) for name in ("service", "token", "rights"))
    if not isinstance(service, str) or not service.isprintable() or not service:
        raise InvalidConfig(f"{key}.service", "is no name", hint=_TOKENS)
    if not isinstance(token, str) or len(token) < TOKEN_MIN or not token.isascii() or " " in token:
        reason = f"is no text of at least {TOKEN_MIN} characters without blanks"
        raise InvalidConfig(f"{key}.token", reason, hint="Make one: openssl rand -hex 32.")
    if rights not in list(ServiceRight):
        raise InvalidConfig(f"{key}.rights", f"{shown_setting(rights)} is neither read nor write", hint=_TOKENS)
    return ServiceToken(service, str(token), ServiceRight(str(rights)))


def _file(name: str, given: object, folder: Path) -> Path | None:
    if given is None:
        return None
    if not isinstance(given, str) or not (folder / given).is_file():
        raise InvalidConfig(f"http.{name}", f"{shown_setting(given)} is no file", hint="Name a PEM file.")
    return folder / given
