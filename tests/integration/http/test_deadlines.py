"""A caller's deadline holds, whether the call waits for a thread or for its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.http_clients import JSON, Served
from tripstore.store import TripStore

#: Far below the 20 seconds for which a call of these tests may wait for a thread.
SOON = 10.0


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Calls of the store that hold a thread until it is opened."""
    may_end = threading.Event()

    def held(self: TripStore, *arguments: Any, **named: Any) -> None:
        assert may_end.wait(30), "the gate was never opened"

    for name in ("get_cell_latest", "put_cell"):
        monkeypatch.setattr(TripStore, name, held)
    yield may_end
    may_end.set()


def hurried(front: Served, seconds: float) -> httpx.Response:
    headers = JSON | {"Tripstore-Deadline-Seconds": str(seconds)}
    return front.client.put(f"/v1/cells/{uuid4()}/BASE/1", content=b"1", headers=headers)


def test_waiting_for_a_thread_counts(front: Served, gate: threading.Event) -> None:
    with ThreadPoolExecutor(4) as callers:
        held = [callers.submit(front.client.get, f"/v1/latest/{uuid4()}/BASE") for _ in range(4)]
        front.wait_for_calls(4)
        began = time.monotonic()

        answer = hurried(front, 0.1)

        seconds = time.monotonic() - began
        gate.set()
        assert [each.result().status_code for each in held] == [404] * 4
    assert seconds < SOON
    assert (answer.status_code, answer.json()["error"]["class"]) == (503, "ThreadsBusy")
    assert answer.json()["error"]["outcome"] == "not_stored"


def test_a_put_that_has_no_answer_by_then_may_be_stored(front: Served, gate: threading.Event) -> None:
    began = time.monotonic()

    answer = hurried(front, 0.1)

    assert time.monotonic() - began < SOON
    assert (answer.status_code, answer.json()["error"]["class"]) == (504, "CallOverdue")
    assert answer.json()["error"]["outcome"] == "unknown"
    assert answer.headers["retry-after"] == "1"
