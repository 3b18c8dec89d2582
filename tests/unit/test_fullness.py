"""Whether a buffer may take more: one thread counts, the others believe the last count."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from schemaless_core.buffers.fullness import SIZE_SECONDS, Fullness
from schemaless_core.config import BufferConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.buffers import BufferSize
from schemaless_core.errors import NodeUnavailable, Unavailable


class Counted:
    """A buffer that is counted as slowly as the test wants."""

    def __init__(self) -> None:
        self.cells = 0
        self.counts = 0
        self.now = 0.0
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.may_end.set()
        self.is_full = Fullness(self._count, BufferConfig(max_cells=10, max_bytes=100), lambda: self.now)

    def _count(self, _deadline: Deadline) -> BufferSize:
        self.counts += 1
        self.begun.release()
        assert self.may_end.wait(20)
        return BufferSize(self.cells, 3 * self.cells, None, 0)

    def ask(self, seconds: float = 20.0) -> bool:
        return self.is_full(Deadline(seconds))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(10) as executor:
        yield executor


@pytest.mark.parametrize(("cells", "is_full"), [(9, False), (10, True)])
def test_a_count_is_believed_for_two_seconds(cells: int, is_full: bool) -> None:
    buffer = Counted()
    assert buffer.ask() is False
    buffer.cells, buffer.now = cells, SIZE_SECONDS
    assert buffer.ask() is False
    assert buffer.counts == 1

    buffer.now += 0.001

    assert buffer.ask() is is_full
    assert buffer.counts == 2


def test_bytes_fill_it_as_well() -> None:
    buffer = Counted()
    buffer.is_full = Fullness(lambda deadline: BufferSize(1, 100, None, 0), BufferConfig(max_cells=10, max_bytes=100))

    assert buffer.ask() is True


def test_while_one_thread_counts_the_others_believe_the_last_count(threads: ThreadPoolExecutor) -> None:
    buffer = Counted()
    buffer.ask()
    buffer.begun.acquire()
    buffer.cells, buffer.now = 10, 60.0
    buffer.may_end.clear()
    counting = threads.submit(buffer.ask)
    assert buffer.begun.acquire(timeout=20)

    assert [buffer.ask(0.0) for _ in range(5)] == [False] * 5

    buffer.may_end.set()
    assert counting.result(20) is True
    assert buffer.ask() is True
    assert buffer.counts == 2


def test_before_the_first_count_all_wait_for_it_as_long_as_they_may(threads: ThreadPoolExecutor) -> None:
    buffer = Counted()
    buffer.may_end.clear()
    first = threads.submit(buffer.ask)
    assert buffer.begun.acquire(timeout=20)
    others = [threads.submit(buffer.ask) for _ in range(5)]
    with pytest.raises(Unavailable, match="being counted"):
        buffer.ask(0.0)

    buffer.may_end.set()

    assert [each.result(20) for each in [first, *others]] == [False] * 6
    assert buffer.counts == 1


def test_a_count_that_fails_is_tried_again() -> None:
    failures = iter([NodeUnavailable("b", "is down")])

    def count(_deadline: Deadline) -> BufferSize:
        for failure in failures:
            raise failure
        return BufferSize(0, 0, None, 0)

    is_full = Fullness(count, BufferConfig())
    with pytest.raises(NodeUnavailable):
        is_full(Deadline(1.0))

    assert is_full(Deadline(1.0)) is False
