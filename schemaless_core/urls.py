"""URLs of nodes: `mysql://user:password@host:port` or `sqlite:///folder`. A password never shows in text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from schemaless_core.errors import InvalidConfig

_HINT = "Write mysql://user:password@host:port or sqlite:///folder."


@dataclass(frozen=True, slots=True)
class NodeUrl:
    """Where one server is and how to log in."""

    engine: Literal["mysql", "sqlite"]
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    folder: str = ""
    database: str = ""

    def __str__(self) -> str:
        if self.engine == "sqlite":
            return f"sqlite:///{self.folder}"
        return f"mysql://{self.user}@{self.host}:{self.port}"


def parse_node_url(key: str, text: object) -> NodeUrl:
    """Return the parts of a node URL, or raise `InvalidConfig` naming the key."""
    if not isinstance(text, str) or "://" not in text:
        raise InvalidConfig(key, f"{_shown(text)} is no node URL", hint=_HINT)
    try:
        parts = urlsplit(text)
        port = parts.port or 3306
    except ValueError as problem:
        raise InvalidConfig(key, f"{_shown(text)} is no URL ({problem})", hint=_HINT) from problem
    if parts.scheme == "sqlite":
        return _sqlite(key, text)
    if parts.scheme not in ("mysql", "mariadb"):
        raise InvalidConfig(key, f"{_shown(text)} has the scheme {parts.scheme!r}", hint=_HINT)
    if not parts.hostname or not parts.username:
        raise InvalidConfig(key, f"{_shown(text)} lacks the {'user' if parts.hostname else 'host'}", hint=_HINT)
    return NodeUrl(
        engine="mysql",
        host=parts.hostname,
        port=port,
        user=unquote(parts.username),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/"),
    )


def _sqlite(key: str, text: str) -> NodeUrl:
    folder = text.removeprefix("sqlite://")
    if not folder.startswith("/") or folder == "/":
        raise InvalidConfig(key, f"{text!r} names no folder", hint="Write sqlite:///relative or sqlite:////absolute.")
    return NodeUrl(engine="sqlite", folder=folder[1:])


def _shown(text: object) -> str:
    """The URL without its password, since complaints are logged."""
    if isinstance(text, str) and "@" in text and "://" in text:
        scheme, rest = text.split("://", 1)
        return repr(f"{scheme}://…@{rest.rsplit('@', 1)[1]}")
    return repr(text)
