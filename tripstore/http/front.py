"""`Front`: the ASGI application. It admits a request, reads it, makes the call, and says what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path

from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.errors import InvalidRequest
from schemaless_core.told import Told
from tripstore import metrics
from tripstore.aio import AsyncTripStore
from tripstore.http.content import content_of
from tripstore.http.documents import document_of, encode
from tripstore.http.doorkeeper import Doorkeeper
from tripstore.http.errors import RequestRefused
from tripstore.http.habits import with_habits
from tripstore.http.openapi import openapi_document
from tripstore.http.route import JSON, AskedStore, HttpAnswer, HttpRoute
from tripstore.http.routes import ROUTES
from tripstore.http.settings import HttpSettings
from tripstore.http.statuses import RETRY_AFTER, fault_answer, status_of

logger = logging.getLogger(__name__)

OPENAPI = "/openapi.json"


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
        self._clock = clock

    def application(self) -> Starlette:
        """Return what a server of ASGI serves."""
        page = msgspec.json.encode(openapi_document(ROUTES))
        paths = [Path(_pattern(route), partial(self._serve, route), methods=[route.method]) for route in ROUTES]
        paths.append(Path(OPENAPI, partial(_page, page), methods=["GET"]))
        application = Starlette(routes=paths, exception_handlers={HTTPException: _no_route})
        application.router.redirect_slashes = False  # an empty name in a path is refused, and leads nowhere else
        return application

    async def _serve(self, route: HttpRoute, request: Request) -> Response:
        """The edge: whatever comes out, a caller reads it."""
        begun = self._clock()
        service = "-"
        try:
            service = self._admitted(route, request)
            answer = await self._called(route, request)
        except Exception as error:  # noqa: BLE001  # said to the caller, and logged
            answer = _failed(error, route)
        response = _response(answer)
        _note(route, service, answer.status, self._clock() - begun)
        return response

    def _admitted(self, route: HttpRoute, request: Request) -> str:
        headers = request.headers
        return self._doorkeeper.admit(headers.get("authorization"), headers.get("host"), route.right)

    async def _called(self, route: HttpRoute, request: Request) -> HttpAnswer:
        arguments = _arguments(route, request)
        store = with_habits(self._store, request.headers, self._limits.deadline_seconds_max)
        if route.takes_content:
            content = await content_of(request, self._limits)
            if route.document is None:
                arguments["body"] = content
            else:
                arguments["document"] = document_of(content, route.document)
        return await route.call(AskedStore(store, self._indexes), **arguments)


def _pattern(route: HttpRoute) -> str:
    """A column's name may have a slash in it."""
    return route.path.replace("{column_name}", "{column_name:path}")


def _arguments(route: HttpRoute, request: Request) -> dict[str, Any]:
    known = {each.name for each in route.parameters if each.place == "query"}
    for name in request.query_params:
        if name not in known:
            hint = f"It takes {', '.join(sorted(known))}." if known else "It takes none."
            raise InvalidRequest("The query has a parameter that the call does not take.", hint=hint)
    return {
        each.name: each.value(
            [request.path_params[each.name]] if each.place == "path" else request.query_params.getlist(each.name)
        )
        for each in route.parameters
    }


def _failed(error: Exception, route: HttpRoute) -> HttpAnswer:
    if not isinstance(error, Told):
        logger.exception(
            "a call over HTTP failed in a way that was not foreseen",
            extra={"event": "http.failed", "route": route.name},
        )
    return HttpAnswer(encode(fault_answer(error, is_put=route.is_put)), status_of(error))


def _response(answer: HttpAnswer) -> Response:
    headers = {"Content-Type": answer.media, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if answer.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT):
        headers["Retry-After"] = RETRY_AFTER
    if answer.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(answer.content, answer.status, headers)


def _note(route: HttpRoute, service: str, status: int, seconds: float) -> None:
    metrics.http_answered(route.name, status, seconds)
    extra = {"event": "http.answered", "route": route.name, "service": service, "status": int(status)}
    logger.info("a call over HTTP was answered", extra=extra | {"seconds": round(seconds, 6)})


async def _no_route(request: Request, error: Exception) -> Response:
    """No such path, or it takes another method."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
    refused = RequestRefused(status, f"{HTTPStatus(status).phrase}.", hint=f"{OPENAPI} says what can be called.")
    response = _response(HttpAnswer(encode(fault_answer(refused, is_put=False)), status))
    response.headers.update(getattr(error, "headers", None) or {})
    return response


async def _page(content: bytes, request: Request) -> Response:
    return _response(HttpAnswer(content, media=JSON))
