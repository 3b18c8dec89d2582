"""`Bench`: where queries under experiment run, each on a thread of its own and within limits; no caller waits for them.

What one process can bound, and how:
- what raises, whatever it raises, ends its own thread with that as its outcome;
- what hangs is given up at its deadline. Its thread stays, since no thread can be ended: so of one experiment at most
  one is ever tried again beside such a thread, and of all so many, however long they stay;
- what forks: its child ends where it comes back from the query, and never goes on as a thread of ours. Its experiment
  is halted: a child that its candidate does not wait for stays as long as this process;
- what computes: together they get a share of one core; while that is spent, nothing is tried;
- what grows the process halts its experiment. It cannot be stopped in the middle: a process has one memory.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from tripstore.engines.validation import metrics
from tripstore.engines.validation.experiment.answers import QueryAnswer
from tripstore.engines.validation.reads import Failed
from tripstore.engines.validation.shadow.sampling import Budget
from tripstore.engines.validation.verdicts import Reason

logger = logging.getLogger(__name__)

#: Threads that were given up and have not come back: of one experiment, and of all.
STUCK_OF_ONE, STUCK_MAX = 1, 4
#: By how much a process may grow while a query runs.
MEMORY_BYTES_MAX = 256 * 1024**2
#: Of one core, beyond a burst of a second.
CPU_SHARE = 0.1
_STATM = "/proc/self/statm"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

#: Which query this thread runs.
_HERE = threading.local()

Work = Callable[[], QueryAnswer | Failed]


class _Task:
    """One query that runs. `outcome` is there once `running` can be had."""

    def __init__(self, experiment: str, work: Work) -> None:
        self.experiment = experiment
        self.work = work
        self.running = threading.Lock()  # an event is one, and a condition around it
        self.running.acquire()
        self.is_over = False
        self.is_given_up = False
        self.has_forked = False
        self.outcome: QueryAnswer | Failed = Failed("Overdue", "not answered in time", is_late=True)


class Bench:
    """Of one process. `around`: what holds while a query runs, on its thread."""

    def __init__(
        self,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        cpu_share: float = CPU_SHARE,
        clock: Callable[[], float] = time.monotonic,
        computed: Callable[[], float] = time.thread_time,
    ) -> None:
        self._around = around
        self._memory_bytes_max = memory_bytes_max
        self._cpu_share = cpu_share
        self._clock = clock
        self._computed = computed
        self.after_fork()

    def after_fork(self) -> None:
        """Whatever is stuck is the parent's."""
        self._lock = threading.Lock()
        self._stuck = Counter[str]()
        self._halted: set[str] = set()
        self._computing = Budget(self._cpu_share, self._clock())

    @property
    def is_busy(self) -> bool:
        """Whether the share of a core is spent: then nothing is to be tried for a while."""
        return self._computing.is_spent(self._clock())

    def objection(self, experiment: str) -> Reason | None:
        """What speaks against trying this one."""
        if experiment in self._halted:
            return Reason.HALTED
        is_stuck = self._stuck[experiment] >= STUCK_OF_ONE or self._stuck.total() >= STUCK_MAX
        return Reason.STUCK if is_stuck else None

    def readmit(self, experiment: str) -> None:
        """Try one again that was halted."""
        self._halted.discard(experiment)

    def run(self, experiment: str, work: Work, seconds: float) -> QueryAnswer | Failed:
        """The outcome, after so long at most. Raises nothing."""
        objection = self.objection(experiment)
        if objection is not None:
            return Failed("NotTried", objection, is_incomparable=True, reason=objection)
        task = _Task(experiment, work)
        try:
            # A new one each time: whatever a query leaves in its thread, a session with a transaction, ends with it.
            threading.Thread(target=self._do, args=(task,), name=f"experiment {experiment}", daemon=True).start()
        except RuntimeError as error:  # there are no more threads
            return Failed("NotTried", str(error), is_incomparable=True)
        if not task.running.acquire(timeout=seconds):
            self._give_up(task)
        return task.outcome

    def _do(self, task: _Task) -> None:
        pid, bytes_before, computed_before = os.getpid(), _resident(), self._computed()
        _HERE.task = task
        try:
            with self._around():
                outcome = task.work()
        except BaseException as error:  # noqa: BLE001  # SystemExit, too, is the candidate's, and not this process's
            outcome = Failed(type(error).__name__, _said(error))
        finally:
            if os.getpid() != pid:
                os._exit(0)  # the candidate has forked, and this is the child
        grown = _resident() - bytes_before
        self._computing.charge(self._clock(), self._computed() - computed_before)
        if task.has_forked:
            self._halt(task.experiment, "it forks", grown)
        elif grown > self._memory_bytes_max:
            self._halt(task.experiment, "this process grew too much while it ran", grown)
        with self._lock:
            if not task.is_given_up:
                task.outcome = outcome
            else:
                self._stuck[task.experiment] -= 1
                metrics.experiments_stuck(self._stuck.total())
            task.is_over = True
        task.running.release()

    def _give_up(self, task: _Task) -> None:
        with self._lock:
            if task.is_over:
                return
            task.is_given_up = True
            self._stuck[task.experiment] += 1
            metrics.experiments_stuck(self._stuck.total())
        extra = {"event": "experiment.stuck", "experiment": task.experiment}
        logger.warning("a query under experiment is over its time and is given up", extra=extra)

    def _halt(self, experiment: str, why: str, grown: int) -> None:
        self._halted.add(experiment)
        extra = {"event": "experiment.halted", "experiment": experiment, "bytes": grown, "why": why}
        logger.error("a query under experiment is tried no more", extra=extra)


def _note_fork() -> None:
    task = getattr(_HERE, "task", None)
    if task is not None:
        task.has_forked = True


os.register_at_fork(after_in_parent=_note_fork)


def _resident() -> int:
    """Of this process's memory, what is in use; 0 where no file says so."""
    try:
        with open(_STATM, "rb", buffering=0) as file:
            return int(file.read(100).split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  # the candidate's own class, and its own fault
        return ""
