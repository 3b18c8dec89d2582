"""`reaches_session`: whether a query, or what it is asked with, would take its caller's session to another thread.

A session, connection or cursor belongs to one thread. Used by two, it breaks in either, and I10 forbids that of the
caller's. Looked into are containers, what functions close over, and the attributes of an object: `self.session` of a
repository. What is deeper in an object only its author can see.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from types import FunctionType, ModuleType
from typing import Any
from uuid import UUID

#: By the root of the module: classes whose objects belong to one thread.
_OF_ONE_THREAD: Mapping[str, frozenset[str]] = {
    "sqlalchemy": frozenset(
        {
            "Session",
            "AsyncSession",
            "SessionTransaction",
            "Connection",
            "AsyncConnection",
            "PoolProxiedConnection",
            "Query",
            "Transaction",
        }
    ),
    "psycopg2": frozenset({"connection", "cursor"}),
    "psycopg": frozenset({"Connection", "AsyncConnection", "Cursor", "AsyncCursor"}),
    "pg8000": frozenset({"CoreConnection", "Connection", "Cursor"}),
    "pymysql": frozenset({"Connection", "Cursor"}),
    "MySQLdb": frozenset({"Connection", "BaseCursor"}),
    "mysql": frozenset({"MySQLConnectionAbstract", "MySQLCursorAbstract"}),
    "sqlite3": frozenset({"Connection", "Cursor"}),
}
#: An object of a model asks its session for what it has not loaded.
_OF_A_SESSION = "_sa_instance_state"
#: What holds nothing, and is most of what queries are asked with.
PLAIN = frozenset((str, int, float, bool, bytes, type(None), Decimal, UUID, datetime, date, timedelta))
#: What looks like an object with attributes and is none of a service's; a thread-local holds other things elsewhere.
_OPAQUE = type | ModuleType | threading.local
#: How deep containers and functions that wrap each other are looked into.
DEPTH_MAX = 8


def reaches_session(values: Iterable[Any]) -> bool:
    """Whether one of them is a session, or brings one along."""
    waiting, seen = [(value, 0) for value in values], set[int]()
    while waiting:
        value, depth = waiting.pop()
        kind = type(value)
        if kind in PLAIN or id(value) in seen:
            continue
        if kind is not FunctionType and (is_of_one_thread(value) or holds_session(attributes(value))):
            return True
        seen.add(id(value))
        if depth < DEPTH_MAX:
            inside = _brought_by(value) if kind is FunctionType else _inside(value)
            waiting.extend([(each, depth + 1) for each in inside if type(each) not in PLAIN])
    return False


def is_of_one_thread(value: object) -> bool:
    """Whether it is a session, connection or cursor, or an object of a model, which has one."""
    kind: Any = type(value)
    return is_class_of_sessions(kind) or _OF_A_SESSION in getattr(value, "__dict__", ()) or hasattr(kind, _OF_A_SESSION)


def holds_session(attributes: Mapping[str, Any]) -> bool:
    return any(type(each) not in PLAIN and is_of_one_thread(each) for each in attributes.values())


@lru_cache(maxsize=1024)
def is_class_of_sessions(kind: Any) -> bool:
    """Asked of every argument and answer of a call that is compared, while its caller waits."""
    return any(each.__name__ in _OF_ONE_THREAD.get(each.__module__.partition(".")[0], ()) for each in kind.__mro__)


def attributes(value: Any) -> Mapping[str, Any]:
    """What an object of a service's class holds."""
    if isinstance(value, _OPAQUE):
        return {}
    found: dict[str, Any] = getattr(value, "__dict__", None) or {}
    kind: Any = type(value)
    slots = slots_of(kind)
    return {**found, **{name: getattr(value, name) for name in slots if hasattr(value, name)}} if slots else found


@lru_cache(maxsize=1024)
def slots_of(kind: Any) -> tuple[str, ...]:
    """The attributes that a class of Python keeps outside of `__dict__`."""
    found = [name for each in kind.__mro__ for name in _slots_in(each)]
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))


def _slots_in(kind: Any) -> Iterator[str]:
    names = vars(kind).get("__slots__", ())
    for name in (names,) if isinstance(names, str) else names:
        is_private = name.startswith("__") and not name.endswith("__")
        yield f"_{kind.__name__.lstrip('_')}{name}" if is_private else name


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, tuple | list | set | frozenset | deque):
        return value
    return _brought(value) if callable(value) else ()


def _brought(query: Any) -> Iterator[Any]:
    """What a method or a partial call brings along, and the function that it wraps."""
    if isinstance(query, partial):
        yield from (query.func, query.args, query.keywords)
    yield getattr(query, "__func__", None)
    yield getattr(query, "__self__", None)
    yield getattr(query, "__wrapped__", None)


def _brought_by(function: FunctionType) -> list[Any]:
    """What it closes over, its defaults, and the function that it wraps."""
    found = [function.__defaults__, function.__kwdefaults__, function.__dict__.get("__wrapped__")]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not assigned yet
            found.append(cell.cell_contents)
    return found
