"""`FrontConnection`: uvicorn's connection, with an end for clients that never finish.

uvicorn waits for a head without bound of time or size, and for a client that does not read its answer: a thousand
connections of one machine without a token would keep every service out.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tripstore.http.corked import CorkedTransport

#: Of the line of a request and its headers.
HEAD_BYTES_MAX = 64 * 1024
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)


def _without_upgrade(data: bytes) -> bytes:
    """The head of a request without its wish for another protocol, which a server may ignore.

    Java's client wishes for HTTP/2 unless told otherwise, and then the parser takes no content.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"", head) + end + rest if b"pgrade" in head else data


class FrontConnection(HttpToolsProtocol):
    """A head, and what is left of a request that has its answer, may take `seconds`; so may an answer of which the
    client takes nothing."""

    #: What holds writes back until they are one packet.
    cork = CorkedTransport

    def __init__(self, *arguments: Any, seconds: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._seconds = seconds
        self._patience: asyncio.TimerHandle | None = None
        self._is_whole = False
        self._head_bytes: int | None = None  #: Of a head that is not complete.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._corked = self.cork(transport)
        super().connection_made(self._corked)  # type: ignore[arg-type]  # it has what uvicorn asks of one
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data if self._is_amid else _without_upgrade(data))
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()
        if self._is_whole and self._owes_answer:
            self._disarm()
        elif self._patience is None:
            self._arm()

    def on_message_begin(self) -> None:
        self._is_whole, self._head_bytes = False, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._corked.flush()
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reader()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_reader()

    @property
    def _is_amid(self) -> bool:
        """Whether a request has begun and is not complete."""
        return self._head_bytes is not None or (bool(self.cycle) and not self._is_whole)

    @property
    def _owes_answer(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete  # None until the first request

    def _arm(self) -> None:
        self._patience = self.loop.call_later(self._seconds, self._give_up)

    def _disarm(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        """While an answer is owed the front itself says what came too slowly."""
        if self._owes_answer:
            self._arm()
        else:
            self.transport.abort()

    def _watch_reader(self, waiting: int | None = None) -> None:
        """A connection that is closed sends first what is left: end it when the client takes nothing of it."""
        left = self.transport.get_write_buffer_size()
        if not left:
            return
        if waiting is not None and left >= waiting:
            self.transport.abort()
            return
        self.loop.call_later(self._seconds, self._watch_reader, left)
