"""Spans, as the SDK's own exporter sees them: of calls, backends, relays and shadow reads, and nothing that was put."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN_CONTEXT, StatusCode

import tripstore
from schemaless_core import CellConflict, ColumnKey, Datastore
from schemaless_core.triggers.group import RunOutcome
from tests.experiments import lab, rewritten
from tripstore.cli.run import run
from tripstore.facade.calls import AuthorityCalls
from tripstore.migration.mirror.carrier import Carrier
from tripstore.migration.mirror.pace import Carried
from tripstore.migration.mirror.reverse import ReverseMirror
from tripstore.otel import instrument, uninstrument
from tripstore.otel.links import WAITING_MAX, ShadowLinks
from tripstore.store import TripStore

SECRET = "the rider's name"


@pytest.fixture
def traces() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(provider)
    instrument()  # a second time does nothing
    yield exporter
    uninstrument()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TripStore]:
    config = {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{tmp_path}/a"}}}
    with Datastore.open(config) as opened:
        opened.create_schema()
    with tripstore.connect(config) as connected:
        yield connected


def told(exporter: InMemorySpanExporter) -> list[tuple[str, dict[str, Any]]]:
    """Those that have ended, oldest first, and those of before no more."""
    found = [(span.name, dict(span.attributes or {})) for span in exporter.get_finished_spans()]
    exporter.clear()
    return found


def test_a_call_is_a_span_and_the_backends_part_is_one_inside(store: TripStore, traces: InMemorySpanExporter) -> None:
    row_key = uuid4()
    store.put_cell(row_key, "BASE", 1, {"name": SECRET})

    backend, call = traces.get_finished_spans()
    assert (call.name, backend.name) == ("tripstore.put_cell", "tripstore.backend")
    assert backend.parent is not None
    assert call.context is not None
    assert backend.parent.span_id == call.context.span_id
    assert dict(call.attributes or {}) == {
        "tripstore.column_name": "BASE",
        "tripstore.ref_key": 1,
        "tripstore.row_key": str(row_key),
    }
    assert dict(backend.attributes or {}) == {"tripstore.operation": "put_cell", "tripstore.backend": "store"}


def test_no_span_holds_what_was_put_asked_for_or_refused(store: TripStore, traces: InMemorySpanExporter) -> None:
    row_key = uuid4()
    store.put_cell(row_key, "BASE", 1, {"name": SECRET})
    with pytest.raises(CellConflict):
        store.put_cell(row_key, "BASE", 1, {"name": f"{SECRET}!"})
    store.get_cells_latest([ColumnKey(row_key, "BASE"), ColumnKey(row_key, "NOTES")])
    with pytest.raises(Exception, match="driver"):
        store.query_index("driver", SECRET, where=[("name", "=", SECRET)])
    with pytest.raises(TypeError):
        store.get_row()  # type: ignore[call-arg]  # a call that does not fit

    spans = traces.get_finished_spans()
    assert SECRET not in "".join(span.to_json() for span in spans)
    failed = {span.name: span for span in spans if span.status.status_code is StatusCode.ERROR}
    assert failed.keys() == {"tripstore.put_cell", "tripstore.backend", "tripstore.query_index", "tripstore.get_row"}
    assert (failed["tripstore.put_cell"].attributes or {})["error.type"] == "CellConflict"
    assert not any(span.events or span.status.description for span in spans)
    names = dict(told(traces))
    assert names["tripstore.get_cells_latest"] == {"tripstore.columns": 2}
    assert names["tripstore.query_index"]["tripstore.index"] == "driver"


def test_a_shadow_read_has_a_link_to_the_call_that_it_repeats(tmp_path: Path, traces: InMemorySpanExporter) -> None:
    """And no parent: its caller is long gone."""
    provider = TracerProvider()
    with lab(tmp_path) as made:
        asked = rewritten(made.experiment(), lambda: SECRET, lambda: SECRET)
        with provider.get_tracer("a service").start_as_current_span("request") as request:
            asked()
        asked()  # control: outside of any span
        made.outcomes()

    found = [span for span in traces.get_finished_spans() if span.name == "tripstore.shadow"]
    assert [dict(span.attributes or {}) for span in found] == 2 * [{"tripstore.operation": "experiment:billing.unpaid"}]
    assert [span.parent for span in found] == [None, None]
    linked = [[link.context.span_id for link in span.links] for span in found]
    assert sorted(linked, key=len) == [[], [request.get_span_context().span_id]]
    assert SECRET not in "".join(span.to_json() for span in found)


def test_what_a_relay_carries_is_a_span_and_an_empty_look_is_none(
    monkeypatch: pytest.MonkeyPatch, traces: InMemorySpanExporter
) -> None:
    uninstrument()
    carried = iter([Carried(0, 0, 0), Carried(7, 5, 1)])
    monkeypatch.setattr(Carrier, "carry", lambda _carrier, _limit, **_habits: next(carried))
    monkeypatch.setattr(
        ReverseMirror, "deliver", lambda _mirror, runs, **_habits: dict.fromkeys(runs, RunOutcome(2, None))
    )
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(traces))
    instrument(provider)

    carrier: Any = object.__new__(Carrier)
    mirror: Any = object.__new__(ReverseMirror)
    carrier.carry(500, from_others=True)
    carrier.carry(500)
    mirror.deliver({3: ["a", "b", "c"]})

    forward = {"tripstore.claimed": 7, "tripstore.delivered": 5, "tripstore.parked": 1}
    reverse = {"tripstore.claimed": 3, "tripstore.delivered": 2}
    assert told(traces) == [
        ("tripstore.mirror", {"tripstore.direction": "forward", **forward}),
        ("tripstore.mirror", {"tripstore.direction": "reverse", **reverse}),
    ]
    uninstrument()


def test_uninstrumented_everything_is_what_it_was(store: TripStore, traces: InMemorySpanExporter) -> None:
    store.get_cell_latest(uuid4(), "BASE")
    assert len(told(traces)) == 2
    uninstrument()
    store.get_cell_latest(uuid4(), "BASE")
    assert told(traces) == []
    assert "__wrapped__" not in {*vars(TripStore.get_cell_latest), *vars(AuthorityCalls.ask)}


def test_links_of_reads_that_are_never_compared_take_no_more_memory() -> None:
    links = ShadowLinks()
    for _ in range(WAITING_MAX + 5):
        links._note(object(), INVALID_SPAN_CONTEXT)
    assert len(links._waiting) == WAITING_MAX


def test_a_process_that_makes_no_spans_waits_for_none_of_it() -> None:
    code = "import sys, tripstore, tripstore.store, tripstore.wiring, tripstore.cli.run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.startswith(("opentelemetry", "tripstore.otel"))} == set()
    assert "tripstore.wiring" in loaded  # control


def test_a_command_makes_spans_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = TripStore.put_cell
    monkeypatch.setenv("TRIPSTORE_TRACES", "jaeger")
    assert run(["--version"]) == 2
    assert "TRIPSTORE_TRACES: is not otel" in capsys.readouterr().err
    monkeypatch.setenv("TRIPSTORE_TRACES", "otel")
    assert run(["--version"]) == 0
    assert TripStore.put_cell is not plain
    uninstrument()
    assert TripStore.put_cell is plain

    for name in [name for name in sys.modules if name.startswith("tripstore.otel")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    assert run(["--version"]) == 2
    assert "pip install 'tripstore[otel]'" in capsys.readouterr().err


def test_calls_of_several_threads_have_parents_of_their_own(store: TripStore, traces: InMemorySpanExporter) -> None:
    threads = [threading.Thread(target=store.get_cell_latest, args=(uuid4(), "BASE")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans = traces.get_finished_spans()
    parents = [span.parent.span_id for span in spans if span.parent is not None]
    assert len(spans) == 8
    assert len(set(parents)) == 4
