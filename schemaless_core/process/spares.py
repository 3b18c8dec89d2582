"""`Spares`: processes that were forked before this one connected to anything, and wait for work.

A process that is spawned loads the library first, which takes as long as thousands of cells; a forked one has it. A
fork inherits connections, locks and threads in the middle of something. So it is done while there is one thread and no
connection, before it is known whether there will be work. Where that cannot be, there are no spares.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from schemaless_core.process.child import Work, held_signals, sit

_FORK = multiprocessing.get_context("fork")


class Spares:
    """Those of one command. One that gets no work ends with the block, or with this process."""

    def __init__(self) -> None:
        self._waiting: list[tuple[ForkProcess, Connection]] = []
        #: Each breaks with this process. Those at work hold the other end, too.
        self._pipes: list[Connection] = []

    @classmethod
    @contextmanager
    def forked(cls, count: int) -> Iterator[Spares]:
        """So many, if this process may fork now. Call it before anything connects."""
        spares = cls()
        try:
            if sys.platform == "linux" and threading.active_count() == 1:
                for _ in range(count):
                    spares._fork()
            yield spares
        finally:
            spares._end()

    @property
    def pids(self) -> list[int]:
        """Of those that wait, the next to be taken last."""
        return [process.pid for process, _pipe in self._waiting if process.pid is not None]

    def take(self, work: Work, number: int) -> ForkProcess | None:
        """A process that does this work from now on; None: there is no spare any more."""
        while self._waiting:
            process, pipe = self._waiting.pop()
            try:
                pipe.send((work, number))
            except BrokenPipeError:
                process.join()  # it was killed while it waited
                continue
            return process
        return None

    def _fork(self) -> None:
        reader, writer = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_wait_for_work, args=(reader, [*self._pipes, writer]), name="spare")
        with held_signals():
            process.start()
        reader.close()
        self._waiting.append((process, writer))
        self._pipes.append(writer)

    def _end(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process, _pipe in self._waiting:
            process.join()


def _wait_for_work(reader: Connection, others: Sequence[Connection]) -> None:
    """A spare's life. It holds no pipe open but its own: each breaks when the parent is gone, other spares or not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for each in others:
        each.close()
    try:
        work, number = reader.recv()
    except EOFError:
        return
    sit(work, number, reader)
