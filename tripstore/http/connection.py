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

#: Of the line of a request and its headers; and of what comes after the head beside the content.
HEAD_BYTES_MAX = 64 * 1024
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
#: Also of one that the parser will refuse.
_HEAD_END = re.compile(rb"\n\r?\n")
_UPGRADE = re.compile(rb"(?<=\n)upgrade(?=[ \t]*:)", re.IGNORECASE)


class FrontConnection(HttpToolsProtocol):
    """A head, and what is left of a request that has its answer, may take `seconds`; so may an answer of which the
    client takes nothing."""

    #: What holds writes back until they are one packet.
    cork = CorkedTransport

    def __init__(self, *arguments: Any, seconds: float, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._seconds = seconds
        self._patience: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._is_whole = False
        self._held = bytearray()  #: Of a head that is not complete: the parser has seen none of it.
        self._is_in_head = False  #: The parser has seen a part of a head.
        self._beside_bytes = 0  #: Since the head or the last content: chunks without any, trailers.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self._corked = self.cork(transport)
        super().connection_made(self._corked)  # type: ignore[arg-type]  # it has what uvicorn asks of one
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._end_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if not self._is_amid:
            data = self._whole_head(data)
        if data:
            self._beside_bytes += len(data)
            super().data_received(data)
            self._refuse_too_large(self._beside_bytes if self._is_amid else 0)
        if self._is_whole and self._owes_answer and not self._held:
            self._disarm()
        elif self._patience is None:
            self._arm()

    def _whole_head(self, data: bytes) -> bytes:
        """Hold a head back until it is complete; return it without its wish for another protocol, and what follows.

        A server may ignore that wish. Java's client wishes for HTTP/2 unless told otherwise, and then the parser takes
        no content. The header gets another name: without it the rest of its value, which may come later, would be the
        end of the value before.
        """
        seen = len(self._held)
        self._held += data if seen else data.lstrip(b"\r\n")
        end = _HEAD_END.search(self._held, max(0, seen - 2))
        self._refuse_too_large(end.end() if end else len(self._held))
        if end is None or self.transport.is_closing():
            return b""
        head, rest = self._held[: end.end()], bytes(self._held[end.end() :])
        self._held.clear()
        return _UPGRADE.sub(b"x-upgrade", bytes(head)) + rest

    def _refuse_too_large(self, size: int) -> None:
        if size <= HEAD_BYTES_MAX or self.transport.is_closing():
            return
        if self._may_speak:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Of what is no request; while another one waits for its answer only the end of the connection says so."""
        if self._may_speak:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._is_whole, self._is_in_head, self._beside_bytes = False, True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A trailer is none: a proxy before us does not look at it."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._beside_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._corked.flush()
        super().on_response_complete()
        if self._held:
            self._unset_keepalive_if_required()
        if self.transport.is_closing():
            self._watch_reader()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_reader()

    @property
    def _is_amid(self) -> bool:
        """Whether a request has begun and is not complete."""
        return self._is_in_head or (bool(self.cycle) and not self._is_whole)

    @property
    def _may_speak(self) -> bool:
        """Whether an answer that is sent now is read as that of what came last, and of no request before it."""
        is_in_content = bool(self.cycle) and self._is_amid and not self._is_in_head
        return not self.pipeline and self._owes_answer == is_in_content

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

    def pause_writing(self) -> None:
        """The next answer waits until the client has taken of this one, which it may never do."""
        super().pause_writing()
        self._watch_stall(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._end_stall()
        super().resume_writing()

    def _watch_stall(self, waiting: int) -> None:
        self._stall = self.loop.call_later(self._seconds, self._judge_stall, waiting)

    def _judge_stall(self, waiting: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= waiting:
            self.transport.abort()
        else:
            self._watch_stall(left)

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _watch_reader(self, waiting: int | None = None) -> None:
        """A connection that is closed sends first what is left: end it when the client takes nothing of it."""
        left = self.transport.get_write_buffer_size()
        if not left:
            return
        if waiting is not None and left >= waiting:
            self.transport.abort()
            return
        self.loop.call_later(self._seconds, self._watch_reader, left)
