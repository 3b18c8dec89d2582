"""The content of a request: JSON alone, no more than so many bytes, within so many seconds."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from tripstore.http.errors import RequestRefused
from tripstore.http.request import HttpRequest, Receive
from tripstore.http.route import JSON
from tripstore.http.settings import HttpLimits


async def content_of(request: HttpRequest, limits: HttpLimits) -> bytes:
    """Return what a request brings, or refuse."""
    # A page of a browser may send other types to us without being asked for leave.
    if (request.header("content-type") or "").partition(";")[0].strip().lower() != JSON:
        hint = f"Send `Content-Type: {JSON}`."
        raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The content is not sent as JSON.", hint=hint)
    if (length := request.header("content-length")) is not None and int(length) > limits.request_bytes_max:
        raise _too_large(limits.request_bytes_max)
    try:
        async with asyncio.timeout(limits.request_seconds):
            return await _read(request.receive, limits.request_bytes_max)
    except TimeoutError:
        hint = f"It has {limits.request_seconds:g} seconds (http.request_seconds)."
        raise RequestRefused(HTTPStatus.REQUEST_TIMEOUT, "The content did not arrive in time.", hint=hint) from None


async def _read(receive: Receive, bytes_max: int) -> bytes:
    parts, size, is_more = [], 0, True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "The caller went away.")
        part = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        parts.append(part)
        is_more = message.get("more_body", False)
    return b"".join(parts)


def _too_large(bytes_max: int) -> RequestRefused:
    hint = f"Send {bytes_max:,} bytes at most (http.request_bytes_max)."
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large.", hint=hint)
