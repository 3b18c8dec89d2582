"""`Shadow`: asks sampled reads of the other store and compares, on threads of its own.

Nothing that happens here reaches the caller (I10): handing over a read is a look at a budget and an append to a bounded
queue. What finds no room is counted as not compared (I12).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from schemaless_core.breaker import Breaker, BreakerConfig
from schemaless_core.calls.using import Using
from schemaless_core.failpoints import reach
from schemaless_core.habits import Habits
from schemaless_core.store import CellStore
from tripstore.engines.validation import metrics
from tripstore.engines.validation.compare import AnswerDifference, DifferenceClass, compare
from tripstore.engines.validation.ignores import Ignore, ignored_by
from tripstore.engines.validation.purged import PurgedAnswers
from tripstore.engines.validation.reads import Failed, Incomparable, Read
from tripstore.engines.validation.recheck import FirstLook, PendingCells, Recheck
from tripstore.engines.validation.shadow.docket import Docket
from tripstore.engines.validation.shadow.sampling import Sampler, SamplingSettings
from tripstore.engines.validation.verdicts import Outcome, Reason, Tally, Verdict, reason_of
from tripstore.engines.validation.waiting import Waiting

logger = logging.getLogger(__name__)

_UNANSWERED = frozenset({DifferenceClass.ERROR, DifferenceClass.TIMEOUT})
_SAID = {DifferenceClass.ERROR: "failed", DifferenceClass.TIMEOUT: "was not answered in time"}
#: Told of each question: which store was asked, how long that took, and whether it answered.
Answered = Callable[[Read, CellStore, float, bool], None]
#: How long closing lets what was offered have its verdict, and then how long it waits for what is under way.
JUDGE_SECONDS = 1.0
CLOSE_SECONDS = 1.0
#: Comparing is work that a service's process is not warm for: several at once take less time each. So samples wait for
#: each other, until there are so many or the first has waited for so long.
WORTH_A_ROUND = 8
GATHER_SECONDS = 0.25

#: Suspects that are heard at once. Each asks both stores a few times within a second: a late mirror is not helped by
#: questions, nor is the database that it is late for.
SUSPECTS_MAX = 64


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """How much is compared, and how much that may cost."""

    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    threads: int = 2
    #: Reads that may wait; more are not compared.
    queue_max: int = 1000
    #: What waited longer would compare different moments.
    age_seconds_max: float = 5.0
    #: For one question to the other store.
    deadline_seconds: float = 0.25
    breaker: BreakerConfig = field(default_factory=lambda: BreakerConfig(failures=10))
    ignores: Sequence[Ignore] = ()


class _Sample(NamedTuple):
    read: Read
    answer: Any
    authority: CellStore
    other: CellStore
    #: Whether the caller got it from the other store: then the authority is asked.
    is_of_other: bool
    at: float
    #: Of a suspect that is held to its first answer.
    first: FirstLook | None = None


class _Case(NamedTuple):
    """A suspect that is heard."""

    sample: _Sample
    hearing: Waiting[Verdict]


class Shadow:
    """The shadow reads of one process. Threads start with the first sample; a fork starts anew."""

    def __init__(
        self,
        settings: ShadowSettings,
        pending: PendingCells,
        tally: Tally,
        incomparable: Incomparable = (),
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], date] = lambda: datetime.now(UTC).date(),
        answered: Answered = lambda read, store, seconds, is_answered: None,
        purged: PurgedAnswers | None = None,
    ) -> None:
        self._settings = settings
        # Of what a configuration allows, no sample grows too old by waiting, and none finds the queue full for it.
        self._worth_a_round = min(WORTH_A_ROUND, settings.queue_max)
        self._gather_seconds = min(GATHER_SECONDS, settings.age_seconds_max / 4)
        self._answered = answered
        self._tally = tally
        self._incomparable = incomparable
        self._clock = clock
        self._today = today
        self.resample(settings.sampling)
        self._using = Using(Habits(deadline=settings.deadline_seconds))
        self._recheck = Recheck(pending, settings.deadline_seconds, incomparable, purged=purged)
        #: Nothing is taken any more; and then: nothing is asked any more.
        self._is_ending = False
        self._is_closing = False
        self._begin()

    def after_fork(self) -> None:
        """The parent's threads are the parent's, and so is what they have to do, and what they counted."""
        self._begin()
        self.resample(self._sampling)  # else all children of a process take the same reads
        self._tally.after_fork()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._closing = threading.Event()
        #: By what fails together: an experiment whose candidate fails keeps no read of the stores from its verdict.
        self._breakers: dict[str, Breaker] = {}
        self._samples: queue.Queue[_Sample | None] = queue.Queue(self._settings.queue_max)
        self._suspects: queue.Queue[_Sample | None] = queue.Queue(self._settings.queue_max)
        #: Suspects that are heard, by what tells them apart. The thread that hears one and a close that waits for it
        #: no longer both take it out; the one that does counts it.
        self._heard: dict[int, Read] = {}
        #: One thread waits for samples, the others for it.
        self._gathering = threading.Lock()
        self._is_worth_a_round = threading.Event()
        self._threads: list[threading.Thread] = []

    def takes(self, operation: str) -> bool:
        """Whether the facade is to hand over this read once it is answered."""
        return not self._is_ending and self._sampler.takes(operation)

    def resample(self, settings: SamplingSettings) -> None:
        """Take another share from now on."""
        self._sampling = settings
        self._sampler = Sampler(settings, self._clock)

    def offer(
        self, read: Read, answer: Any, authority: CellStore, other: CellStore, *, is_of_other: bool = False
    ) -> None:
        """A sampled read and the answer that its caller got, the authority's if nothing else is said.

        Returns at once, and raises nothing.
        """
        try:
            self._samples.put_nowait(_Sample(read, answer, authority, other, is_of_other, self._clock()))
        except queue.Full:
            self.decline(read, Reason.QUEUE_FULL)
            return
        if self._samples.qsize() >= self._worth_a_round - 1:  # the gathering thread holds one
            self._is_worth_a_round.set()
        if not self._threads:
            self._start()

    def decline(self, read: Read, reason: Reason) -> None:
        """Count a sampled read as not compared (I12)."""
        self._tally.record(_not_compared(read, reason))

    def drain(self, seconds: float) -> bool:
        """Wait until everything that was offered has a verdict; False: it took too long."""
        until = self._clock() + seconds
        while self._samples.unfinished_tasks or self._suspects.unfinished_tasks:
            if self._clock() >= until:
                return False
            self._is_worth_a_round.set()
            time.sleep(0.001)
        return True

    def finish(self) -> None:
        """Take nothing any more, and have what waits judged, for a while."""
        self._is_ending = True
        if self._threads:
            self.drain(JUDGE_SECONDS)

    def close(self) -> None:
        """Have what waits judged, and let go of what that takes too long for; it was not compared.

        A process that lives for a few reads would else leave more of them without a verdict than a gate bears.
        """
        self.finish()
        self._is_closing = True
        self._closing.set()
        self._is_worth_a_round.set()
        for _ in self._threads:  # each waiting thread takes one: all are told before any is waited for
            for waiting in (self._samples, self._suspects):
                with suppress(queue.Full):
                    waiting.put_nowait(None)
        until = self._clock() + CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - self._clock()))
        for waiting in (self._samples, self._suspects):
            with suppress(queue.Empty):
                while True:
                    sample = waiting.get_nowait()
                    if sample is not None:
                        self._tally.record(_not_compared(sample.read, Reason.CLOSED))
                    waiting.task_done()
        for number, read in list(self._heard.items()):  # its store has not answered yet
            self._at_rest(number, _not_compared(read, Reason.CLOSED))

    def _start(self) -> None:
        with self._lock:
            if self._threads or self._is_ending:
                return
            for n, work in enumerate([self._keep_comparing] * self._settings.threads + [self._keep_judging]):
                thread = threading.Thread(target=work, name=f"shadow-{n}", daemon=True)
                with suppress(RuntimeError):  # no more threads, or the interpreter ends: the queue fills
                    thread.start()
                    self._threads.append(thread)

    def _keep_comparing(self) -> None:
        while not self._is_closing:
            for sample in self._gathered():  # None only wakes up
                if sample is not None:
                    with self._counted(sample):
                        self._compare(sample)
                self._samples.task_done()
            self._tell_waiting()

    def _gathered(self) -> list[_Sample | None]:
        """What waits, when it is worth a round or has waited."""
        with self._gathering:
            if self._is_closing:
                return []
            found = [self._samples.get()]
            if self._samples.qsize() + 1 < self._worth_a_round:
                self._is_worth_a_round.wait(self._gather_seconds)
            self._is_worth_a_round.clear()
            with suppress(queue.Empty):
                while len(found) < self._worth_a_round:
                    found.append(self._samples.get_nowait())
            return found

    def _keep_judging(self) -> None:
        """Hear many suspects at once: each waits for the mirror most of the time."""
        docket = Docket[_Case](SUSPECTS_MAX, self._clock)
        while not self._is_closing:
            self._summon(docket)
            for case in docket.due():
                self._hear(case, docket)
            self._tell_waiting(len(docket))
        for case in docket.dismiss():
            self._at_rest(id(case.sample), _not_compared(case.sample.read, Reason.CLOSED))

    def _summon(self, docket: Docket[_Case]) -> None:
        """Take a suspect when there is one, or wait until a case is due."""
        seconds = docket.seconds_left
        if docket.is_full:
            self._closing.wait(seconds)
            return
        with suppress(queue.Empty):
            sample = self._suspects.get(timeout=seconds)
            if sample is None:
                self._suspects.task_done()
            else:
                self._heard[id(sample)] = sample.read
                docket.adjourn(_Case(sample, self._judge(sample)), 0.0)

    def _hear(self, case: _Case, docket: Docket[_Case]) -> None:
        """As far as its next pause, or to its verdict."""
        if self._is_closing:  # each question may take its whole deadline, and there may be many
            docket.adjourn(case, 0.0)
            return
        verdict = None
        with self._counted(case.sample):
            try:
                docket.adjourn(case, next(case.hearing))
                return
            except StopIteration as ended:
                verdict = ended.value
        self._at_rest(id(case.sample), verdict)

    def _at_rest(self, number: int, verdict: Verdict | None) -> None:
        """A suspect is heard no more, once; None: it is counted already."""
        if self._heard.pop(number, None) is not None:
            if verdict is not None:
                self._record(verdict)
            self._suspects.task_done()

    def _tell_waiting(self, heard: int = 0) -> None:
        metrics.shadow_waiting(self._samples.qsize() + self._suspects.qsize() + heard)

    @contextmanager
    def _counted(self, sample: _Sample) -> Iterator[None]:
        """What keeps a sample from its verdict is a bug of ours: it must not end the thread, and is counted."""
        try:
            yield
        except Exception:
            logger.exception("a shadow read failed", extra={"event": "shadow.broken", "read": sample.read.name})
            self._tally.record(_not_compared(sample.read, Reason.BROKEN))

    def _compare(self, sample: _Sample) -> None:
        """It has its verdict afterwards, or is suspect."""
        reach("shadow.compare")
        read = sample.read
        if self._is_closing:
            self._tally.record(_not_compared(read, Reason.CLOSED))
            return
        if self._clock() - sample.at > self._settings.age_seconds_max:
            self._tally.record(_not_compared(read, Reason.TOO_OLD))
            return
        breaker = self._breaker(read.circuit)
        if not breaker.admits():
            self._tally.record(_not_compared(read, Reason.BREAKER_OPEN))
            return
        begun = self._clock()
        asked = sample.authority if sample.is_of_other else sample.other
        given = read.ask(asked, self._using, self._incomparable, self._clock)
        seconds = self._clock() - begun
        metrics.shadow_answered(read.name, seconds)
        self._answered(read, asked, seconds, not isinstance(given, Failed) or given.is_incomparable or given.is_torn)
        if isinstance(given, Failed) and not given.is_torn and (given.is_incomparable or sample.is_of_other):
            self._tally.record(_not_compared(read, reason_of(given)))
            return
        differences = compare(read.operation, sample.answer, given)
        if differences and differences[0].kind in _UNANSWERED:
            breaker.failed()
            self._record(Verdict(read, Outcome.MISMATCH, differences))
            return
        breaker.succeeded()
        if not differences:
            self._tally.record(Verdict(read, Outcome.EQUAL))
            return
        if not (read.may_lag or sample.is_of_other):
            sample = sample._replace(first=FirstLook(sample.answer, differences))
        try:
            self._suspects.put_nowait(sample)
        except queue.Full:
            self._tally.record(_not_compared(read, Reason.QUEUE_FULL))

    def _breaker(self, circuit: str) -> Breaker:
        known = self._breakers.get(circuit)
        return known or self._breakers.setdefault(circuit, Breaker(self._settings.breaker, self._clock))

    def _judge(self, sample: _Sample) -> Waiting[Verdict]:
        reach("shadow.recheck")
        return (yield from self._recheck.hear(sample.read, sample.authority, sample.other, sample.first))

    def _record(self, verdict: Verdict) -> None:
        if verdict.outcome is Outcome.MISMATCH:
            rules = ignored_by(self._settings.ignores, verdict.read.name, verdict.differences, self._today())
            if rules is not None:
                self._tally.record(Verdict(verdict.read, Outcome.IGNORED, verdict.differences, ignored_by=rules))
                return
            self._log(verdict.read, verdict.differences)
        self._tally.record(verdict)

    def _log(self, read: Read, differences: Sequence[AnswerDifference]) -> None:
        """Without bodies: they may hold what no log should."""
        extra = {
            "event": "shadow.mismatch",
            "operation": read.name,
            "class": str(differences[0].kind),
            "entry": differences[0].entry,
            "path": differences[0].path,
        }
        logger.warning("a shadow read %s", _SAID.get(differences[0].kind, "differs"), extra=extra)


def _not_compared(read: Read, reason: Reason) -> Verdict:
    return Verdict(read, Outcome.NOT_COMPARED, reason=reason)
