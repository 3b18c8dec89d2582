"""Permits: bounded, handed to the thread that waits longest, never lost."""

from __future__ import annotations

import threading
import time

import pytest

from schemaless_core.engine.mysql.wire.permits import NoPermit, Permits


def waiting_thread(permits: Permits) -> threading.Thread:
    """A thread that waits for a permit and keeps it."""
    thread = threading.Thread(target=permits.take, args=(20.0,))
    thread.start()
    while not permits._waiting:
        time.sleep(0.001)
    return thread


def test_a_free_permit_costs_no_waiting() -> None:
    assert Permits(1).take(0.0) == 0.0


def test_no_more_permits_are_taken_than_there_are() -> None:
    permits = Permits(2)
    permits.take(0.0)
    permits.take(0.0)

    with pytest.raises(NoPermit):
        permits.take(0.01)

    permits.give()
    assert permits.take(0.0) == 0.0


def test_a_thread_that_gives_a_permit_back_does_not_get_it_before_a_waiting_one() -> None:
    permits = Permits(1)
    permits.take(0.0)
    waiter = waiting_thread(permits)

    permits.give()

    with pytest.raises(NoPermit):
        permits.take(0.01)
    waiter.join(20)
    assert not waiter.is_alive()


def test_waiters_are_served_in_their_order() -> None:
    permits, served, waiters = Permits(1), list[int](), list[threading.Thread]()
    permits.take(0.0)

    def wait(number: int) -> None:
        permits.take(20.0)
        served.append(number)
        permits.give()

    for number in range(5):
        waiters.append(threading.Thread(target=wait, args=(number,)))
        waiters[-1].start()
        while len(permits._waiting) <= number:
            time.sleep(0.001)
    permits.give()
    for waiter in waiters:
        waiter.join(20)

    assert served == [0, 1, 2, 3, 4]


def test_a_permit_without_a_waiting_thread_is_free() -> None:
    permits = Permits(1)
    permits.take(0.0)
    with pytest.raises(NoPermit):
        permits.take(0.01)
    permits.give()

    assert permits.take(0.0) == 0.0
