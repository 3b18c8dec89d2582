"""`Front`: the ASGI application. It admits a request, reads it, makes the call, and says what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec

from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.errors import InvalidRequest
from schemaless_core.told import Told
from tripstore import metrics
from tripstore.aio import AsyncTripStore
from tripstore.http.content import content_of
from tripstore.http.documents import encode
from tripstore.http.doorkeeper import Doorkeeper
from tripstore.http.errors import CallOverdue, MethodRefused
from tripstore.http.exact import document_of, read_beside
from tripstore.http.habits import deadline_of, with_habits
from tripstore.http.openapi import openapi_document
from tripstore.http.paths import Paths
from tripstore.http.request import HttpRequest, Receive, Scope, Send, plain
from tripstore.http.route import AskedStore, HttpAnswer, HttpRoute
from tripstore.http.routes import ROUTES
from tripstore.http.settings import HttpSettings
from tripstore.http.shared import SharedAnswer
from tripstore.http.statuses import RETRY_AFTER, fault_answer, status_of

logger = logging.getLogger(__name__)

OPENAPI = "/openapi.json"
#: The store keeps the deadline itself, and says more than we can; so long we wait for what it says.
MOMENT_SECONDS = 0.1


class Front:
    """Over one store; its routes are those of the table."""

    def __init__(
        self,
        store: AsyncTripStore,
        settings: HttpSettings,
        indexes: Iterable[IndexDefinition],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._limits = settings.limits
        self._doorkeeper = Doorkeeper(settings.tokens)
        self._indexes: Mapping[str, IndexDefinition] = {each.name: each for each in indexes}
        self._health = SharedAnswer(lambda: store.threads.read(store.sync.health))
        self._clock = clock
        self._paths = Paths(ROUTES)
        self._page = HttpAnswer(msgspec.json.encode(openapi_document(ROUTES)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What a server of ASGI calls for each request."""
        answer, headers = await self._answer(HttpRequest(scope, receive))
        await send({"type": "http.response.start", "status": int(answer.status), "headers": _headers(answer) + headers})
        await send({"type": "http.response.body", "body": answer.content})

    async def _answer(self, request: HttpRequest) -> tuple[HttpAnswer, list[tuple[bytes, bytes]]]:
        if request.path == OPENAPI and request.method in ("GET", "HEAD"):
            return self._page, []
        try:
            route, texts = self._paths.find(request.method, request.path)
        except MethodRefused as error:
            return _refused(error), [(b"allow", error.allowed.encode())]
        except Told as error:
            return _refused(error), []
        return await self._serve(route, texts, request), []

    async def _serve(self, route: HttpRoute, texts: Mapping[str, str], request: HttpRequest) -> HttpAnswer:
        """The edge: whatever comes out, a caller reads it."""
        begun = self._clock()
        service = "-"
        try:
            service = self._admitted(route, request)
            answer = await self._called(route, texts, request)
        except Exception as error:  # noqa: BLE001  # said to the caller, and logged
            answer = _failed(error, route)
        _note(route, service, answer.status, self._clock() - begun)
        return answer

    def _admitted(self, route: HttpRoute, request: HttpRequest) -> str:
        request.refuse_doubles()
        return self._doorkeeper.admit(request.header("authorization"), request.header("host"), route.right)

    async def _called(self, route: HttpRoute, texts: Mapping[str, str], request: HttpRequest) -> HttpAnswer:
        arguments = _arguments(route, texts, request)
        deadline = deadline_of(request, self._limits.deadline_seconds_max)
        store = with_habits(self._store, request, deadline)
        content = await content_of(request, self._limits) if route.takes_content else b""
        call = self._asked(route, store, arguments, content)
        if deadline is None:
            return await call
        try:
            async with asyncio.timeout(deadline + MOMENT_SECONDS):
                return await call
        except TimeoutError:
            raise CallOverdue(deadline) from None

    async def _asked(
        self, route: HttpRoute, store: AsyncTripStore, arguments: dict[str, Any], content: bytes
    ) -> HttpAnswer:
        """Read the content and ask the store. Both are the caller's time."""
        if route.document is not None:
            arguments["document"] = await read_beside(partial(document_of, kind=route.document), content)
        elif route.takes_content:
            arguments["body"] = content
        return await route.call(AskedStore(store, self._indexes, self._health), **arguments)


def _arguments(route: HttpRoute, texts: Mapping[str, str], request: HttpRequest) -> dict[str, Any]:
    query = request.query()
    for name in query.keys() - route.query_names:
        known = ", ".join(sorted(route.query_names))
        hint = f"It takes {known}." if known else "It takes none."
        raise InvalidRequest(f"The query has a parameter {name[:20]!r} that the call does not take.", hint=hint)
    return {
        each.name: each.value([plain(texts[each.name])] if each.place == "path" else query.get(each.name, ()))
        for each in route.parameters
    }


def _failed(error: Exception, route: HttpRoute) -> HttpAnswer:
    if not isinstance(error, Told):
        logger.exception(
            "a call over HTTP failed in a way that was not foreseen",
            extra={"event": "http.failed", "route": route.name},
        )
    return HttpAnswer(encode(fault_answer(error, is_put=route.is_put)), status_of(error))


def _refused(error: Told) -> HttpAnswer:
    return HttpAnswer(encode(fault_answer(error, is_put=False)), status_of(error))


_EVERY = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


def _headers(answer: HttpAnswer) -> list[tuple[bytes, bytes]]:
    length = str(len(answer.content)).encode()
    headers = [(b"content-type", answer.media.encode()), (b"content-length", length), *_EVERY]
    if answer.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT):
        headers.append((b"retry-after", RETRY_AFTER.encode()))
    if answer.status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def _note(route: HttpRoute, service: str, status: int, seconds: float) -> None:
    metrics.http_answered(route.name, status, seconds)
    if logger.isEnabledFor(logging.INFO):
        extra = {"event": "http.answered", "route": route.name, "service": service, "status": int(status)}
        logger.info("a call over HTTP was answered", extra=extra | {"seconds": round(seconds, 6)})
