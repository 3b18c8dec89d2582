"""How the console answers a request: what it reads of one, and the headers that every answer has."""

from __future__ import annotations

from http import HTTPStatus

from tripstore.http.errors import RequestRefused
from tripstore.http.request import HttpRequest, Send

HTML, TEXT, JSON = "text/html; charset=utf-8", "text/plain; charset=utf-8", "application/json"
#: Of what a browser sends: a token, or what an operator chose and typed.
CONTENT_BYTES_MAX = 8192
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
        b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


async def content_of(request: HttpRequest) -> bytes:
    """What was sent with a request, within its bound."""
    content = b""
    while True:
        message = await request.receive()
        content += bytes(message.get("body", b""))
        if len(content) > CONTENT_BYTES_MAX or message["type"] == "http.disconnect":
            hint = f"Send {CONTENT_BYTES_MAX:,} bytes at most."
            raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "This is too long.", hint=hint)
        if not message.get("more_body"):
            return content


async def answer(
    send: Send,
    content: bytes,
    media: str,
    status: HTTPStatus = HTTPStatus.OK,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    """A whole answer."""
    sent = [(b"content-type", media.encode()), (b"content-length", str(len(content)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": int(status), "headers": sent + (headers or [])})
    await send({"type": "http.response.body", "body": content})
