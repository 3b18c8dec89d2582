"""`instrument`: from now on this process makes spans, whichever of its stores a call goes to, until `uninstrument`.

It puts functions around those of a few classes, so that what is not instrumented has no place that asks whether it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from opentelemetry.trace import TracerProvider, get_tracer

from schemaless_core.version import VERSION
from tripstore.engines.validation.shadow.shadow import Shadow
from tripstore.facade.calls import AuthorityCalls, SingleCalls
from tripstore.facade.reads import Reads, SingleReads
from tripstore.migration.mirror.carrier import Carrier
from tripstore.migration.mirror.reverse import ReverseMirror
from tripstore.otel.links import ShadowLinks
from tripstore.otel.spans import (
    Spans,
    around_calls,
    around_carrying,
    around_mirror,
    around_operation,
    around_reverse,
    around_single_reads,
)
from tripstore.store import TripStore

OPERATIONS = (
    "put_cell",
    "put_cells",
    "append_cell",
    "get_cell",
    "get_cell_latest",
    "get_cells",
    "get_cells_latest",
    "get_row",
    "get_history",
    "query_index",
    "get_cells_for_shard",
    "get_cells_for_shards",
    "scan_rows",
    "checksum",
    "resolve_ids",
    "legacy_ids",
)

_LOCK = threading.Lock()
#: What stood where a function of ours stands now.
_REPLACED: list[tuple[type[Any], str, Any]] = []


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans by this provider, or by the one of the process. A second time does nothing."""
    spans = Spans(get_tracer("tripstore", VERSION, tracer_provider))
    links = ShadowLinks()
    with _LOCK:
        if _REPLACED:
            return
        for operation in OPERATIONS:
            _replace(TripStore, operation, around_operation(spans, operation))
        for kind in (AuthorityCalls, SingleCalls):
            _replace(kind, "ask", around_calls(spans))
        _replace(SingleReads, "read", around_single_reads(spans))
        _replace(Reads, "_ask_mirror", around_mirror(spans))
        _replace(Carrier, "carry", around_carrying(spans))
        _replace(ReverseMirror, "deliver", around_reverse(spans))
        _replace(Shadow, "offer", links.around_offer)
        _replace(Shadow, "_compare", links.around_compare(spans))


def uninstrument() -> None:
    """Make none any more."""
    with _LOCK:
        while _REPLACED:
            kind, name, function = _REPLACED.pop()
            setattr(kind, name, function)


def _replace(kind: type[Any], name: str, around: Callable[[Any], Any]) -> None:
    function = getattr(kind, name)
    _REPLACED.append((kind, name, function))
    setattr(kind, name, wraps(function)(around(function)))
