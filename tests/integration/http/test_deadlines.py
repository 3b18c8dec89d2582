"""A caller's deadline holds, whether the call waits for a thread or for its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.http_clients import JSON, Served
from tripstore.http import exact
from tripstore.store import TripStore

#: Far below the 20 seconds for which a call of these tests may wait for a thread.
SOON = 10.0


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


@pytest.fixture
def patient(store: TripStore) -> Iterator[Served]:
    """A front that takes large requests."""
    served = Served(store)
    yield served
    served.close()


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Large content takes so long to read: it has begun, and it may end."""
    is_reading, may_end, decode = threading.Event(), threading.Event(), exact._decode

    def slow(text: str) -> Any:
        if len(text) > exact.AT_ONCE_BYTES_MAX:
            is_reading.set()
            may_end.wait(20)
        return decode(text)

    monkeypatch.setattr(exact, "_decode", slow)
    yield is_reading, may_end
    may_end.set()


LARGE = b"[" + b"1.50," * exact.AT_ONCE_BYTES_MAX + b"1]"


def test_while_a_large_request_is_read_others_are_answered(
    patient: Served, reading: tuple[threading.Event, threading.Event]
) -> None:
    is_reading, may_end = reading
    with ThreadPoolExecutor(1) as callers:
        path = f"/v1/cells/{uuid4()}/BASE/1"
        large = callers.submit(patient.client.put, path, content=LARGE, headers=JSON)
        assert is_reading.wait(20)
        assert patient.client.get("/health", timeout=SOON).status_code == 200
        assert not large.done()
        may_end.set()
        assert large.result().status_code == 201


@pytest.mark.parametrize("path", ["/v1/cells", f"/v1/append/{UUID(int=7)}/BASE"])
def test_reading_counts_for_the_deadline(
    patient: Served, reading: tuple[threading.Event, threading.Event], path: str
) -> None:
    began = time.monotonic()
    headers = JSON | {"Tripstore-Deadline-Seconds": "0.1"}

    answer = patient.client.post(path, content=LARGE, headers=headers)

    assert time.monotonic() - began < SOON
    assert (answer.status_code, answer.json()["error"]["class"]) == (504, "CallOverdue")
