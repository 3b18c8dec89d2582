"""`Fleet`: several processes that do the same work, started again when they die, stopped together.

What the work is, the fleet does not know. No child outlives its parent by much: it holds the other end of a pipe, which
breaks even when the parent is killed with -9, and then ends as if it had been asked to. The first SIGTERM or SIGINT
lets all children finish; the second ends them at once, which is safe, as kill -9 is. The parent may do a share of
the work itself.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess, SpawnProcess

from schemaless_core.process.child import FINISH_SECONDS, Work, held_signals, sit
from schemaless_core.process.seat import Seat, heard_signals
from schemaless_core.process.share import Share
from schemaless_core.process.spares import Spares

logger = logging.getLogger(__name__)

#: Forked here, processes would inherit connections, locks and threads in the middle of something.
_SPAWN = multiprocessing.get_context("spawn")

#: How a process with work of its own ends at the second signal: interrupted, and resumable.
EXIT_AT_ONCE = 5


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

    `here` is what this process does of it itself, beside the workers. `leave` ends a process with work of its own at
    the second signal.
    """

    def __init__(
        self,
        work: Work,
        workers: int,
        *,
        is_finite: bool = False,
        here: Work | None = None,
        spares: Spares | None = None,
        leave: Callable[[], None] | None = None,
        pauses: Pauses = Pauses(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.restarts = 0
        #: Processes of finite work that ended with another exit code than 0.
        self.failed = 0
        self._is_finite = is_finite
        self._work = work
        self._here = here
        self._share: Share | None = None
        self._spares = spares
        self._leave = leave or leave_at_once
        self._posts = [_Post(number) for number in range(workers)]
        self._pauses = pauses
        self._clock = clock
        self._woken, self._wake = multiprocessing.Pipe(duplex=False)
        self._end_by: float | None = None
        self._is_at_once = False
        self._is_left = False

    def run(self) -> bool:
        """Work until a signal asks to end; whether all children ended in time. A lone worker works in this process."""
        alone = self._work if self._here is None else self._here
        if len(self._posts) + (self._here is not None) == 1:
            seat = Seat(0)
            with heard_signals(seat.end, self._leave):
                alone(seat)
            return True
        with heard_signals(self._end, self._end_at_once):
            try:
                if self._here is not None:
                    self._share = Share(self._here, len(self._posts), lambda: self._wake.send_bytes(b"share"))
                    if self._end_by is not None:  # the signal came when there was no share to tell yet
                        self._share.seat.end()
                return self._supervise()
            finally:
                for post in self._posts:
                    post.kill()

    def _supervise(self) -> bool:
        while True:
            is_shared = self._share is not None and not self._share.is_over
            if all(post.is_finished for post in self._posts) and not is_shared:
                return self._ended()
            if self._end_by is None:
                self._start_due()
            elif not self._is_anybody_left():
                if not is_shared:
                    return self._ended()
                if self._is_left:
                    self._leave()
            self._sleep()
            for post in self._posts:
                if post.is_dead():
                    self._note_death(post)

    def _ended(self) -> bool:
        self.failed += self._share is not None and self._share.has_failed
        return not self._is_at_once

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
                post.start(self._work, self._spares, self._clock())

    def _sleep(self) -> None:
        """Until a process dies, a signal comes, or something is due."""
        due = [post.not_before for post in self._posts if post.process is None and not post.is_finished]
        if self._end_by is not None:
            due = [] if self._is_at_once else [self._end_by]
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
        if self._share is not None:
            self._share.seat.end()
        self._wake.send_bytes(b"end")

    def _end_at_once(self) -> None:
        self._is_at_once = self._is_left = True
        self._wake.send_bytes(b"at once")


class _Post:
    """One process of the fleet, or the pause before it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SpawnProcess | ForkProcess | None = None
        self.is_finished = False
        self.not_before = float("-inf")
        self.pause_seconds = 0.0
        self._started_at = 0.0
        self._is_asked = False

    def start(self, work: Work, spares: Spares | None, now: float) -> None:
        spare = None if spares is None else spares.take(work, self.number)
        self.process, self._started_at = spare or self._spawn(work), now

    def _spawn(self, work: Work) -> SpawnProcess:
        process = _SPAWN.Process(target=_spawned, args=(work, self.number), name=f"worker-{self.number}")
        # Left to `start`, it would be the one to let the signals through again.
        resource_tracker.ensure_running()
        with held_signals():
            process.start()
        return process

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


def _spawned(work: Work, number: int) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # we were spawned
    sit(work, number, parent.sentinel)


def leave_at_once() -> None:
    """End on a second signal: nothing is finished, and leases end by themselves."""
    os._exit(EXIT_AT_ONCE)
