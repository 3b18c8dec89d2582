"""`CallThreads`: calls of a store on a bounded number of threads, awaited.

A call that is cancelled before it began is never made. One that has begun goes on to its end, which its deadline
bounds, and its answer is dropped: so a connection is never left in the middle of a packet.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from schemaless_core import metrics
from schemaless_core.aio.errors import ThreadsBusy
from schemaless_core.aio.lane import Lane, ThreadCall
from schemaless_core.config import PoolConfig
from schemaless_core.errors import InvalidRequest

T = TypeVar("T")

#: A crowd of calls may begin at once; a caller who wants less patience says so by `asyncio.timeout`.
WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ThreadLimits:
    """How many threads a store has, how many of them writes may have, how long a call may wait for one."""

    threads: int
    writers: int
    wait_seconds: float = WAIT_SECONDS  #: Waiting counts for itself, not for the call's deadline.

    def __post_init__(self) -> None:
        for name, value in (("threads", self.threads), ("wait_seconds", self.wait_seconds)):
            if value <= 0:
                raise InvalidRequest(f"{name} is {value}.", hint="Pass a number above 0.")


def limits_of(pools: Sequence[PoolConfig], threads: int | None, wait_seconds: float) -> ThreadLimits:
    """As many threads as the smallest of the pools has connections, unless the caller says how many."""
    pool = min(pools, key=lambda each: each.places)
    if threads is not None:
        pool = replace(pool, size=threads, overflow=0)
    return ThreadLimits(pool.places, pool.write_places, wait_seconds)


class CallThreads:
    """They start at first need, and end with the store. Any number of event loops may use them; a fork starts anew.

    They are as many as connections to one server, so that none waits for one. Writes leave to reads as many threads as
    the pool leaves them connections: reads go on beside commits that wait.
    """

    def __init__(self, limits: ThreadLimits) -> None:
        self.limits = limits
        self.start_anew()
        _ALL.add(self)

    def start_anew(self) -> None:
        """In a forked child: the parent's threads are the parent's, and so are the calls that wait for them."""
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._reads = Lane(self.limits.threads, self._submit)
        self._writes = Lane(self.limits.writers, self._submit)

    async def read(self, call: Callable[[], T]) -> T:
        """Make a call on a thread, and wait for its answer."""
        return await self._answer_of(call, self._reads)

    async def write(self, call: Callable[[], T]) -> T:
        """The same for a call that writes."""
        return await self._answer_of(call, self._writes)

    def waiting(self, seconds: float) -> CallThreads:
        """Return the same threads for calls that have less patience. Not for keeping: a fork knows of them no more."""
        other = copy(self)
        other.limits = replace(self.limits, wait_seconds=min(seconds, self.limits.wait_seconds))
        return other

    def close(self) -> None:
        """Let the threads end when they are done with what they have. A later call starts others."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)

    async def _answer_of(self, call: Callable[[], T], lane: Lane) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        made: ThreadCall[T] = ThreadCall(partial(copy_context().run, call), partial(_hand_over, loop, answer))
        waiting = loop.call_later(self.limits.wait_seconds, self._give_up, made, answer)
        try:
            lane.add(made)
            return await answer
        except asyncio.CancelledError:
            metrics.awaited_cancelled(is_begun=not made.cancel())
            raise
        finally:
            waiting.cancel()
            made.cancel()  # if it has not begun, it never will
            if answer.done() and not answer.cancelled():
                answer.exception()  # a task that was cancelled just now does not ask: asyncio would complain

    def _give_up(self, made: ThreadCall[Any], answer: asyncio.Future[Any]) -> None:
        if made.cancel() and not answer.done():
            metrics.awaited_busy()
            answer.set_exception(ThreadsBusy(self.limits.threads, self.limits.wait_seconds))

    def _submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="schemaless-aio")
            self._executor.submit(work)


def _hand_over(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], value: T | None, error: BaseException | None
) -> None:
    """On the thread that made the call."""
    with suppress(RuntimeError):  # the loop was closed: no task waits
        loop.call_soon_threadsafe(_settle, answer, value, error)


def _settle(answer: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    """In the loop. An answer whose task was cancelled is dropped; the metrics have counted the call."""
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    elif isinstance(error, StopIteration):  # no future takes it, and its task would wait for ever
        ended = RuntimeError("A call raised StopIteration.")
        ended.__cause__ = error
        answer.set_exception(ended)
    else:
        answer.set_exception(error)


_ALL: weakref.WeakSet[CallThreads] = weakref.WeakSet()


def _after_fork() -> None:
    for threads in list(_ALL):
        threads.start_anew()


os.register_at_fork(after_in_child=_after_fork)
