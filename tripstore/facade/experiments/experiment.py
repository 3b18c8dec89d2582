"""`Experiment`: what `store.experiment` gives: an old query, the control, and its rewrite, the candidate.

The control answers the caller. Of some calls its answer is taken down, and the candidate is asked on another thread.
By its flag the candidate answers some callers, and the control is asked beside them; when the candidate fails there,
the control answers as if it had not been.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from schemaless_core.errors import InvalidRequest, StoreClosed
from tripstore.engines.validation.experiment.answers import QueryAnswer, answer_of, raised
from tripstore.engines.validation.experiment.plain import NoValue
from tripstore.engines.validation.experiment.trial import TrialSide
from tripstore.engines.validation.reads import Failed
from tripstore.engines.validation.verdicts import Reason
from tripstore.facade.cohorts import is_in_cohort
from tripstore.facade.experiments.experiments import CANDIDATE, CONTROL, Experiments, ExperimentState
from tripstore.facade.experiments.flags import check_name
from tripstore.facade.experiments.sessions import QueryCall, is_shareable, without_sessions
from tripstore.facade.experiments.versions import ContextCall, QueryVersions, RewrittenQuery

logger = logging.getLogger(__name__)

#: Experiments of this process of which that was said.
_BROKEN: set[str] = set()

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """How answers are compared, and whose callers are alike."""

    #: Who asks: the same key gets the same side in every process. A function is asked with the control's arguments.
    key: Any = None
    #: Makes of an answer what is compared: lists, dicts and plain values.
    normalise: Callable[[Any], Any] | None = None
    is_ordered: bool = True
    #: Exceptions that are answers: that there is no such trip, say.
    raises: tuple[type[Exception], ...] = ()
    #: For one question on a thread of ours; None: that of shadow reads.
    deadline: float | None = None


class Experiment:
    """Under one name. A context for one call, or a decorator of the control."""

    def __init__(self, name: str, experiments: Callable[[], Experiments], options: ExperimentOptions) -> None:
        self.name = check_name(name)
        self._experiments = experiments
        self._options = options
        self._entered: ContextCall | None = None
        self._state: ExperimentState | None = None

    def __call__(self, control: Callable[P, R]) -> RewrittenQuery[P, R]:
        """Decorate the control."""
        return RewrittenQuery(self.answer, control)

    def __enter__(self) -> ContextCall:
        if self._entered is not None:
            hint = "Write `with store.experiment(…) as trial` at each call, or decorate the control."
            raise InvalidRequest(f"Experiment {self.name} is inside a `with` already.", hint=hint)
        self._entered = ContextCall(self.name, self.answer)
        return self._entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ask, unless the block failed."""
        entered, self._entered = self._entered, None
        if kind is None and entered is not None:
            entered.ask()

    def answer(self, versions: QueryVersions, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What the caller gets; raises what the control raises. Every call goes this way, so it is one function."""
        state = self._state
        if state is None or not state.is_live:
            state = self._opened()
            if state is None:
                return versions.control(*args, **kwargs)
        experiments = state.experiments
        if state.flags.percent:
            outcome = self._of_candidate(experiments, state, versions, args, kwargs)
            if outcome is not None:
                return outcome.value
        begun = time.perf_counter()
        try:
            value = versions.control(*args, **kwargs)
        except self._options.raises as error:
            state.heard.append((CONTROL, time.perf_counter() - begun))
            if state.is_taken():
                self._compare(experiments, state, versions, args, kwargs, raised(error))
            raise
        except BaseException:
            state.heard.append((CONTROL, None))
            raise
        state.heard.append((CONTROL, time.perf_counter() - begun))
        if state.is_taken():
            self._compare(experiments, state, versions, args, kwargs, value)
        return value

    def _opened(self) -> ExperimentState | None:
        """Of this process and store; None: the store is closed, and nothing is compared any more."""
        try:
            self._state = self._experiments().state(self.name)
        except StoreClosed:
            self._state = None
        except Exception:  # noqa: BLE001  # said, and never the caller's (I10)
            self._log_broken()
            self._state = None
        return self._state

    def _of_candidate(
        self,
        experiments: Experiments,
        state: ExperimentState,
        versions: QueryVersions,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> _Outcome | None:
        """None: it is not to answer this caller, or failed, and the control does."""
        candidate = self._turned_over(state, versions, args, kwargs)
        if candidate is None:
            return None
        begun = time.perf_counter()
        try:
            value = candidate()
        except self._options.raises as error:
            self._answered(state, begun)
            if state.is_taken():
                self._compare(experiments, state, versions, args, kwargs, raised(error), is_of_candidate=True)
            raise
        except Exception as error:  # noqa: BLE001  # said below, and the control answers (I10)
            state.breaker.failed()
            state.heard.append((CANDIDATE, None))
            said = f"the candidate failed ({type(error).__name__}), and the control answers"
            self._log_once("experiment.fell_back", state, said)
            return None
        self._answered(state, begun)
        if state.is_taken():
            self._compare(experiments, state, versions, args, kwargs, value, is_of_candidate=True)
        return _Outcome(value)

    def _turned_over(
        self, state: ExperimentState, versions: QueryVersions, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> QueryCall | None:
        """The candidate, if it is to answer this caller."""
        percent, key = state.flags.percent, self._options.key
        try:
            if callable(key):
                key = key(*args, **kwargs)
            is_taken = random.random() * 100 < percent if key is None else is_in_cohort(str(key), percent)
            return versions.candidate_of(args, kwargs) if is_taken and state.breaker.admits() else None
        except Exception:  # noqa: BLE001  # ours, or of a `key` or `normalise`: said, and never the caller's (I10)
            self._log_broken()
            return None

    @staticmethod
    def _answered(state: ExperimentState, begun: float) -> None:
        state.breaker.succeeded()
        state.heard.append((CANDIDATE, time.perf_counter() - begun))

    def _compare(
        self,
        experiments: Experiments,
        state: ExperimentState,
        versions: QueryVersions,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        value: Any,
        *,
        is_of_candidate: bool = False,
    ) -> None:
        """Hand a call that was taken to the shadow. Raises nothing (I10)."""
        try:
            candidate = versions.candidate_of(args, kwargs)
            if candidate is None or not experiments.can_compare:
                return
            again = versions.again_of(args, kwargs)
            apart = without_sessions(candidate)
            if again is not None:
                again = without_sessions(again)
            elif is_shareable(control := QueryCall(versions.control, args, kwargs)):
                again = control
            self._offer(experiments, state, again, apart, value, is_of_candidate=is_of_candidate)
        except Exception:  # noqa: BLE001  # ours, or of a `key` or `normalise`: said, and never the caller's (I10)
            self._log_broken()

    def _offer(
        self,
        experiments: Experiments,
        state: ExperimentState,
        again: QueryCall | None,
        apart: QueryCall | None,
        value: Any,
        *,
        is_of_candidate: bool,
    ) -> None:
        """As threads of ours ask the control, and the candidate; None: it has no session but its caller's."""
        if apart is None or again is None:
            holder = "candidate" if apart is None else "control"
            said = f"the {holder} holds a session of its caller's: give `again`, or let it open its own"
            self._log_once("experiment.session", state, said)
            experiments.decline(state, Reason.SESSION)
            return
        objection = experiments.bench.objection(self.name)
        if objection is not None:
            experiments.decline(state, objection)
            return
        try:  # here and now: the caller may change what it got
            answer = self._taken_down(value)
        except NoValue as error:
            self._log_once("experiment.incomparable", state, f"{error.message} {error.hint}")
            experiments.decline(state, Reason.INCOMPARABLE)
            return
        sides = self._side(experiments, state, CONTROL, again), self._side(experiments, state, CANDIDATE, apart)
        experiments.offer(state, answer, *sides, is_of_candidate=is_of_candidate)

    def _side(self, experiments: Experiments, state: ExperimentState, side: str, query: QueryCall) -> TrialSide:
        seconds = self._options.deadline or experiments.deadline_seconds

        def work() -> QueryAnswer | Failed:
            seconds: float | None = None
            begun = time.perf_counter()
            try:
                value = query()
                seconds = time.perf_counter() - begun
                return self._taken_down(value)
            except self._options.raises as error:
                seconds = time.perf_counter() - begun
                return raised(error)
            except NoValue as error:
                self._log_once("experiment.incomparable", state, f"{error.message} {error.hint}")
                return Failed("NoValue", error.message, is_incomparable=True)
            except StoreClosed as error:  # the process ends: that is no answer of the query
                return Failed("StoreClosed", error.message, is_incomparable=True, reason=Reason.CLOSED)
            finally:
                experiments.tried(state, side, seconds)

        return TrialSide(lambda: experiments.bench.run(self.name, work, seconds))

    def _taken_down(self, value: Any) -> QueryAnswer:
        if isinstance(value, QueryAnswer):
            return value
        normalise = self._options.normalise
        wanted = value if normalise is None else normalise(value)
        return answer_of(wanted, is_ordered=self._options.is_ordered)

    def _log_broken(self) -> None:
        """The first time in a process, with where it was."""
        if self.name not in _BROKEN:
            _BROKEN.add(self.name)
            logger.exception("an experiment broke", extra={"event": "experiment.broken", "experiment": self.name})

    def _log_once(self, event: str, state: ExperimentState, said: str) -> None:
        """In a process: a call is made a thousand times a second."""
        if event not in state.said:
            state.said.add(event)
            logger.warning(said, extra={"event": event, "experiment": self.name})


class _Outcome:
    """What the candidate answered, which may be None."""

    def __init__(self, value: Any) -> None:
        self.value = value
