"""`Fleet`: several processes that do the same work, started again when they die, stopped together.

What the work is, the fleet does not know. No child outlives its parent by much: it holds the other end of a pipe, which
breaks even when the parent is killed with -9, and then ends as if it had been asked to. The first SIGTERM or SIGINT
lets everybody finish; the second ends everybody at once, which is safe, as kill -9 is.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

from schemaless_core.triggers.seat import SIGNALS, Seat, heard_signals

logger = logging.getLogger(__name__)

#: Forked processes would inherit connections, locks and threads in the middle of something.
_SPAWN = multiprocessing.get_context("spawn")

#: How long work may take to end before its process is killed; more than what a worker grants its functions.
FINISH_SECONDS = 45.0
#: How a single process ends at the second signal: interrupted, and resumable.
EXIT_AT_ONCE = 5

Work = Callable[[Seat], None]


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long to wait before a process that died is started again."""

    first_seconds: float = 1.0
    most_seconds: float = 30.0
    settled_seconds: float = 60.0  #: One that lived so long had another reason to die: the pauses begin anew.

    def after(self, previous_seconds: float, lived_seconds: float) -> float:
        """How long to wait now; `previous_seconds` is 0 before the first death."""
        if not previous_seconds or lived_seconds >= self.settled_seconds:
            return self.first_seconds
        return min(2 * previous_seconds, self.most_seconds)


class Fleet:
    """The processes of one command. `work` returns when its seat is to end; with several workers it is pickled.

    Finite work comes to an end by itself: a process that ended is started again only if it was killed.
    """

    def __init__(
        self,
        work: Work,
        workers: int,
        *,
        is_finite: bool = False,
        pauses: Pauses = Pauses(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.restarts = 0
        #: Processes of finite work that ended with another exit code than 0.
        self.failed = 0
        self._is_finite = is_finite
        self._work = work
        self._posts = [_Post(number) for number in range(workers)]
        self._pauses = pauses
        self._clock = clock
        self._woken, self._wake = multiprocessing.Pipe(duplex=False)
        self._end_by: float | None = None
        self._is_at_once = False

    def run(self) -> bool:
        """Work until a signal asks to end; whether everybody ended in time. A single worker works in this process."""
        if len(self._posts) == 1:
            seat = Seat(0)
            with heard_signals(seat.end, leave_at_once):
                self._work(seat)
            return True
        with heard_signals(self._end, self._end_at_once):
            try:
                return self._supervise()
            finally:
                for post in self._posts:
                    post.kill()

    def _supervise(self) -> bool:
        while True:
            if all(post.is_finished for post in self._posts):
                return not self._is_at_once
            if self._end_by is None:
                self._start_due()
            elif not self._is_anybody_left():
                return not self._is_at_once
            self._sleep()
            for post in self._posts:
                if post.is_dead():
                    self._note_death(post)

    def _is_anybody_left(self) -> bool:
        """Ask those that run to end, those that take too long more firmly; whether some still run."""
        running = [post for post in self._posts if post.process is not None]
        if self._end_by is not None and self._clock() >= self._end_by:
            self._is_at_once = True
        for post in running:
            post.kill() if self._is_at_once else post.ask()
        return any(post.process is not None for post in running)

    def _start_due(self) -> None:
        for post in self._posts:
            if post.process is None and not post.is_finished and post.not_before <= self._clock():
                post.start(self._work, self._clock())

    def _sleep(self) -> None:
        """Until a process dies, a signal comes, or something is due."""
        due = [post.not_before for post in self._posts if post.process is None and not post.is_finished]
        if self._end_by is not None:
            due = [self._end_by]
        seconds = max(0.0, min(due) - self._clock()) if due else None
        sentinels = [post.process.sentinel for post in self._posts if post.process is not None]
        if self._woken in wait([self._woken, *sentinels], seconds):
            self._woken.recv_bytes()

    def _note_death(self, post: _Post) -> None:
        code, lived_seconds = post.bury(self._clock())
        if self._is_finite and code is not None and code >= 0:
            post.is_finished = True
            self.failed += code != 0
            return
        if self._end_by is not None:
            return
        post.pause_seconds = self._pauses.after(post.pause_seconds, lived_seconds)
        post.not_before = self._clock() + post.pause_seconds
        self.restarts += 1
        extra = {
            "event": "fleet.process_died",
            "number": post.number,
            "exit_code": code,
            "again_in": post.pause_seconds,
        }
        logger.warning("a worker process died and is started again", extra=extra)

    # Called by the thread that hears signals.

    def _end(self) -> None:
        self._end_by = self._clock() + FINISH_SECONDS
        self._wake.send_bytes(b"end")

    def _end_at_once(self) -> None:
        self._is_at_once = True
        self._wake.send_bytes(b"at once")


class _Post:
    """One process of the fleet, or the pause before it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SpawnProcess | None = None
        self.is_finished = False
        self.not_before = float("-inf")
        self.pause_seconds = 0.0
        self._started_at = 0.0
        self._is_asked = False

    def start(self, work: Work, now: float) -> None:
        process = _SPAWN.Process(target=_sit, args=(work, self.number), name=f"worker-{self.number}")
        # Left to `start`, it would be the one to let the signals through again.
        resource_tracker.ensure_running()
        with _held_signals():
            process.start()
        self.process, self._started_at = process, now

    def ask(self) -> None:
        if self.process is not None and not self._is_asked:
            self.process.terminate()
            self._is_asked = True

    def is_dead(self) -> bool:
        return self.process is not None and not self.process.is_alive()

    def bury(self, now: float) -> tuple[int | None, float]:
        """Forget a process that ended; its exit code and how long it lived."""
        assert self.process is not None
        self.process.join()
        code, self.process = self.process.exitcode, None
        return code, now - self._started_at

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


@contextmanager
def _held_signals() -> Iterator[None]:
    """Signals wait: a child that is being born is to meet them when it knows what they mean."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _sit(work: Work, number: int) -> None:
    """A child's life. Ctrl-C reaches it too, but it is the parent who decides."""
    seat = Seat(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with heard_signals(seat.end, seat.end, [signal.SIGTERM]):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=_end_with_parent, args=(seat,), name="parent", daemon=True).start()
        work(seat)


def _end_with_parent(seat: Seat) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # we were spawned
    parent.join()
    logger.warning("the parent process died: ending", extra={"event": "fleet.parent_died", "worker": seat.name})
    seat.end()
    time.sleep(FINISH_SECONDS)
    os._exit(1)  # a function that never returns would keep an orphan for ever


def leave_at_once() -> None:
    """For whoever asks again: nothing is finished, and leases end by themselves."""
    os._exit(EXIT_AT_ONCE)
