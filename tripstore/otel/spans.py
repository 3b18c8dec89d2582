"""`Spans`: what the spans are called, and what they say: names, ids, counts. No body, no value of an index, no text.

An error is told by its class: its message may repeat what a service put.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from schemaless_core.datastore import Datastore
from schemaless_core.store import CellStore

Attributes = dict[str, str | int]
Function = Callable[..., Any]

#: Arguments that name what is asked for, and those of which there are many.
_NAMED = ("column_name", "index", "ref_key", "shard", "limit")
_COUNTED = ("cells", "keys", "columns", "numbers", "row_keys", "locations")


class Spans:
    """Of one process."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def span(
        self, name: str, kind: SpanKind, attributes: Attributes | None = None, links: Sequence[Link] = ()
    ) -> Iterator[Span]:
        """Around a block; what the block raises is told by its class, and goes on."""
        with self._tracer.start_as_current_span(
            name, None, kind, attributes, links, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
                raise

    def after(self, name: str, begun_ns: int, attributes: Attributes) -> None:
        """Of what was only known to be worth one when it had ended."""
        self._tracer.start_span(name, kind=SpanKind.INTERNAL, attributes=attributes, start_time=begun_ns).end()


def around_operation(spans: Spans, operation: str) -> Callable[[Function], Function]:
    """A service's call."""

    def around(function: Function) -> Function:
        signature = inspect.signature(function)

        def traced(*args: Any, **kwargs: Any) -> Any:
            with spans.span(f"tripstore.{operation}", SpanKind.CLIENT) as span:
                if span.is_recording():
                    span.set_attributes(_asked(signature, args, kwargs))
                return function(*args, **kwargs)

        return traced

    return around


def around_calls(spans: Spans) -> Callable[[Function], Function]:
    """What a backend does of it: a call may ask the one after the other, in a hand-over."""

    def around(function: Function) -> Function:
        def traced(calls: Any, operation: str, work: Callable[[CellStore], Any], *rest: Any, **kw: Any) -> Any:
            def worked(store: CellStore) -> Any:
                attributes: Attributes = {"tripstore.operation": operation, "tripstore.backend": backend_of(store)}
                with spans.span("tripstore.backend", SpanKind.CLIENT, attributes):
                    return work(store)

            return function(calls, operation, worked, *rest, **kw)

        return traced

    return around


def around_single_reads(spans: Spans) -> Callable[[Function], Function]:
    """The same where there is one store."""

    def around(function: Function) -> Function:
        def traced(reads: Any, operation: str, *rest: Any) -> Any:
            attributes: Attributes = {"tripstore.operation": operation, "tripstore.backend": "store"}
            with spans.span("tripstore.backend", SpanKind.CLIENT, attributes):
                return function(reads, operation, *rest)

        return traced

    return around


def around_mirror(spans: Spans) -> Callable[[Function], Function]:
    """A cohort's read at the mirror."""

    def around(function: Function) -> Function:
        def traced(reads: Any, sight: Any, begun: float, name: str, *rest: Any) -> Any:
            attributes: Attributes = {
                "tripstore.operation": name,
                "tripstore.backend": sight.authority.backend.other.value,
            }
            with spans.span("tripstore.cohort", SpanKind.CLIENT, attributes) as span:
                answer, is_of_mirror = function(reads, sight, begun, name, *rest)
                span.set_attribute("tripstore.is_answered", is_of_mirror)
                return answer, is_of_mirror

        return traced

    return around


def around_carrying(spans: Spans) -> Callable[[Function], Function]:
    """Changes that a relay carries; a look that finds none is no span."""

    def around(function: Function) -> Function:
        def traced(carrier: Any, limit: int, **kwargs: Any) -> Any:
            begun = time.time_ns()
            carried = function(carrier, limit, **kwargs)
            if carried.claimed:
                attributes: Attributes = {
                    "tripstore.direction": "forward",
                    "tripstore.claimed": carried.claimed,
                    "tripstore.delivered": carried.delivered,
                    "tripstore.parked": carried.parked,
                }
                spans.after("tripstore.mirror", begun, attributes)
            return carried

        return traced

    return around


def around_reverse(spans: Spans) -> Callable[[Function], Function]:
    """The same of cells on their way back into the tables."""

    def around(function: Function) -> Function:
        def traced(mirror: Any, runs: Mapping[int, Sequence[Any]], *rest: Any, **kwargs: Any) -> Any:
            claimed = sum(map(len, runs.values()))
            attributes: Attributes = {"tripstore.direction": "reverse", "tripstore.claimed": claimed}
            with spans.span("tripstore.mirror", SpanKind.INTERNAL, attributes) as span:
                outcomes = function(mirror, runs, *rest, **kwargs)
                span.set_attribute("tripstore.delivered", sum(each.done for each in outcomes.values()))
                return outcomes

        return traced

    return around


def backend_of(store: CellStore) -> str:
    return "store" if isinstance(store, Datastore) else "legacy"


def _asked(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Attributes:
    """What is asked for; a call that does not fit says so itself."""
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return {}
    found: Attributes = {f"tripstore.{name}": given[name] for name in _NAMED if isinstance(given.get(name), str | int)}
    if isinstance(row_key := given.get("row_key"), UUID):
        found["tripstore.row_key"] = str(row_key)
    for name in _COUNTED:
        many = given.get(name)
        if isinstance(many, Sequence | Mapping) and not isinstance(many, str):
            found[f"tripstore.{name}"] = len(many)
    return found
