"""`CorkedTransport`: the head and the content of an answer go out together.

uvicorn writes them one after the other; that is two packets, and its client wakes up twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

_GO_ON = b"HTTP/1.1 100 "


class CorkedTransport:
    """A transport whose writes wait until `flush`, or until it is closed. All else it leaves to the one below."""

    def __init__(self, below: asyncio.Transport) -> None:
        self._below = below
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if data.startswith(_GO_ON):  # of no answer: the content comes after it
            self._below.write(data)
        else:
            self._parts.append(data)

    def flush(self) -> None:
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._below.write(data)

    def close(self) -> None:
        self.flush()
        self._below.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)
