"""Three clients at once on a few keys: what they were answered must be explainable by one order (I2, I4)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
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

Operation = Callable[[CellStore], object]


def random_operation(choose: random.Random, row_key: UUID, client: int, number: int) -> Operation:
    """Calls on one row; bodies of appends are unique per event, as the contract asks."""
    column = choose.choice(["BASE", "NOTES"])
    ref = choose.randrange(1, 4)
    body = choose.choice(["same", f"by {client}"])
    event = f"event {client}.{number}"
    expected = choose.choice([None, 1, 2])
    calls: list[Callable[[CellStore], Any]] = [
        lambda store: store.put_cell(row_key, column, ref, body),
        lambda store: store.put_cell(row_key, column, ref, body, expect_latest=expected),
        lambda store: store.put_cells([Cell(row_key, column, ref, body)]),
        lambda store: store.append_cell(row_key, column, event),
        lambda store: store.get_cell_latest(row_key, column),
        lambda store: store.get_row(row_key),
        lambda store: store.get_cells_latest([ColumnKey(row_key, "BASE"), ColumnKey(row_key, "NOTES")]),
    ]
    call = choose.choice(calls)
    return lambda store: without_ids(answer_of(lambda: call(store)))


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
        [random_operation(choose, row_key, client, number) for number in range(CALLS_PER_CLIENT)]
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


@pytest.mark.parametrize("engine", DATASTORE_ENGINES)
def test_what_three_concurrent_clients_see_has_an_order(engine: str, stores: Stores) -> None:
    datastore: Datastore = stores.fresh(engine, shards=1)
    seed = random.randrange(10**9)
    choose = random.Random(seed)

    for number in range(HISTORIES):
        events = record_history(datastore, choose)
        assert is_linearisable(events, lambda: MemoryStore(shards=1)), (seed, number, events)

    print(f"{engine}: {HISTORIES * CLIENTS * CALLS_PER_CLIENT:,} calls of {CLIENTS} clients linearised (seed {seed})")


def test_a_stale_read_has_no_order() -> None:
    """The control: a client that reads an old version after another's put was answered is caught."""
    row_key = uuid4()

    def put(ref: int) -> Operation:
        return lambda store: without_ids(answer_of(lambda: store.put_cell(row_key, "BASE", ref, ref)))

    def latest(store: CellStore) -> object:
        return without_ids(answer_of(lambda: store.get_cell_latest(row_key, "BASE")))

    events = [
        Event(0, put(1), ("CREATED", 1), 0.0, 1.0),
        Event(0, put(2), ("CREATED", 2), 2.0, 3.0),
        Event(1, latest, Cell(row_key, "BASE", 1, 1), 4.0, 5.0),
    ]

    assert not is_linearisable(events, lambda: MemoryStore(shards=1))
    in_time = [*events[:2], Event(1, latest, Cell(row_key, "BASE", 1, 1), 1.5, 2.5)]
    assert is_linearisable(in_time, lambda: MemoryStore(shards=1))
