"""How a service gives the two versions of a query: it decorates the old one, or puts one call together in a `with`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from types import MethodType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from schemaless_core.errors import InvalidRequest
from tripstore.facade.experiments.apart import QueryCall

P = ParamSpec("P")
R = TypeVar("R")


class QueryVersions(Protocol):
    """The two versions of a query. What only some calls need is asked for by those."""

    @property
    def control(self) -> Callable[..., Any]: ...

    def candidate_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> QueryCall | None:
        """How the candidate is asked what the control is asked with these; None: there is none."""

    def again_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> QueryCall | None:
        """The control for a thread of ours; None: as its caller calls it."""


#: What the caller of one call gets, whose control is asked with these arguments.
AnswerCall = Callable[[QueryVersions, tuple[Any, ...], Mapping[str, Any]], Any]


class ContextCall:
    """One call that is put together inside a `with`; it is made at its end."""

    def __init__(self, name: str, answer: AnswerCall) -> None:
        self._name = name
        self._ask = answer
        self._control: QueryCall | None = None
        self._candidate: QueryCall | None = None
        self._again: QueryCall | None = None
        self._answer: tuple[Any] | None = None

    def control(self, query: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """The old query, which answers."""
        self._control = QueryCall(_checked(query), args, kwargs)

    def candidate(self, query: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """The new one."""
        self._candidate = QueryCall(_checked(query), args, kwargs)

    def again(self, query: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """The old query with a session of its own, for the thread that compares."""
        self._again = QueryCall(_checked(query), args, kwargs)

    @property
    def answer(self) -> Any:
        """What the caller gets; there is one after the block."""
        if self._answer is None:
            hint = "Read `trial.answer` after the `with`, which asks at its end."
            raise InvalidRequest(f"Experiment {self._name} has not asked yet.", hint=hint)
        return self._answer[0]

    def ask(self) -> None:
        """What the end of the block does."""
        control = self._control
        if control is None:
            hint = "Call `trial.control(query, …)` inside the `with`."
            raise InvalidRequest(f"Experiment {self._name} has no control.", hint=hint)
        versions = _GivenVersions(control.query, self._candidate, self._again)
        self._answer = (self._ask(versions, control.args, control.kwargs),)


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

    def __init__(self, answer: AnswerCall, control: Callable[P, R]) -> None:
        update_wrapper(self, control)  # first: it brings the attributes of a control that is under experiment itself
        self._answer = answer
        self.control = _checked(control)
        self._candidate: Callable[P, R] | None = None
        self._again: Callable[P, R] | None = None

    def candidate(self, query: Callable[P, R]) -> Callable[P, R]:
        """Decorate the new query, which stays what it is."""
        self._candidate = _checked(query)
        return query

    def again(self, query: Callable[P, R]) -> Callable[P, R]:
        """Decorate the old query with a session of its own, for the thread that compares."""
        self._again = _checked(query)
        return query

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", self._answer(self, args, kwargs))

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
        name = getattr(query, "__qualname__", repr(query))
        raise InvalidRequest(f"{name} is a coroutine, and its answer is not there yet.", hint=hint)
    return query
