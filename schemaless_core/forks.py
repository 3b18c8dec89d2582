"""`unforked()`: work that must not be in flight while the process forks; a fork waits until it has ended.

SQLite keeps what a process has locked in that process's memory. A child that inherits a lock in use finds it held
for ever, and one that inherits open connections believes in locks that only its parent has.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: A fork waits so long for others' work; longer than the deadlines of calls.
PATIENCE_SECONDS = 10.0

_at_rest: list[Callable[[], None]] = []


def when_at_rest(work: Callable[[], None]) -> Callable[[], None]:
    """Decorator: run this before every fork, once nothing is in flight."""
    _at_rest.append(work)
    return work


@contextmanager
def unforked() -> Iterator[None]:
    """Other threads fork before this block or after it. A fork inside of it, by its own thread, waits for nobody."""
    gate = _gate
    gate.enter()
    try:
        yield
    finally:
        gate.leave()


class _Gate:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        self._forking: int | None = None

    def enter(self) -> None:
        me = threading.get_ident()
        with self._changed:
            if me not in self._inside:
                self._changed.wait_for(lambda: self._forking in (None, me))
            self._inside[me] += 1

    def leave(self) -> None:
        me = threading.get_ident()
        with self._changed:
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
                self._changed.notify_all()

    def close(self) -> None:
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: self._forking is None)
            self._forking = me
            self._changed.wait_for(lambda: not self._inside.keys() - {me}, PATIENCE_SECONDS)

    def open(self) -> None:
        with self._changed:
            self._forking = None
            self._changed.notify_all()


_gate = _Gate()


def _before() -> None:
    _gate.close()
    for work in _at_rest:
        work()


def _in_parent() -> None:
    _gate.open()


def _in_child() -> None:
    global _gate
    _gate = _Gate()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
