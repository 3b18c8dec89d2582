"""Spans over both stores: whose part of a call is whose, what a relay carries, and what is compared afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.shadow_traffic import comparing
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.mirror import Mirror
from tripstore.otel import instrument, uninstrument
from tripstore.phase import Phase

STATUS = "paid by the rider"
CARRIED = "tripstore.direction", "tripstore.claimed", "tripstore.delivered"


def test_each_part_of_a_migration_is_a_span(servers: LocalServers, stores: Stores) -> None:
    exporter, provider, row_key = InMemorySpanExporter(), TracerProvider(), uuid4()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with comparing(servers, stores) as moving:
        moving.carry()
        instrument(provider)
        try:
            moving.store.put_cell(row_key, "BASE", 1, {"status": STATUS})
            Mirror(moving.facade).relay().turn()
            moving.store.get_cell_latest(row_key, "BASE")
            assert moving.duo.shadow.drain(60)
            moving.phase(Phase.LIVE)
            moving.store.put_cell(uuid4(), "FREE", 1, {"status": STATUS})
        finally:
            uninstrument()

    spans = exporter.get_finished_spans()
    assert STATUS not in "".join(span.to_json() for span in spans)
    backends = told(spans, "tripstore.backend", "tripstore.operation", "tripstore.backend")
    assert backends == [("put_cell", "legacy"), ("get_cell_latest", "legacy"), ("put_cell", "store")]
    ((direction, claimed, delivered),) = told(spans, "tripstore.mirror", *CARRIED)
    assert (direction, claimed > 0, delivered) == ("forward", True, claimed)
    (shadow,) = [span for span in spans if span.name == "tripstore.shadow"]
    (call,) = [span for span in spans if span.name == "tripstore.get_cell_latest"]
    assert call.context is not None
    assert [link.context.span_id for link in shadow.links] == [call.context.span_id]
    assert shadow.parent is None


def told(spans: Sequence[ReadableSpan], name: str, *attributes: str) -> list[tuple[Any, ...]]:
    return [tuple((span.attributes or {})[each] for each in attributes) for span in spans if span.name == name]
