"""The OpenAPI document, written from the table of routes and from the documents that they take and give."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from schemaless_core.version import VERSION
from tripstore.http.habits import HEADERS
from tripstore.http.route import JSON, NDJSON, HttpRoute, NdjsonPage
from tripstore.http.statuses import FaultAnswer

#: What any call may be answered.
_FAULTS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_OF_CONTENT = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)


def openapi_document(routes: Iterable[HttpRoute]) -> dict[str, Any]:
    """Return the document of OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    kinds: set[type] = {FaultAnswer}
    for route in routes:
        kinds |= _kinds(route)
    schemas, components = msgspec.json.schema_components(
        sorted(kinds, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    known = dict(zip(sorted(kind.__name__ for kind in kinds), schemas, strict=True))
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tripstore", "version": VERSION, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _kinds(route: HttpRoute) -> set[type]:
    if isinstance(route.answer, NdjsonPage):
        answered: set[type] = {route.answer.item, route.answer.page}
    else:
        answered = set() if isinstance(route.answer, str) else {route.answer}
    return answered | (set() if route.document is None else {route.document})


def _operation(route: HttpRoute, known: dict[str, Any]) -> dict[str, Any]:
    parameters = [each.document() for each in route.parameters]
    if route.right is not None:
        parameters += HEADERS
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.meaning,
        "parameters": parameters,
        "responses": _responses(route, known),
        "security": [] if route.right is None else [{"token": []}],
    }
    if route.takes_content:
        schema = {} if route.document is None else known[route.document.__name__]
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return operation


def _responses(route: HttpRoute, known: dict[str, Any]) -> dict[str, Any]:
    answer = {"description": "The answer.", "content": _content(route, known)}
    responses = {str(int(status)): answer for status in (HTTPStatus.OK, *route.also)}
    fault = {"description": "An error.", "content": {JSON: {"schema": known[FaultAnswer.__name__]}}}
    statuses = [*_FAULTS, *(_OF_CONTENT if route.takes_content else ())]
    statuses += [HTTPStatus.CONFLICT] if route.is_put else []
    statuses += [HTTPStatus.NOT_FOUND] if route.is_found else []
    if route.right is None:
        return responses | {"503": answer}
    return responses | {str(int(status)): fault for status in sorted(statuses)}


def _content(route: HttpRoute, known: dict[str, Any]) -> dict[str, Any]:
    if isinstance(route.answer, str):
        return {route.answer: {"schema": {"type": "string"}}}
    if not isinstance(route.answer, NdjsonPage):
        return {JSON: {"schema": known[route.answer.__name__]}}
    named = {route.answer.name: route.answer.item, "page": route.answer.page}
    each = [
        {"type": "object", "required": [name], "properties": {name: known[kind.__name__]}}
        for name, kind in named.items()
    ]
    return {NDJSON: {"schema": {"description": "One JSON document a line.", "oneOf": each}}}
