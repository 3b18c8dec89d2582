"""`Experiment`: what `store.experiment` gives: an old query, the control, and its rewrite, the candidate.

The control answers the caller. Of some calls its answer is taken down, and the candidate is asked on another thread.
By its flag the candidate answers some callers, and the control is asked beside them; when the candidate fails there,
the control answers as if it had not been.
"""

from __future__ import annotations

import inspect
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from types import MethodType, TracebackType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

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

logger = logging.getLogger(__name__)

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


class QueryVersions(Protocol):
    """The two versions of a query. What only some calls need is asked for by those."""

    @property
    def control(self) -> Callable[..., Any]: ...

    def candidate_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> QueryCall | None:
        """How the candidate is asked what the control is asked with these; None: there is none."""

    def again_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> QueryCall | None:
        """The control for a thread of ours; None: as its caller calls it."""


class Experiment:
    """Under one name. A context for one call, or a decorator of the control."""

    def __init__(self, name: str, experiments: Callable[[], Experiments], options: ExperimentOptions) -> None:
        self.name = check_name(name)
        self._experiments = experiments
        self._options = options
        self._entered: ContextCall | None = None
        self._broken = {"event": "experiment.broken", "experiment": name}

    def __call__(self, control: Callable[P, R]) -> RewrittenQuery[P, R]:
        """Decorate the control."""
        return RewrittenQuery(self, control)

    def __enter__(self) -> ContextCall:
        if self._entered is not None:
            hint = "Write `with store.experiment(…) as trial` at each call, or decorate the control."
            raise InvalidRequest(f"Experiment {self.name} is inside a `with` already.", hint=hint)
        self._entered = ContextCall(self)
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
        try:
            experiments = self._experiments()
            state = experiments.state(self.name)
        except StoreClosed:
            return versions.control(*args, **kwargs)
        except Exception:
            logger.exception("an experiment broke", extra=self._broken)
            return versions.control(*args, **kwargs)
        if state.flags.percent:
            outcome = self._of_candidate(experiments, state, versions, args, kwargs)
            if outcome is not None:
                return outcome.value
        begun = time.perf_counter()
        try:
            value = versions.control(*args, **kwargs)
        except self._options.raises as error:
            state.heard.append((CONTROL, time.perf_counter() - begun))
            if experiments.takes(state):
                self._compare(experiments, state, versions, args, kwargs, raised(error))
            raise
        except BaseException:
            state.heard.append((CONTROL, None))
            raise
        state.heard.append((CONTROL, time.perf_counter() - begun))
        if experiments.takes(state):
            self._compare(experiments, state, versions, args, kwargs, value)
        return value

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
            if experiments.takes(state):
                self._compare(experiments, state, versions, args, kwargs, raised(error), is_of_candidate=True)
            raise
        except Exception as error:  # noqa: BLE001  # said below, and the control answers (I10)
            state.breaker.failed()
            state.heard.append((CANDIDATE, None))
            said = f"the candidate failed ({type(error).__name__}), and the control answers"
            self._log_once("experiment.fell_back", state, said)
            return None
        self._answered(state, begun)
        if experiments.takes(state):
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
        except Exception:
            logger.exception("an experiment broke", extra=self._broken)
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
            if candidate is None:
                return
            again = versions.again_of(args, kwargs)
            apart = without_sessions(candidate)
            if again is not None:
                again = without_sessions(again)
            elif is_shareable(control := QueryCall(versions.control, args, kwargs)):
                again = control
            self._offer(experiments, state, again, apart, value, is_of_candidate=is_of_candidate)
        except Exception:
            logger.exception("an experiment broke", extra=self._broken)

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

    def _log_once(self, event: str, state: ExperimentState, said: str) -> None:
        """In a process: a call is made a thousand times a second."""
        if event not in state.said:
            state.said.add(event)
            logger.warning(said, extra={"event": event, "experiment": self.name})


class _Outcome:
    """What the candidate answered, which may be None."""

    def __init__(self, value: Any) -> None:
        self.value = value


class ContextCall:
    """One call that is put together inside a `with`; it is made at its end."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._control: QueryCall | None = None
        self._candidate: QueryCall | None = None
        self._again: QueryCall | None = None
        self._answer: _Outcome | None = None

    def control(self, query: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """The old query, which answers."""
        self._control = QueryCall(query, args, kwargs)

    def candidate(self, query: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """The new one."""
        self._candidate = QueryCall(query, args, kwargs)

    def again(self, query: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """The old query with a session of its own, for the thread that compares."""
        self._again = QueryCall(query, args, kwargs)

    @property
    def answer(self) -> Any:
        """What the caller gets; there is one after the block."""
        if self._answer is None:
            hint = "Read `trial.answer` after the `with`, which asks at its end."
            raise InvalidRequest(f"Experiment {self._experiment.name} has not asked yet.", hint=hint)
        return self._answer.value

    def ask(self) -> None:
        """What the end of the block does."""
        control = self._control
        if control is None:
            hint = "Call `trial.control(query, …)` inside the `with`."
            raise InvalidRequest(f"Experiment {self._experiment.name} has no control.", hint=hint)
        versions = _GivenVersions(control.query, self._candidate, self._again)
        self._answer = _Outcome(self._experiment.answer(versions, control.args, control.kwargs))


@dataclass(frozen=True, slots=True)
class _GivenVersions:
    """Each with arguments of its own."""

    control: Callable[..., Any]
    candidate: QueryCall | None
    again: QueryCall | None

    def candidate_of(self, _args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> QueryCall | None:
        return self.candidate

    def again_of(self, _args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> QueryCall | None:
        return self.again


class RewrittenQuery(Generic[P, R]):
    """A decorated control: it is called as before. Without a candidate nothing is compared."""

    def __init__(self, experiment: Experiment, control: Callable[P, R]) -> None:
        self._experiment = experiment
        self.control = _checked(control)
        self._candidate: Callable[P, R] | None = None
        self._again: Callable[P, R] | None = None
        update_wrapper(self, control)

    def candidate(self, query: Callable[P, R]) -> Callable[P, R]:
        """Decorate the new query, which stays what it is."""
        self._candidate = _checked(query)
        return query

    def again(self, query: Callable[P, R]) -> Callable[P, R]:
        """Decorate the old query with a session of its own, for the thread that compares."""
        self._again = _checked(query)
        return query

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", self._experiment.answer(self, args, kwargs))

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        """As a method."""
        return self if owner is None else MethodType(self, owner)

    def candidate_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> QueryCall | None:
        return None if self._candidate is None else QueryCall(self._candidate, args, kwargs)

    def again_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> QueryCall | None:
        return None if self._again is None else QueryCall(self._again, args, kwargs)


def _checked(query: Callable[P, R]) -> Callable[P, R]:
    if inspect.iscoroutinefunction(query) or inspect.isasyncgenfunction(query):
        hint = "Experiment with the function that it awaits in a thread."
        raise InvalidRequest(f"{query.__qualname__} is a coroutine, and its answer is not there yet.", hint=hint)
    return query
