"""`for_another_thread`: a query as a thread of ours may call it: without a database session of its caller's.

A session, connection or cursor belongs to one thread. Used by two, it breaks in either, and I10 forbids that of the
caller's. What a query was given and what its closure holds is looked at; deeper than that only its author can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

#: By the root of the module: classes whose objects belong to one thread.
_OF_ONE_THREAD: Mapping[str, frozenset[str]] = {
    "sqlalchemy": frozenset({"Session", "AsyncSession", "Connection", "AsyncConnection", "Query", "Transaction"}),
    "psycopg2": frozenset({"connection", "cursor"}),
    "psycopg": frozenset({"Connection", "AsyncConnection", "Cursor", "AsyncCursor"}),
    "pymysql": frozenset({"Connection", "Cursor"}),
    "sqlite3": frozenset({"Connection", "Cursor"}),
}
#: An object of a model asks its session for what it has not loaded.
_OF_A_SESSION = "_sa_instance_state"


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


def is_shareable(call: QueryCall) -> bool:
    """Whether another thread may call it as it is."""
    return not any(map(_is_of_one_thread, (*call.args, *call.kwargs.values(), *_held(call.query))))


def without_sessions(call: QueryCall) -> QueryCall | None:
    """The same with sessions among its arguments withheld; None: it brings one along itself."""
    if any(map(_is_of_one_thread, _held(call.query))):
        return None
    named = {name: _withheld(value) for name, value in call.kwargs.items()}
    return QueryCall(call.query, tuple(map(_withheld, call.args)), named)


def _withheld(value: Any) -> Any:
    return Withheld(type(value).__name__) if _is_of_one_thread(value) else value


def _held(query: Callable[..., Any]) -> Iterator[Any]:
    """What a closure, a method or a partial call brings along."""
    if isinstance(query, partial):
        yield from query.args
        yield from query.keywords.values()
        yield from _held(query.func)
    for cell in getattr(query, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    owner = getattr(query, "__self__", None)
    if owner is not None:
        yield owner
        yield from getattr(owner, "__dict__", {}).values()


def _is_of_one_thread(value: object) -> bool:
    return (
        any(each.__name__ in _OF_ONE_THREAD.get(each.__module__.partition(".")[0], ()) for each in type(value).__mro__)
        or hasattr(type(value), _OF_A_SESSION)
        or _OF_A_SESSION in getattr(value, "__dict__", ())
    )
