"""Threads that calls are awaited on: bounded, in order, and none is made whose task has gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import pytest

from schemaless_core import InvalidRequest, Unavailable, metrics
from schemaless_core.aio import CallThreads, ThreadLimits, ThreadsBusy
from schemaless_core.aio.threads import limits_of
from schemaless_core.config import PoolConfig
from tests.integration.test_forks import forked

LIMITS = ThreadLimits(threads=3, writers=2, wait_seconds=20)


@dataclass
class Work:
    """Calls that last until they may end, and what is known of them."""

    may_end: threading.Event = field(default_factory=threading.Event)
    begun: list[str] = field(default_factory=list)
    at_once: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def named(self, name: str) -> Callable[[], str]:
        def call() -> str:
            with self.lock:
                self.begun.append(name)
                self.at_once += 1
                self.most = max(self.most, self.at_once)
            assert self.may_end.wait(20)
            with self.lock:
                self.at_once -= 1
            return name

        return call


@contextmanager
def working() -> Iterator[Work]:
    work = Work()
    try:
        yield work
    finally:
        work.may_end.set()


def begun(ask: Callable[[Callable[[], str]], Awaitable[str]], call: Callable[[], str]) -> asyncio.Future[str]:
    return asyncio.ensure_future(ask(call))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.001)


def test_answers_and_errors_come_from_a_thread_to_their_own_tasks() -> None:
    async def ask() -> list[object]:
        threads = CallThreads(LIMITS)
        names = [threads.read(lambda n=n: (n, threading.current_thread().name)) for n in range(50)]  # type: ignore[misc]  # mypy knows no default of a lambda
        answers: list[object] = [n for n, name in await asyncio.gather(*names) if name.startswith("schemaless-aio")]
        with pytest.raises(ZeroDivisionError):
            await threads.write(lambda: 1 // 0)
        threads.close()
        return answers

    assert asyncio.run(ask()) == list(range(50))


def test_a_call_that_raises_stop_iteration_is_told_of_it() -> None:
    """No future of asyncio takes it: its task waited for ever."""

    async def ask() -> None:
        threads = CallThreads(LIMITS)
        async with asyncio.timeout(20):
            with pytest.raises(RuntimeError, match="raised StopIteration"):
                await threads.read(lambda: next(iter(())))
        threads.close()

    asyncio.run(ask())


def test_no_more_calls_are_made_at_once_than_there_are_threads() -> None:
    async def ask() -> None:
        with working() as work:
            threads = CallThreads(LIMITS)
            asked = [begun(threads.read, work.named(str(n))) for n in range(20)]
            await until(lambda: work.at_once == 3)
            work.may_end.set()
            assert await asyncio.gather(*asked) == [str(n) for n in range(20)]
            assert work.most == 3
            assert work.begun[:3] == ["0", "1", "2"]

    asyncio.run(ask())


def test_reads_go_on_beside_writes_that_wait() -> None:
    async def ask() -> None:
        with working() as work:
            threads = CallThreads(LIMITS)
            writes = [begun(threads.write, work.named(f"write {n}")) for n in range(9)]
            await until(lambda: work.at_once == 2)

            assert await asyncio.gather(*(threads.read(lambda: "read") for _ in range(30))) == ["read"] * 30

            assert work.begun == ["write 0", "write 1"]
            work.may_end.set()
            await asyncio.gather(*writes)

    asyncio.run(ask())


def counted(begun: str) -> float:
    return float(metrics.AWAITED_CANCELLED.labels(begun)._value.get())


def test_a_call_whose_task_was_cancelled_before_it_began_is_never_made() -> None:
    before = counted("no")

    async def ask() -> None:
        with working() as work:
            threads = CallThreads(LIMITS)
            first = [begun(threads.write, work.named(f"first {n}")) for n in range(2)]
            await until(lambda: work.at_once == 2)
            waiting = begun(threads.write, work.named("waiting"))
            after = begun(threads.write, work.named("after"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            work.may_end.set()

            assert await asyncio.gather(*first, after) == ["first 0", "first 1", "after"]
            assert "waiting" not in work.begun
            assert counted("no") == before + 1

    asyncio.run(ask())


def test_a_call_whose_task_was_cancelled_later_keeps_its_thread_until_it_ends() -> None:
    before = counted("yes")

    async def ask() -> None:
        with working() as work:
            threads = CallThreads(LIMITS)
            asked = [begun(threads.read, work.named(str(n))) for n in range(3)]
            await until(lambda: work.at_once == 3)
            for each in asked:
                each.cancel()
            assert {type(each) for each in await asyncio.gather(*asked, return_exceptions=True)} == {
                asyncio.CancelledError
            }
            after = begun(threads.read, work.named("after"))
            await asyncio.sleep(0.01)
            assert work.begun == ["0", "1", "2"]
            work.may_end.set()
            assert await after == "after"
            assert work.most == 3
            assert counted("yes") == before + 3

    asyncio.run(ask())


def test_a_call_that_waits_for_too_long_is_told_and_never_made() -> None:
    async def ask() -> None:
        with working() as work:
            threads = CallThreads(ThreadLimits(threads=1, writers=1, wait_seconds=0.02))
            first = begun(threads.read, work.named("first"))
            await until(lambda: work.at_once == 1)
            with pytest.raises(ThreadsBusy, match=r"All 1 threads of the store were busy for 0\.02 seconds") as raised:
                await threads.read(work.named("second"))
            assert isinstance(raised.value, Unavailable)
            assert raised.value.hint is not None
            work.may_end.set()
            # What has begun is not given up: its own deadline bounds it.
            assert await first == "first"
            assert work.begun == ["first"]

    asyncio.run(ask())


def test_calls_of_less_patience_wait_in_the_same_line() -> None:
    async def ask() -> None:
        with working() as work:
            threads = CallThreads(ThreadLimits(threads=1, writers=1, wait_seconds=20))
            first = begun(threads.read, work.named("first"))
            await until(lambda: work.at_once == 1)
            with pytest.raises(ThreadsBusy, match=r"0\.02 seconds"):
                await threads.waiting(0.02).read(work.named("second"))
            patient = begun(threads.waiting(100.0).read, work.named("third"))
            work.may_end.set()
            assert [await first, await patient] == ["first", "third"]
            assert threads.waiting(100.0).limits.wait_seconds == 20

    asyncio.run(ask())


def test_the_event_loop_goes_on_while_all_threads_work() -> None:
    async def ask() -> float:
        with working() as work:
            threads = CallThreads(LIMITS)
            asked = [begun(threads.read, work.named(str(n))) for n in range(30)]
            await until(lambda: work.at_once == 3)
            began = time.monotonic()
            await asyncio.sleep(0.01)
            seconds = time.monotonic() - began
            work.may_end.set()
            await asyncio.gather(*asked)
            return seconds

    assert asyncio.run(ask()) < 1


def test_the_callers_context_is_that_of_the_call() -> None:
    request: ContextVar[str] = ContextVar("request", default="none")

    async def ask() -> list[str]:
        threads, found = CallThreads(LIMITS), []
        for name in ("one", "two"):
            request.set(name)
            found.append(await threads.read(request.get))
        return found

    assert asyncio.run(ask()) == ["one", "two"]


def test_event_loops_of_several_threads_share_them() -> None:
    threads, answers = CallThreads(LIMITS), list[int]()

    async def ask(n: int) -> None:
        answers.extend(await asyncio.gather(*(threads.read(lambda: n) for _ in range(20))))

    loops = [threading.Thread(target=lambda n=n: asyncio.run(ask(n))) for n in range(4)]
    for each in loops:
        each.start()
    for each in loops:
        each.join()

    assert sorted(answers) == sorted(list(range(4)) * 20)


def test_a_loop_that_was_closed_gets_no_answer_and_breaks_no_thread() -> None:
    with working() as work:
        threads = CallThreads(LIMITS)

        async def leave() -> None:
            asking = begun(threads.read, work.named("left"))
            await until(lambda: work.at_once == 1)
            asking.cancel()

        asyncio.run(leave())
        work.may_end.set()

        assert asyncio.run(threads.read(lambda: "next")) == "next"


def test_a_forked_child_has_threads_of_its_own() -> None:
    threads = CallThreads(LIMITS)
    assert asyncio.run(threads.read(lambda: 1)) == 1
    held = threads._lock  # as another thread of the parent would have it at the fork
    with held:
        assert forked(lambda: asyncio.run(threads.read(lambda: 2))) == 0

    assert asyncio.run(threads.write(lambda: 3)) == 3


def test_control_without_that_a_forked_child_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = CallThreads(LIMITS)
    assert asyncio.run(threads.read(lambda: 1)) == 1
    monkeypatch.setattr(CallThreads, "start_anew", lambda self: None)

    with threads._lock:
        assert forked(lambda: asyncio.run(threads.read(lambda: 2)), seconds=0.5) == -1


def test_there_are_as_many_threads_as_the_smallest_pool_has_connections() -> None:
    core, legacy = PoolConfig(size=8, overflow=24), PoolConfig(size=4, overflow=6)

    assert limits_of([core], None, 1) == ThreadLimits(32, 24, 1)
    assert limits_of([core, legacy], None, 1) == ThreadLimits(10, 5, 1)
    assert limits_of([core, legacy], 100, 1) == ThreadLimits(100, 92, 1)
    assert limits_of([core], 1, 1) == ThreadLimits(1, 1, 1)
    with pytest.raises(InvalidRequest, match="threads is 0"):
        limits_of([core], 0, 1)
