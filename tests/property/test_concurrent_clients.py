"""Three clients at once on a few keys: what they were answered must be explainable by one order (I2, I4)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellStore, ColumnKey, Datastore, MemoryStore
from tests.property.linearisation import Event, is_linearisable
from tests.property.operations import answer_of
from tests.scale import scaled
from tests.stores import DATASTORE_ENGINES, Stores

CLIENTS = 3
CALLS_PER_CLIENT = 5
#: Full figure: 20,000 calls per engine.
HISTORIES = scaled(20_000 // (CLIENTS * CALLS_PER_CLIENT))


@dataclass(frozen=True)
class Call:
    """A method of a store with its arguments."""

    method: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, store: CellStore) -> object:
        method = getattr(store, self.method)
        return without_ids(answer_of(lambda: method(*self.arguments, **self.options)))


def random_call(choose: random.Random, row_key: UUID, client: int, number: int) -> Call:
    """On one row; bodies of appends are unique per event, as the contract asks."""
    column = choose.choice(["BASE", "NOTES"])
    ref = choose.randrange(1, 4)
    body = choose.choice(["same", f"by {client}"])
    expected = choose.choice([None, 1, 2])
    return choose.choice(
        [
            Call("put_cell", (row_key, column, ref, body)),
            Call("put_cell", (row_key, column, ref, body), {"expect_latest": expected}),
            Call("put_cells", ([Cell(row_key, column, ref, body)],)),
            Call("append_cell", (row_key, column, f"event {client}.{number}")),
            Call("get_cell_latest", (row_key, column)),
            Call("get_row", (row_key,)),
            Call("get_cells_latest", ([ColumnKey(row_key, "BASE"), ColumnKey(row_key, "NOTES")],)),
        ]
    )


def without_ids(answer: object) -> object:
    """Other rows share the shard's log, so added ids are not the oracle's; everything else is."""
    if isinstance(answer, tuple) and answer and answer[0] in ("CREATED", "EXISTS"):
        return answer[:2]
    if isinstance(answer, tuple) and answer and answer[0] == "cell":
        return answer[1]
    if isinstance(answer, tuple):
        return tuple(without_ids(part) for part in answer)
    if isinstance(answer, list):
        return [without_ids(part) for part in answer]
    if isinstance(answer, dict):
        return {key: without_ids(part) for key, part in answer.items()}
    return answer


def record_history(store: CellStore, choose: random.Random) -> list[Event]:
    """Let the clients loose on one new row."""
    row_key = uuid4()
    plans = [
        [random_call(choose, row_key, client, number) for number in range(CALLS_PER_CLIENT)]
        for client in range(CLIENTS)
    ]
    start = threading.Barrier(CLIENTS)
    events: list[Event] = []

    def run(client: int) -> None:
        start.wait()
        for operation in plans[client]:
            called_at = time.monotonic()
            answer = operation(store)
            events.append(Event(client, operation, answer, called_at, time.monotonic()))

    threads = [threading.Thread(target=run, args=(client,)) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events) == CLIENTS * CALLS_PER_CLIENT
    return events


def told(events: list[Event]) -> str:
    """A history, a call a line."""
    return "\n".join(
        f"client {event.client}, {event.called_at:.4f} to {event.answered_at:.4f}: {event.operation} -> {event.answer}"
        for event in sorted(events, key=lambda event: event.called_at)
    )


@pytest.mark.parametrize("engine", DATASTORE_ENGINES)
def test_what_three_concurrent_clients_see_has_an_order(engine: str, stores: Stores) -> None:
    datastore: Datastore = stores.fresh(engine, shards=1)
    seed = random.randrange(10**9)
    choose = random.Random(seed)

    for number in range(HISTORIES):
        events = record_history(datastore, choose)
        assert is_linearisable(events, lambda: MemoryStore(shards=1)), f"seed {seed}, history {number}:\n{told(events)}"

    print(f"{engine}: {HISTORIES * CLIENTS * CALLS_PER_CLIENT:,} calls of {CLIENTS} clients linearised (seed {seed})")


def test_a_stale_read_has_no_order() -> None:
    """The control: a client that reads an old version after another's put was answered is caught."""
    row_key = uuid4()

    latest = Call("get_cell_latest", (row_key, "BASE"))

    def put(ref: int) -> Call:
        return Call("put_cell", (row_key, "BASE", ref, ref))

    events = [
        Event(0, put(1), ("CREATED", 1), 0.0, 1.0),
        Event(0, put(2), ("CREATED", 2), 2.0, 3.0),
        Event(1, latest, Cell(row_key, "BASE", 1, 1), 4.0, 5.0),
    ]

    assert not is_linearisable(events, lambda: MemoryStore(shards=1))
    in_time = [*events[:2], Event(1, latest, Cell(row_key, "BASE", 1, 1), 1.5, 2.5)]
    assert is_linearisable(in_time, lambda: MemoryStore(shards=1))
