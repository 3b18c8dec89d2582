"""Is there an order of concurrent calls, true to their times, in which the oracle gives the same answers?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schemaless_core import MemoryStore

Operation = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Event:
    """One call of one client: what it did, what it was answered, and between which moments."""

    client: int
    operation: Operation
    answer: object
    called_at: float
    answered_at: float


def is_linearisable(events: Sequence[Event], replay: Callable[[], MemoryStore]) -> bool:
    """Search all orders in which no call comes before one that was answered before it began.

    The oracle is replayed from the start on each path: histories are short, and the search rarely turns back.
    """
    by_client: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.called_at):
        by_client.setdefault(event.client, []).append(event)
    queues = list(by_client.values())
    failed: set[tuple[tuple[int, ...], str]] = set()

    def search(done: tuple[int, ...], order: list[Event]) -> bool:
        heads = [queue[n] for queue, n in zip(queues, done, strict=True) if n < len(queue)]
        if not heads:
            return True
        store = replay()
        for event in order:
            event.operation(store)
        state = (done, repr(sorted((cell.key, cell.body) for cell in all_cells(store))))
        if state in failed:
            return False
        earliest_answer = min(event.answered_at for event in heads)
        for client, queue in enumerate(queues):
            if done[client] == len(queue):
                continue
            event = queue[done[client]]
            if event.called_at <= earliest_answer and _agrees(event, replay, order):
                after = (*done[:client], done[client] + 1, *done[client + 1 :])
                if search(after, [*order, event]):
                    return True
        failed.add(state)
        return False

    return search((0,) * len(queues), [])


def _agrees(event: Event, replay: Callable[[], MemoryStore], order: Sequence[Event]) -> bool:
    store = replay()
    for earlier in order:
        earlier.operation(store)
    return event.operation(store) == event.answer


def all_cells(store: MemoryStore) -> list[Any]:
    return [cell for log in store._logs.values() for cell in log]
