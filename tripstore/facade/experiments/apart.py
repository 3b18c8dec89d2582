"""`QueryCall` and `apart`: a query as a side of its own may call it: without its caller's sessions, values of its own.

A list that one side changes, the caller and the other side would find changed. Copied are the containers of Python and
of its library; objects of a service's classes are shared, as between any two threads, without their sessions.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tripstore.engines.validation.errors import ValidationError
from tripstore.engines.validation.experiment.plain import NoValue
from tripstore.facade.experiments.sessions import (
    PLAIN,
    attributes,
    holds_session,
    is_class_of_sessions,
    is_of_one_thread,
    reaches_session,
    slots_of,
)


@dataclass(frozen=True, slots=True)
class QueryCall:
    """A query and what it is asked with."""

    query: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        return self.query(*self.args, **self.kwargs)

    @property
    def brings_session(self) -> bool:
        """Whether the query itself holds a session, whatever it is asked with."""
        return reaches_session((self.query,))

    @property
    def is_shareable(self) -> bool:
        """Whether another thread may call it as it is."""
        return not reaches_session((self.query, *self.args, *self.kwargs.values()))


class SessionHeld(ValidationError):
    """What a side has no session for but its caller's."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the {what} holds a session of its caller's: give `again`, or let it open its own")


class Withheld:
    """Stands where the caller's session stood: a candidate may be given one, and may not use it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"This {self._what} is the caller's: a query under experiment opens its own.")


def apart(call: QueryCall) -> QueryCall:
    """The same with arguments of its own. Raises `NoValue` or `SessionHeld` where there can be none."""
    taking = _Taking()
    named = {name: taking.own(value) for name, value in call.kwargs.items()}
    return QueryCall(call.query, tuple(map(taking.own, call.args)), named)


def check_lasting(answer: Any) -> None:
    """Refuse an answer that its caller would find empty when it was read before: `NoValue`. Containers are looked into.

    Objects are not: `normalise`, which reads them, must not change what it is given.
    """
    waiting, seen = [answer], set[int]()
    while waiting:
        value = waiting.pop()
        kind: Any = type(value)
        if kind in PLAIN:
            continue
        if _is_read_once(kind):
            hint = "Let the query return a list: what is compared would be missing from what its caller gets."
            raise NoValue(f"An answer is or holds a {kind.__name__}, which can be read once.", hint=hint)
        if isinstance(value, dict | tuple | list) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)


@lru_cache(maxsize=1024)
def _is_read_once(kind: Any) -> bool:
    return issubclass(kind, Iterator) or is_class_of_sessions(kind)


class _Taking:
    """Of the arguments of one call. What stands in two places is one thing in the copy, too."""

    def __init__(self) -> None:
        self._taken: dict[int, Any] = {}

    def own(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value
        if id(value) not in self._taken:
            make = _COPIES.get(kind)
            self._taken[id(value)] = make(self, value) if make is not None else self._other(value)
        return self._taken[id(value)]

    def all_into(self, empty: Any, value: Any) -> Any:
        """A list may hold itself, so it is known before it is full."""
        self._taken[id(value)] = empty
        empty.extend(map(self.own, value))
        return empty

    def items_into(self, empty: Any, value: Any) -> Any:
        self._taken[id(value)] = empty
        for name, each in value.items():
            empty[name] = self.own(each)
        return empty

    def _other(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, tuple) and hasattr(kind, "_make"):
            return kind._make(map(self.own, value))
        if is_of_one_thread(value):
            return Withheld(kind.__name__)
        if isinstance(value, Iterator):
            hint = "Give a list or a tuple: both sides are asked with it."
            raise NoValue(f"A query is asked with a {kind.__name__}, which one side leaves empty.", hint=hint)
        held = attributes(value)
        return _without_sessions(value, held) if holds_session(held) else value


def _without_sessions(value: Any, held: Mapping[str, Any]) -> Any:
    """The same object but for its sessions: the `self` of a method, above all."""
    kind: Any = type(value)
    if kind.__new__ is not object.__new__ or slots_of(kind) or hasattr(kind, "__del__"):
        raise SessionHeld(f"{kind.__name__} that a query is asked with")
    twin = object.__new__(kind)
    for name, each in held.items():
        twin.__dict__[name] = Withheld(type(each).__name__) if is_of_one_thread(each) else each
    return twin


_COPIES: Mapping[type[Any], Callable[[_Taking, Any], Any]] = {
    tuple: lambda taking, value: tuple(map(taking.own, value)),
    list: lambda taking, value: taking.all_into([], value),
    deque: lambda taking, value: taking.all_into(deque(maxlen=value.maxlen), value),
    dict: lambda taking, value: taking.items_into({}, value),
    OrderedDict: lambda taking, value: taking.items_into(OrderedDict(), value),
    defaultdict: lambda taking, value: taking.items_into(defaultdict(value.default_factory), value),
    Counter: lambda _taking, value: Counter(value),
    set: lambda _taking, value: set(value),
    bytearray: lambda _taking, value: bytearray(value),
}
