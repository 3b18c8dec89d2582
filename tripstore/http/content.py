"""The content of a request: JSON alone, no more than so many bytes, within so many seconds."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request

from tripstore.http.errors import RequestRefused
from tripstore.http.route import JSON
from tripstore.http.settings import HttpLimits


async def content_of(request: Request, limits: HttpLimits) -> bytes:
    """Return what a request brings, or refuse."""
    # A page of a browser may send other types to us without being asked for leave.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        hint = f"Send `Content-Type: {JSON}`."
        raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The content is not sent as JSON.", hint=hint)
    try:
        async with asyncio.timeout(limits.request_seconds):
            return await _read(request, limits.request_bytes_max)
    except TimeoutError:
        hint = f"It has {limits.request_seconds:g} seconds (http.request_seconds)."
        raise RequestRefused(HTTPStatus.REQUEST_TIMEOUT, "The content did not arrive in time.", hint=hint) from None
    except ClientDisconnect:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "The caller went away.") from None


async def _read(request: Request, bytes_max: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            hint = f"Send {bytes_max:,} bytes at most (http.request_bytes_max)."
            raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large.", hint=hint)
        parts.append(part)
    return b"".join(parts)
