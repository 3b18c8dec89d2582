"""`ShadowLinks`: which span a shadow read belongs to. It is compared on another thread, when its caller is long gone.

So its span is no child of the caller's, which has ended, and has a link to it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from opentelemetry.trace import Link, SpanContext, SpanKind, get_current_span

from tripstore.otel.spans import Function, Spans

#: Reads that wait to be compared, of all stores of a process; of more, the oldest are compared without a link.
WAITING_MAX = 4_000


class ShadowLinks:
    """Of one process."""

    def __init__(self) -> None:
        #: A read is kept, so that no other one is given its number. Each change of this is one step of the
        #: interpreter: a lock that a fork inherits would keep the child's callers waiting for ever.
        self._waiting: OrderedDict[int, tuple[Any, SpanContext]] = OrderedDict()

    def around_offer(self, function: Function) -> Function:
        """On the caller's thread."""

        def traced(shadow: Any, read: Any, *rest: Any, **kwargs: Any) -> None:
            context = get_current_span().get_span_context()
            if context.is_valid:
                self._note(read, context)
            function(shadow, read, *rest, **kwargs)

        return traced

    def around_compare(self, spans: Spans) -> Any:
        """On a thread of the shadow."""

        def around(function: Function) -> Function:
            def traced(shadow: Any, sample: Any) -> None:
                attributes: dict[str, str | int] = {"tripstore.operation": sample.read.name}
                with spans.span("tripstore.shadow", SpanKind.INTERNAL, attributes, self._taken(sample.read)):
                    function(shadow, sample)

            return traced

        return around

    def _note(self, read: Any, context: SpanContext) -> None:
        self._waiting[id(read)] = read, context
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)

    def _taken(self, read: Any) -> list[Link]:
        found = self._waiting.pop(id(read), None)
        return [] if found is None else [Link(found[1])]
