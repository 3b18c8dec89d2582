"""Is there an order of concurrent calls, true to their times, in which the oracle gives the same answers?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemaless_core import Cell, CellStore, MemoryStore

Operation = Callable[[CellStore], object]


@dataclass(frozen=True, slots=True)
class Event:
    """One call of one client: what it did, what it was answered, and between which moments."""

    client: int
    operation: Operation
    answer: object
    called_at: float
    answered_at: float


def is_linearisable(events: Sequence[Event], replay: Callable[[], MemoryStore]) -> bool:
    """Search all orders in which no call comes before one that was answered before it began."""
    by_client: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.called_at):
        by_client.setdefault(event.client, []).append(event)
    return _search(list(by_client.values()), (0,) * len(by_client), [], replay, set())


def _search(
    queues: list[list[Event]],
    done: tuple[int, ...],
    order: list[Event],
    replay: Callable[[], MemoryStore],
    failed: set[tuple[tuple[int, ...], int]],
) -> bool:
    """Whether the events not yet done can follow those in `order`."""
    heads = {client: queue[done[client]] for client, queue in enumerate(queues) if done[client] < len(queue)}
    if not heads:
        return True
    if (done, _cells_after(order, replay)) in failed:
        return False
    earliest_answer = min(event.answered_at for event in heads.values())
    for client, event in heads.items():
        if event.called_at > earliest_answer:
            continue
        agrees, changes = _tried(event, order, replay)
        if agrees:
            after = (*done[:client], done[client] + 1, *done[client + 1 :])
            if _search(queues, after, [*order, event] if changes else order, replay, failed):
                return True
            if not changes:
                # Whatever can follow it could follow without it: to take it later cannot help.
                break
    failed.add((done, _cells_after(order, replay)))
    return False


def _tried(event: Event, order: Sequence[Event], replay: Callable[[], MemoryStore]) -> tuple[bool, bool]:
    """Whether the oracle answers an event so after these, and whether it then holds other cells."""
    store = _after(order, replay)
    before = len(_cells(store))
    agrees = event.operation(store) == event.answer
    return agrees, len(_cells(store)) != before


def _after(order: Sequence[Event], replay: Callable[[], MemoryStore]) -> MemoryStore:
    store = replay()
    for event in order:
        event.operation(store)
    return store


def _cells_after(order: Sequence[Event], replay: Callable[[], MemoryStore]) -> int:
    """The set of cells, whatever the order they came in: nothing else matters to what follows."""
    return hash(frozenset((cell.key, repr(cell.body)) for cell in _cells(_after(order, replay))))


def _cells(store: MemoryStore) -> list[Cell]:
    return [cell for log in store._logs.values() for cell in log]
