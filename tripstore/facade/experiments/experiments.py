"""`Experiments`: those of one process: their flags, which of their calls are compared, and how long both sides take.

A caller asks it for nothing that could wait or fail: flags are read by a thread of its own, twice a second.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence, Set

from schemaless_core.breaker import Breaker, BreakerConfig
from schemaless_core.control.ledgers.flushing import Flushing
from schemaless_core.control.ledgers.timings import Timed, TimingLedger
from schemaless_core.errors import SchemalessError
from tripstore import metrics
from tripstore.engines.validation.experiment.answers import QueryAnswer
from tripstore.engines.validation.experiment.bench import Bench
from tripstore.engines.validation.experiment.room import Room
from tripstore.engines.validation.experiment.trial import TrialSide, trial_of
from tripstore.engines.validation.reads import EXPERIMENT
from tripstore.engines.validation.verdicts import Reason
from tripstore.facade.experiments.flags import ExperimentBook, ExperimentFlags, FlagsOfAll
from tripstore.facade.experiments.roll import Roll
from tripstore.facade.known import Known, Sight
from tripstore.facade.latency import Asker
from tripstore.facade.shadowing import Shadowing
from tripstore.handover.authority import Backend

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
#: The first call of a process waits for the flags, no longer: without them the control answers.
FIRST_LOOK_SECONDS = 0.5
CONTROL, CANDIDATE = "control", "candidate"
#: The first word of what is timed.
TIMED = "experiment"
_CALLERS, _SHADOW = Asker.CALLERS.value, Asker.SHADOW.value
#: Calls that wait to be counted; a process that makes more between two looks counts the last of them.
HEARD_MAX = 100_000
#: Of one process. More are a mistake, a name that is put together of what a caller asks for: each would have a budget,
#: rows of ledgers and metrics of its own.
EXPERIMENTS_MAX = 1_000
#: Candidates in a row that fail while they answer callers; then the control does for a while.
FAILURES = BreakerConfig(failures=10)


class ExperimentState:
    """What this process knows of one experiment. The thread that looks replaces the flags."""

    def __init__(self, name: str, flags: ExperimentFlags, experiments: Experiments) -> None:
        self.name = name
        self.experiments = experiments
        #: Until the process forks or closes its store: then it is asked for anew.
        self.is_live = False
        self.operation = f"{EXPERIMENT}{name}"
        self.flags = flags
        self.breaker = Breaker(FAILURES)
        #: What was said of it once in this process's log.
        self.said: set[str] = set()
        #: Which side a caller was answered by, and after how long; None: it gave no answer. Counted by the thread that
        #: looks, since every call waits for this.
        self.heard: deque[tuple[str, float | None]] = deque(maxlen=HEARD_MAX)
        self._takes = experiments.takes_trial

    def is_taken(self) -> bool:
        """Whether this call is to be compared, by the budget of the shadow. Raises nothing."""
        try:
            return self.flags.is_compared and self._takes(self.operation)
        except Exception:
            # Here a fault of ours would reach a caller (I10).
            logger.exception("an experiment broke", extra={"event": "experiment.broken", "experiment": self.name})
            return False


class Experiments:
    """`shadowing`: None where there is one store; then nothing is compared, and flags still decide who answers."""

    def __init__(
        self,
        book: ExperimentBook,
        roll: Roll,
        timings: TimingLedger,
        bench: Bench,
        known: Known,
        shadowing: Shadowing | None,
        deadline_seconds: float,
        flushing: Sequence[Flushing] = (),
    ) -> None:
        self.bench = bench
        self.room = Room()
        self.deadline_seconds = deadline_seconds
        self._book = book
        self._roll = roll
        self._timings = timings
        self._known = known
        self._shadowing = shadowing
        self._flushing = flushing
        self._flags = FlagsOfAll()
        self._states: dict[str, ExperimentState] = {}
        #: Experiments of this process, called or not.
        self._declared: set[str] = set()
        self._has_too_many = False
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._has_looked = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_failing = False
        self._has_begun = False

    def begin(self) -> None:
        """The process makes calls of the store: what it has declared is told from now on."""
        self._has_begun = True
        if self._declared:
            self._start()

    def declare(self, *names: str) -> None:
        """There are these experiments in this process. Asks nothing, and waits for nothing."""
        for name in names:
            if name in self._declared or self._has_room(self._declared):
                self._declared.add(name)
        if self._has_begun and names:
            self._start()

    @property
    def declared(self) -> Set[str]:
        return self._declared

    def after_fork(self) -> None:
        """The thread is the parent's."""
        self._begin()
        self._roll.after_fork()
        self.bench.after_fork()
        self.room.after_fork()
        for flushing in self._flushing:
            flushing.after_fork()
        for state in self._states.values():
            state.breaker = Breaker(FAILURES)
            state.heard.clear()
            state.is_live = False

    def close(self) -> None:
        """Tell of those that no look has told of yet: a process may live for one call."""
        self._ended.set()
        for state in list(self._states.values()):
            state.is_live = False
        if self._thread is not None:
            self._thread.join()
            self.look()
            for flushing in self._flushing:
                flushing.close()

    @property
    def has_any(self) -> bool:
        """Whether this process asked one."""
        return bool(self._states)

    def state(self, name: str) -> ExperimentState | None:
        """Of this experiment; its first call begins what runs beside. None: there are too many."""
        known = self._states.get(name)
        if known is None:
            if not self._has_room(self._states):
                return None
            known = self._states.setdefault(name, ExperimentState(name, self._flags.of(name), self))
        if not self._ended.is_set():
            if not self._has_looked.is_set():
                self._start()
                self._has_looked.wait(FIRST_LOOK_SECONDS)
            known.is_live = True
        return known

    def _has_room(self, names: Collection[str]) -> bool:
        has_room = len(names) < EXPERIMENTS_MAX
        if not has_room and not self._has_too_many:
            self._has_too_many = True
            said = f"this process has more than {EXPERIMENTS_MAX:,} experiments, and the control answers in others"
            logger.error(said, extra={"event": "experiment.too_many"})
        return has_room

    def tried(self, state: ExperimentState, side: str, seconds: float | None) -> None:
        """A side was asked on a thread of ours; None: it gave no answer."""
        self._time((TIMED, state.name, side, _SHADOW), seconds)

    @property
    def takes_trial(self) -> Callable[[str], bool]:
        """Whether a call is to be compared, by its operation; none is where there is one store."""
        return _none if self._shadowing is None else self._shadowing.takes_trial

    @property
    def can_compare(self) -> bool:
        """Whether it is known what to go by, and candidates have not computed too much lately."""
        return self._known.sight is not None and not self.bench.is_busy

    def offer(
        self,
        state: ExperimentState,
        answer: QueryAnswer,
        control: TrialSide,
        candidate: TrialSide,
        *,
        is_of_candidate: bool,
        is_late: bool = False,
    ) -> None:
        """A call that was taken: what its caller got, and how either side is asked."""
        sight = self._known.sight
        assert sight is not None
        assert self._shadowing is not None
        trial = trial_of(state.name, sight.authority.epoch, is_lagging=_is_lagging(sight), is_late=is_late)
        if not self.room.takes(answer):
            self._shadowing.decline(trial, Reason.QUEUE_FULL)
            return
        self._shadowing.offer_trial(
            trial, answer, control.as_store(), candidate.as_store(), is_of_candidate=is_of_candidate
        )

    def decline(self, state: ExperimentState, reason: Reason) -> None:
        """A call that was taken, and cannot be compared (I12)."""
        sight = self._known.sight
        if sight is not None and self._shadowing is not None:
            self._shadowing.decline(trial_of(state.name, sight.authority.epoch), reason)

    def look(self) -> None:
        """Read the flags, and tell of the experiments. What cannot be seen stays as it was."""
        self._count()
        sight = self._known.sight
        if sight is not None and self._shadowing is not None:
            self._shadowing.learn(sight)
        try:
            self._learn(self._book.find())
            self._roll.tell({*self._states, *self._declared})
        except SchemalessError as error:
            if not self._is_failing:
                extra = {"event": "experiment.not_seen", "reason": error.message}
                logger.warning("a process goes by the experiments' flags that it knew", extra=extra)
            self._is_failing = True
        except Exception:
            # This thread brings answers back to the control: it must not end.
            logger.exception("a look failed", extra={"event": "facade.look_broken", "what": "experiments"})
        else:
            self._is_failing = False

    def _learn(self, flags: FlagsOfAll) -> None:
        if flags.version < self._flags.version:
            return
        self._flags = flags
        for name, state in list(self._states.items()):
            wanted = flags.of(name)
            if wanted != state.flags:
                state.flags = wanted
                self.bench.readmit(name)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._ended.is_set():
                for flushing in self._flushing:
                    flushing.start()
                self._thread = threading.Thread(target=self._keep_looking, name="experiments", daemon=True)
                self._thread.start()

    def _keep_looking(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._has_looked.set()
            self._ended.wait(LOOK_SECONDS)

    def _count(self) -> None:
        """What callers were answered since the last look."""
        for state in list(self._states.values()):
            for _ in range(len(state.heard)):
                side, seconds = state.heard.popleft()
                self._time((TIMED, state.name, side, _CALLERS), seconds)
                metrics.experiment_answered(state.name, side if seconds is not None else f"{side} failed")

    def _time(self, timed: Timed, seconds: float | None) -> None:
        if seconds is None:
            self._timings.count_unanswered(timed)
        else:
            self._timings.count(timed, seconds)


def _none(_operation: str) -> bool:
    return False


def _is_lagging(sight: Sight) -> bool:
    """Whether a rewrite, which asks the authority or in a cohort the mirror, may see what the tables show later."""
    return sight.authority.backend is Backend.STORE or sight.has_cohort
