"""URLs of nodes: `mysql://user:password@host:port` or `sqlite:///folder`; of ZooKeeper: `zookeeper://host:port/path`.

A password never shows in text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from schemaless_core.errors import InvalidConfig, shown
from schemaless_core.referenced import Referenced

#: As libpq takes it, host=… password=….
_PASSWORD = re.compile(r"(?i)pass\w*\s*=")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
#: A lock of the server has the name and eight characters more; it may have 64.
_DATABASE = re.compile(r"[A-Za-z0-9_$-]{0,56}")
_HINT = "Write mysql://user:password@host:port or sqlite:///folder."
_ZOOKEEPER_HOST = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
#: No part is empty, or only dots.
_ZOOKEEPER_PATH = re.compile(r"(?!\.+(/|$))[A-Za-z0-9_.-]+(/(?!\.+(/|$))[A-Za-z0-9_.-]+)*")
_ZOOKEEPER_HINT = "Write zookeeper://host:2181/path; several servers as host:2181,another:2181."
ZOOKEEPER_PORT, ZOOKEEPER_PATH = 2181, "tripstore"
_ESCAPE = "Write a password's @ / : # ? % as %40 %2F %3A %23 %3F %25, or the whole password as ${NAME}."


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


@dataclass(frozen=True, slots=True)
class ZooKeeperUrl:
    """Where the servers of a ZooKeeper are, and below which path we keep what we keep."""

    hosts: str  #: As kazoo takes them: `one:2181,another:2181`.
    path: str  #: Begins with a slash.
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"zookeeper://{self.user}{'@' if self.user else ''}{self.hosts}{self.path}"


def parse_zookeeper_url(key: str, text: object) -> ZooKeeperUrl:
    """Return the parts of a ZooKeeper URL, or raise `InvalidConfig` naming the key."""
    if not isinstance(text, str) or not text.startswith("zookeeper://"):
        raise InvalidConfig(key, f"{shown_setting(text)} is no ZooKeeper URL", hint=_ZOOKEEPER_HINT)
    user_info, _at, rest = text.removeprefix("zookeeper://").rpartition("@")
    user, _colon, password = user_info.partition(":")
    hosts, slash, path = rest.partition("/")
    named = [_zookeeper_host(key, text, host) for host in hosts.split(",")]
    if slash and path and not _ZOOKEEPER_PATH.fullmatch(path.rstrip("/")):
        raise InvalidConfig(key, f"{shown_setting(text)} has a path that is none", hint=_ZOOKEEPER_HINT)
    if bool(user) != bool(password):
        lacking = "password" if user else "user"
        raise InvalidConfig(key, f"{shown_setting(text)} lacks the {lacking}", hint=f"{_ZOOKEEPER_HINT} {_ESCAPE}")
    return ZooKeeperUrl(",".join(named), f"/{path.rstrip('/') or ZOOKEEPER_PATH}", unquote(user), unquote(password))


def _zookeeper_host(key: str, text: str, host: str) -> str:
    found = _ZOOKEEPER_HOST.fullmatch(host)
    if found is None or not 0 < int(found["port"] or ZOOKEEPER_PORT) < 65_536:
        raise InvalidConfig(key, f"{shown_setting(text)} has no host, or a port that is none", hint=_ZOOKEEPER_HINT)
    return f"{found['host']}:{found['port'] or ZOOKEEPER_PORT}"


def parse_node_url(key: str, text: object) -> NodeUrl:
    """Return the parts of a node URL, or raise `InvalidConfig` naming the key."""
    if not isinstance(text, str) or "://" not in text:
        raise InvalidConfig(key, f"{shown_setting(text)} is no node URL", hint=_HINT)
    try:
        parts = urlsplit(text)
        port = 3306 if parts.port is None else parts.port
    except ValueError:
        # The parser's own words repeat what it took for a port, which may be half of a password.
        raise InvalidConfig(key, f"{shown_setting(text)} is no URL", hint=f"{_HINT} {_ESCAPE}") from None
    if parts.scheme == "sqlite":
        return _sqlite(key, text)
    if parts.scheme not in ("mysql", "mariadb"):
        raise InvalidConfig(key, f"{shown_setting(text)} has the scheme {parts.scheme!r}", hint=_HINT)
    if not parts.hostname or not parts.username:
        lacking = "user" if parts.hostname else "host"
        raise InvalidConfig(key, f"{shown_setting(text)} lacks the {lacking}", hint=f"{_HINT} {_ESCAPE}")
    if port == 0:
        raise InvalidConfig(key, f"{shown_setting(text)} has the port 0", hint=_HINT)
    if parts.query or parts.fragment:
        hint = f"TLS options stand under tls:, deadlines under deadlines:. {_ESCAPE}"
        raise InvalidConfig(key, f"{shown_setting(text)} carries options", hint=hint)
    return NodeUrl(
        engine="mysql",
        host=parts.hostname,
        port=port,
        user=unquote(parts.username),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/"),
    )


def check_database(url: NodeUrl) -> None:
    """Raise `InvalidConfig` unless the control database can be called so; it goes into statements as it is."""
    if not _DATABASE.fullmatch(url.database):
        hint = "Use letters, digits, _, $ and -, at most 56. Without a name it is the datastore's, and _control."
        raise InvalidConfig("control", f"{shown_setting(url.database)} is no name for a database", hint=hint)


def _sqlite(key: str, text: str) -> NodeUrl:
    folder = text.removeprefix("sqlite://")
    if not folder.startswith("/") or folder == "/":
        raise InvalidConfig(
            key, f"{shown_setting(text)} names no folder", hint="Write sqlite:///relative or sqlite:////absolute."
        )
    return NodeUrl(engine="sqlite", folder=folder[1:])


def shown_setting(value: object) -> str:
    """A configured value as a complaint shows it, which is logged: nothing that may be a password."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    if (isinstance(value, Referenced) and "://" not in value) or not isinstance(value, str):
        return shown(value)
    if _PASSWORD.search(value):
        return f"a text of {len(value)} characters"
    if "@" in value:
        # What stands before the last @ may be more than one URL, each with a password: no more than a scheme is shown.
        scheme, separator, _rest = value.partition("://")
        if not _SCHEME.fullmatch(scheme):
            scheme = separator = ""
        return repr(f"{scheme}{separator}…@{_without_options(value.rpartition('@')[2])}")
    scheme, separator, rest = value.partition("://")
    host, colon, port = rest.partition(":")
    if separator and colon and not port.rstrip("/").isdigit():
        return repr(f"{scheme}://{host}:…")
    return shown(_without_options(value) if separator else value)


def _without_options(text: str) -> str:
    return text.partition("?")[0].partition("#")[0]
