"""`HttpRequest`: what a client sent, as text that stands for what was meant, or refused.

Bytes that are no UTF-8 and a `%` without its two digits are refused: to replace them would make one name of two.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

from schemaless_core.errors import InvalidRequest, shown

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_STRAY = re.compile(r"%(?![0-9a-fA-F]{2})")
#: A header of these that is sent twice could be read as another one by a proxy before us.
_ONCE = (b"host", b"authorization", b"content-type")
_OURS = b"tripstore-"


class HttpRequest:
    """One request; `path` is as it was sent."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("latin-1")
        self.receive = receive
        self._query: bytes = scope["query_string"]
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._is_plain = len(self._headers) == len(scope["headers"])
        self._sent = scope["headers"]

    def header(self, name: str) -> str | None:
        """Return what a header says, or None."""
        value = self._headers.get(name.lower().encode())
        return None if value is None else value.decode("latin-1")

    def refuse_doubles(self) -> None:
        """Refuse a header that says two things."""
        if self._is_plain:
            return
        names = [name for name, _ in self._sent if name in _ONCE or name.startswith(_OURS)]
        if len(set(names)) < len(names):
            raise InvalidRequest("A header is sent twice.", hint="Send each once.")

    def query(self) -> dict[str, list[str]]:
        """The parameters of the query, each with all its values."""
        found: dict[str, list[str]] = {}
        for each in self._query.decode("latin-1").split("&"):
            if each:
                name, _, value = each.replace("+", " ").partition("=")
                found.setdefault(plain(name), []).append(plain(value))
        return found


def plain(text: str) -> str:
    """Return a part of a URL without its escapes."""
    if "%" not in text and text.isascii():
        return text
    try:
        if _STRAY.search(text):
            raise ValueError(text)
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except ValueError:
        hint = "Escape the bytes of its UTF-8, a percent sign as %25."
        raise InvalidRequest(f"The URL has {shown(text)} in it.", hint=hint) from None
