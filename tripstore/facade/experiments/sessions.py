"""`QueryCall` and `apart`: a query as a side of its own may call it: without its caller's sessions, values of its own.

A session, connection or cursor belongs to one thread. Used by two, it breaks in either, and I10 forbids that of the
caller's. A list that one side changes, the caller and the other side would find changed. What a query was given and
what its closure holds is looked at, in containers too; in the attributes of an object only its author can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from types import FunctionType
from typing import Any
from uuid import UUID

from tripstore.engines.validation.experiment.plain import NoValue

#: By the root of the module: classes whose objects belong to one thread.
_OF_ONE_THREAD: Mapping[str, frozenset[str]] = {
    "sqlalchemy": frozenset({"Session", "AsyncSession", "Connection", "AsyncConnection", "Query", "Transaction"}),
    "psycopg2": frozenset({"connection", "cursor"}),
    "psycopg": frozenset({"Connection", "AsyncConnection", "Cursor", "AsyncCursor"}),
    "pymysql": frozenset({"Connection", "Cursor"}),
    "MySQLdb": frozenset({"Connection", "BaseCursor"}),
    "mysql": frozenset({"MySQLConnectionAbstract", "MySQLCursorAbstract"}),
    "sqlite3": frozenset({"Connection", "Cursor"}),
}
#: An object of a model asks its session for what it has not loaded.
_OF_A_SESSION = "_sa_instance_state"
#: How deep containers and functions that wrap each other are looked into.
DEPTH_MAX = 4


@dataclass(frozen=True, slots=True)
class QueryCall:
    """A query and what it is asked with."""

    query: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        return self.query(*self.args, **self.kwargs)


class Withheld:
    """Stands where the caller's session stood: a candidate may be given one, and may not use it."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"This {self._what} is the caller's: a query under experiment opens its own.")


def apart(call: QueryCall) -> QueryCall:
    """The same with arguments of its own: containers are copies, and the caller's sessions are withheld."""
    named = {name: _own(value) for name, value in call.kwargs.items()}
    return QueryCall(call.query, tuple(map(_own, call.args)), named)


def brings_session(call: QueryCall) -> bool:
    """Whether the query itself holds a session, whatever it is asked with."""
    return any(map(_is_of_one_thread, _held(call.query)))


def is_shareable(call: QueryCall) -> bool:
    """Whether another thread may call it as it is."""
    return not brings_session(call) and not any(map(_has_session, (*call.args, *call.kwargs.values())))


def check_lasting(answer: Any) -> None:
    """Refuse an answer that its caller would find empty when it was read before: `NoValue`."""
    for each in answer if type(answer) is tuple else (answer,):
        if isinstance(each, Iterator) or _is_session(each):
            hint = "Let the control return a list: what is compared would be missing from what its caller gets."
            raise NoValue(f"An answer is a {type(each).__name__}, which can be read once.", hint=hint)


def _own(value: Any, depth: int = 0) -> Any:
    make = _COPIES.get(type(value))
    if make is not None:
        return make(value, depth + 1) if depth < DEPTH_MAX else value
    if _is_of_one_thread(value):
        return Withheld(type(value).__name__)
    if isinstance(value, Iterator):
        hint = "Give a list or a tuple: both sides are asked with it."
        raise NoValue(f"A query is asked with a {type(value).__name__}, which one side leaves empty.", hint=hint)
    return value


def _same(value: Any, _depth: int) -> Any:
    return value


_COPIES: Mapping[type[Any], Callable[[Any, int], Any]] = {
    **dict.fromkeys((str, int, float, bool, bytes, type(None), Decimal, UUID, datetime, date, timedelta), _same),
    tuple: lambda value, depth: tuple(_own(each, depth) for each in value),
    list: lambda value, depth: [_own(each, depth) for each in value],
    dict: lambda value, depth: {name: _own(each, depth) for name, each in value.items()},
    set: lambda value, _depth: set(value),
    bytearray: lambda value, _depth: bytearray(value),
}


def _has_session(value: Any, depth: int = 0) -> bool:
    if depth < DEPTH_MAX and type(value) in (tuple, list, dict):
        inner = value.values() if type(value) is dict else value
        return any(_has_session(each, depth + 1) for each in inner)
    return _is_of_one_thread(value)


def _held(query: Callable[..., Any], depth: int = 0) -> Iterator[Any]:
    """What a closure, a method, a default or a partial call brings along, and so do functions that it wraps."""
    if isinstance(query, partial):
        yield from query.args
        yield from query.keywords.values()
        yield from _held(query.func, depth)
    yield from getattr(query, "__defaults__", None) or ()
    yield from (getattr(query, "__kwdefaults__", None) or {}).values()
    for held in _enclosed(query):
        yield held
        if isinstance(held, FunctionType | partial) and depth < DEPTH_MAX:
            yield from _held(held, depth + 1)
    owner = getattr(query, "__self__", None)
    if owner is not None:
        yield owner
        yield from getattr(owner, "__dict__", {}).values()


def _enclosed(query: Callable[..., Any]) -> Iterator[Any]:
    for cell in getattr(query, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _is_of_one_thread(value: object) -> bool:
    return _is_session(value) or _OF_A_SESSION in getattr(value, "__dict__", ()) or hasattr(type(value), _OF_A_SESSION)


def _is_session(value: object) -> bool:
    kind: Any = type(value)
    return _is_class_of_sessions(kind)


@lru_cache(maxsize=1024)
def _is_class_of_sessions(kind: Any) -> bool:
    """Asked of every argument and answer of a call that is compared, while its caller waits."""
    return any(each.__name__ in _OF_ONE_THREAD.get(each.__module__.partition(".")[0], ()) for each in kind.__mro__)
