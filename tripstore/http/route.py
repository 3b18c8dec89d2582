"""`HttpRoute`: one call of the API. The front is made from it, and so is its part of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

import msgspec

from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.health import Health
from tripstore.aio import AsyncTripStore
from tripstore.http.documents import encode
from tripstore.http.parameters import Parameter
from tripstore.http.settings import ServiceRight
from tripstore.http.shared import SharedAnswer

JSON = "application/json"
NDJSON = "application/x-ndjson"


class AskedStore(NamedTuple):
    """Whom a call asks: the store with the habits of the request, the indexes of the configuration, all for health."""

    store: AsyncTripStore
    indexes: Mapping[str, IndexDefinition]
    health: SharedAnswer[Health]


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What goes back."""

    content: bytes
    status: int = HTTPStatus.OK
    media: str = JSON


@dataclass(frozen=True, slots=True)
class NdjsonPage:
    """An answer as NDJSON: a line for each item, under its name, and the page at last, without which it was cut off."""

    name: str
    item: type[msgspec.Struct]
    page: type[msgspec.Struct]


@dataclass(frozen=True)
class HttpRoute:
    """`call` takes `AskedStore`, the parameters by name, and what a request brings as `document` or as `body`."""

    method: Literal["GET", "PUT", "POST"]
    path: str
    call: Callable[..., Awaitable[HttpAnswer]]
    meaning: str
    answer: type[msgspec.Struct] | NdjsonPage | str
    parameters: tuple[Parameter, ...] = ()
    document: type[msgspec.Struct] | None = None
    has_body: bool = False  #: Any JSON value, to be stored.
    right: ServiceRight | None = ServiceRight.READ
    is_found: bool = False  #: Whether it answers 404 when there is nothing.
    also: tuple[int, ...] = ()  #: Other statuses of an answer that is no error.

    @property
    def name(self) -> str:
        return self.call.__name__

    @cached_property
    def query_names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.parameters if each.place == "query")

    @property
    def is_put(self) -> bool:
        return self.right is ServiceRight.WRITE

    @property
    def takes_content(self) -> bool:
        return self.has_body or self.document is not None


def said(document: msgspec.Struct, status: int = HTTPStatus.OK) -> HttpAnswer:
    """One JSON document."""
    return HttpAnswer(encode(document), status)


def lines(name: str, items: list[Any], page: msgspec.Struct) -> HttpAnswer:
    """A page as NDJSON."""
    every = [*({name: item} for item in items), {"page": page}]
    return HttpAnswer(b"".join(encode(each) + b"\n" for each in every), media=NDJSON)
