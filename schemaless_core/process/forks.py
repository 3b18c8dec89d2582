"""`unforked()`: work that must not be in flight while the process forks; a fork waits until it has ended.

SQLite keeps what a process has locked in that process's memory. A child that inherits a lock in use finds it held
for ever, and one that inherits open connections believes in locks that only its parent has.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

#: A fork waits so long for others' work; longer than the deadlines of calls.
PATIENCE_SECONDS = 10.0
#: Pause between two looks of a thread that waits for a fork, or of a fork that waits for threads.
LOOK_SECONDS = 0.0005

_at_rest: list[Callable[[], None]] = []


def when_at_rest(work: Callable[[], None]) -> Callable[[], None]:
    """Decorator: run this before every fork, once nothing is in flight."""
    _at_rest.append(work)
    return work


def unforked() -> Block:
    """Other threads fork before this block or after it. A fork inside of it, by its own thread, waits for no block."""
    return Block(_gate)


class Block:
    """One block of one thread. The gate forgets a block that an exception cut short, with its last reference."""

    __slots__ = ("__weakref__", "_gate")

    def __init__(self, gate: _Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._gate.enter(self)

    def __exit__(self, *_failure: object) -> None:
        self._gate.leave(self)


class _Gate:
    """Which blocks are entered, and which thread forks.

    A signal handler may raise between any two steps of the main thread. The lock is a plain one, which is taken and
    given back without a step in between. A `Condition` is not: its `__enter__` is Python, and an exception that
    arrives in it leaves the lock taken for ever. So a thread that waits looks again and again; forks are rare.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: WeakKeyDictionary[Block, int] = WeakKeyDictionary()
        self._forking: int | None = None

    def enter(self, block: Block) -> None:
        me = threading.get_ident()
        while True:
            with self._lock:
                if self._forking in (None, me) or me in self._inside.values():
                    self._inside[block] = me
                    return
            time.sleep(LOOK_SECONDS)  # no Condition: a signal handler would leave its lock taken

    def leave(self, block: Block) -> None:
        with self._lock:
            self._inside.pop(block, None)

    def close(self) -> None:
        """Let no other thread in, and wait for those inside."""
        me = threading.get_ident()
        while not self._is_taken_by(me):
            time.sleep(LOOK_SECONDS)  # no Condition: a signal handler would leave its lock taken
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up and self._holds_others(me):
            time.sleep(LOOK_SECONDS)  # no Condition: a signal handler would leave its lock taken

    def hold(self) -> None:
        """Keep the lock itself through the fork: what the child inherits is its own thread's."""
        self._lock.acquire()

    def open(self) -> None:
        self._forking = None
        self._lock.release()

    def _is_taken_by(self, me: int) -> bool:
        with self._lock:
            if self._forking is None:
                self._forking = me
            return self._forking == me

    def _holds_others(self, me: int) -> bool:
        with self._lock:
            return any(thread != me for thread in self._inside.values())


_gate = _Gate()


def _before() -> None:
    _gate.close()
    for work in _at_rest:
        work()
    _gate.hold()


def _in_parent() -> None:
    _gate.open()


def _in_child() -> None:
    global _gate
    _gate.open()  # the blocks that its own thread is in leave by it
    _gate = _Gate()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
