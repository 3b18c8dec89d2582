"""`Experiment`: what `store.experiment` gives: an old query, the control, and its rewrite, the candidate.

The control answers the caller. Of some calls its answer is taken down, and the candidate is asked on another thread.
By its flag the candidate answers some callers, and the control is asked beside them; when the candidate fails there,
the control answers as if it had not been.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from schemaless_core.errors import InvalidRequest, StoreClosed
from tripstore.engines.validation.experiment.answers import QueryAnswer, answer_of, raised
from tripstore.engines.validation.experiment.plain import NoValue
from tripstore.engines.validation.experiment.trial import TrialSide
from tripstore.engines.validation.reads import Failed
from tripstore.engines.validation.verdicts import Reason
from tripstore.facade.cohorts import is_in_cohort
from tripstore.facade.experiments.apart import QueryCall, SessionHeld, apart, check_lasting
from tripstore.facade.experiments.contained import is_contained
from tripstore.facade.experiments.experiments import CANDIDATE, CONTROL, Experiments, ExperimentState
from tripstore.facade.experiments.flags import check_name
from tripstore.facade.experiments.leftovers import listen
from tripstore.facade.experiments.options import ExperimentOptions, key_text
from tripstore.facade.experiments.sides import ExperimentSides, sides_of
from tripstore.facade.experiments.versions import ContextCall, QueryVersions, RewrittenQuery

logger = logging.getLogger(__name__)

#: Experiments of this process of which that was said.
_BROKEN: set[str] = set()

P = ParamSpec("P")
R = TypeVar("R")

listen()  # here: only what makes an experiment imports this


class Experiment:
    """Under one name. A context for one call, or a decorator of the control."""

    def __init__(
        self,
        name: str,
        experiments: Callable[[], Experiments],
        options: ExperimentOptions,
        declare: Callable[[str], object] = lambda name: None,
    ) -> None:
        """`declare`: tells the experiments of this process of one that may never be called; it asks no server."""
        self.name = check_name(name)
        self._experiments = experiments
        self._options = options
        self._declare = declare
        #: By the thread: one experiment may be the `with` of many callers at once.
        self._entered: dict[int, ContextCall] = {}
        self._state: ExperimentState | None = None

    def __call__(self, control: Callable[P, R]) -> RewrittenQuery[P, R]:
        """Decorate the control. From then on it is known that there is this experiment, called or not (I12)."""
        query = RewrittenQuery(self.answer, control)
        self._declare(self.name)
        return query

    def __enter__(self) -> ContextCall:
        here = threading.get_ident()
        if here in self._entered:
            hint = "Write `with store.experiment(…) as trial` at each call, or decorate the control."
            raise InvalidRequest(f"Experiment {self.name} is inside a `with` already.", hint=hint)
        entered = self._entered[here] = ContextCall(self.name, self.answer)
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ask, unless the block failed."""
        entered = self._entered.pop(threading.get_ident(), None)
        if kind is None and entered is not None:
            entered.ask()

    def answer(self, versions: QueryVersions, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What the caller gets; raises what the control raises. Every call goes this way, so it is one function."""
        state = self._state
        if state is None or not state.is_live:
            state = self._opened()
            if state is None:
                return versions.control(*args, **kwargs)
        sides = self._sides(state, versions, args, kwargs) if state.is_taken() else None
        if state.flags.percent:
            outcome = self._of_candidate(state, versions, args, kwargs, sides)
            if outcome is not None:
                return outcome.value
        begun = time.perf_counter()
        try:
            value = versions.control(*args, **kwargs)
        except self._options.raises as error:
            state.heard.append((CONTROL, time.perf_counter() - begun))
            if sides is not None:
                self._compare(state, sides, raised(error))
            raise
        except BaseException:
            state.heard.append((CONTROL, None))
            if sides is not None:
                self._decline(state, Reason.AUTHORITY_FAILED)
            raise
        state.heard.append((CONTROL, time.perf_counter() - begun))
        if sides is not None:
            self._compare(state, sides, value)
        return value

    def _opened(self) -> ExperimentState | None:
        """Of this process and store; None: the store is closed, and nothing is compared any more."""
        try:
            self._state = self._experiments().state(self.name)
        except StoreClosed:
            self._state = None
        except Exception as error:  # noqa: BLE001  # said, and never the caller's (I10)
            self._log_broken(error)
            self._state = None
        return self._state

    def _of_candidate(
        self,
        state: ExperimentState,
        versions: QueryVersions,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        sides: ExperimentSides | None,
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
            if sides is not None:
                self._compare(state, sides, raised(error), is_of_candidate=True)
            raise
        except BaseException as error:
            state.breaker.failed()
            state.heard.append((CANDIDATE, None))
            if not is_contained(error):
                raise
            said = f"the candidate failed ({type(error).__name__}), and the control answers"
            self._log_once("experiment.fell_back", state, said)
            return None
        self._answered(state, begun)
        if sides is not None:
            self._compare(state, sides, value, is_of_candidate=True)
        return _Outcome(value)

    def _turned_over(
        self, state: ExperimentState, versions: QueryVersions, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> QueryCall | None:
        """The candidate, if it is to answer this caller. What it is asked with is its own: the control may be next."""
        percent, key = state.flags.percent, self._options.key
        try:
            if callable(key):
                key = key(*args, **kwargs)
            is_its = random.random() * 100 < percent if key is None else is_in_cohort(key_text(key), percent)
            candidate = versions.candidate_of(args, kwargs) if is_its else None
            return None if candidate is None or not state.breaker.admits() else apart(candidate)
        except SessionHeld as error:
            self._log_once("experiment.session", state, error.message)
        except NoValue as error:
            self._log_incomparable(state, error)
        except BaseException as error:
            if not is_contained(error):
                raise
            self._log_broken(error)
        return None

    @staticmethod
    def _answered(state: ExperimentState, begun: float) -> None:
        state.breaker.succeeded()
        state.heard.append((CANDIDATE, time.perf_counter() - begun))

    def _sides(
        self, state: ExperimentState, versions: QueryVersions, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> ExperimentSides | None:
        """Of a call that was taken, before anything was asked: a side may change what it is asked with.

        None: it is not compared. Raises nothing (I10).
        """
        try:
            candidate = versions.candidate_of(args, kwargs)
            if candidate is None or not state.experiments.can_compare:
                return None
            sides = sides_of(QueryCall(versions.control, args, kwargs), versions.again_of(args, kwargs), candidate)
            objection = state.experiments.bench.objection(self.name)
            if objection is None:
                return sides
            self._decline(state, objection)
        except SessionHeld as error:
            self._log_once("experiment.session", state, error.message)
            self._decline(state, Reason.SESSION)
        except NoValue as error:
            self._log_incomparable(state, error)
            self._decline(state, Reason.INCOMPARABLE)
        except BaseException as error:
            self._break(state, error)
            if not is_contained(error):
                raise
        return None

    def _compare(
        self, state: ExperimentState, sides: ExperimentSides, value: Any, *, is_of_candidate: bool = False
    ) -> None:
        """Hand what a caller got to the shadow. Raises nothing (I10); what only ends the process goes on."""
        try:  # here and now: the caller may change what it got
            answer = self._taken_down(value)
            asked = self._side(state, CONTROL, sides.control), self._side(state, CANDIDATE, sides.candidate)
            is_late = self._options.may_lag
            state.experiments.offer(state, answer, *asked, is_of_candidate=is_of_candidate, is_late=is_late)
        except NoValue as error:
            self._log_incomparable(state, error)
            self._decline(state, Reason.INCOMPARABLE)
        except BaseException as error:
            self._break(state, error)
            if not is_contained(error):
                raise

    def _decline(self, state: ExperimentState, reason: Reason) -> None:
        """Count a call that was taken as not compared (I12). Raises nothing."""
        try:
            state.experiments.decline(state, reason)
        except Exception as error:  # noqa: BLE001  # said, and never the caller's (I10)
            self._log_broken(error)

    def _break(self, state: ExperimentState, error: BaseException) -> None:
        """What was not compared for a fault of ours, or of `normalise`, is not equal for that (I12)."""
        self._log_broken(error)
        self._decline(state, Reason.BROKEN)

    def _side(self, state: ExperimentState, side: str, query: QueryCall) -> TrialSide:
        experiments = state.experiments
        seconds = self._options.deadline or experiments.deadline_seconds

        def work() -> QueryAnswer | Failed:
            seconds: float | None = None
            begun = time.perf_counter()
            try:
                value = self._asked(query)
                seconds = time.perf_counter() - begun
                return self._taken_down(value)
            except NoValue as error:
                self._log_incomparable(state, error)
                return Failed("NoValue", error.message, is_incomparable=True)
            except StoreClosed as error:  # the process ends: that is no answer of the query
                return Failed("StoreClosed", error.message, is_incomparable=True, reason=Reason.CLOSED)
            finally:
                experiments.tried(state, side, seconds)

        return TrialSide(lambda: experiments.bench.run(self.name, work, seconds))

    def _asked(self, query: QueryCall) -> Any:
        """Its answer, as may be an exception. With arguments of its own: it may be asked again."""
        mine = apart(query)
        try:
            return mine()
        except self._options.raises as error:
            return raised(error)

    def _taken_down(self, value: Any) -> QueryAnswer:
        """What `normalise` raises is no answer, whatever `raises` says: it failed for another reason."""
        if isinstance(value, QueryAnswer):
            return value
        normalise = self._options.normalise
        if normalise is not None:
            check_lasting(value)
            value = normalise(value)
        return answer_of(value, is_ordered=self._options.is_ordered)

    def _log_broken(self, error: BaseException) -> None:
        """The first time in a process, with where it was."""
        if self.name not in _BROKEN:
            _BROKEN.add(self.name)
            extra = {"event": "experiment.broken", "experiment": self.name}
            logger.error("an experiment broke", exc_info=error, extra=extra)

    def _log_incomparable(self, state: ExperimentState, error: NoValue) -> None:
        self._log_once("experiment.incomparable", state, f"{error.message} {error.hint}")

    def _log_once(self, event: str, state: ExperimentState, said: str) -> None:
        """In a process: a call is made a thousand times a second."""
        if event not in state.said:
            state.said.add(event)
            logger.warning(said, extra={"event": event, "experiment": self.name})


class _Outcome:
    """What the candidate answered, which may be None."""

    def __init__(self, value: Any) -> None:
        self.value = value
