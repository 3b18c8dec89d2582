"""`@trigger`: a function that is called for the cells of a column, and how a program's triggers are found."""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from schemaless_core.cell.cell import check_column_name
from schemaless_core.errors import InvalidRequest, shown

#: Where a trigger begins when its group is registered first: at the cells to come, at the first ones, or at a time.
Start = Literal["now", "beginning"] | datetime
ParkScope = Literal["cell", "row"]

_GROUP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
_PARAMETERS = ("row_key", "store", "cell", "cells")
BATCH_MAX = 10_000
#: How long a call may take unless its trigger says otherwise.
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Trigger:
    """A function and the column it is called for. Calling it calls the function, as a test of it wants."""

    function: Callable[..., Any]
    column: str
    name: str
    start: Start | None
    batch: int
    park_scope: ParkScope
    transactional: bool
    parameters: tuple[str, ...]
    #: Seconds that a call may take; None: any.
    timeout: float | None = TIMEOUT_SECONDS

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)


def trigger(
    column: str,
    start: Start | None = None,
    *,
    name: str | None = None,
    batch: int = 1,
    park_scope: ParkScope = "cell",
    transactional: bool = False,
    timeout: float | None = TIMEOUT_SECONDS,
) -> Callable[[Callable[..., Any]], Trigger]:
    """Call the decorated function at least once for every cell of a column, in added-id order within a shard.

    The function names what it wants: `row_key`, `store`, `cell`, or with `batch` several `cells` of one shard. Its
    group is called `name`, by default as the function. `start` must be said before its first run. A call that takes
    longer than `timeout` seconds ends its worker process, and its cell is parked; None: it may take any time.
    """
    check_column_name(column)
    _check_start(start)
    if type(batch) is not int or not 1 <= batch <= BATCH_MAX:
        raise InvalidRequest(f"The batch {shown(batch)} is no whole number from 1 to {BATCH_MAX}.", hint="Leave it 1.")
    if park_scope not in ("cell", "row"):
        raise InvalidRequest(f"There is no park scope {shown(park_scope)}.", hint="Use 'cell' or 'row'.")
    if transactional and batch > 1:
        raise InvalidRequest("A transactional trigger takes one cell at a time.", hint="Leave out batch.")

    _check_timeout(timeout)

    def decorate(function: Callable[..., Any]) -> Trigger:
        group = function.__name__ if name is None else name
        _check_group(group)
        parameters = _parameters(function, group, batch)
        return Trigger(function, column, group, start, batch, park_scope, transactional, parameters, timeout)

    return decorate


def load_triggers(target: str) -> list[Trigger]:
    """Import `module` or `module:name` and return its triggers: one, a list of them, or all that the module has."""
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        raise InvalidRequest(
            f"There is no module {shown(module_name)} ({problem}).",
            hint="Name it as Python imports it, from a folder on the path: tripstore triggers run billing:app.",
        ) from problem
    if not attribute:
        return _named(target, [value for value in vars(module).values() if isinstance(value, Trigger)])
    if not hasattr(module, attribute):
        known = ", ".join(name for name, value in vars(module).items() if isinstance(value, Trigger)) or "none"
        raise InvalidRequest(
            f"The module {module_name} has no {attribute}.", hint=f"Its triggers: {known}. Or name the module alone."
        )
    found = getattr(module, attribute)
    return _named(target, [found] if isinstance(found, Trigger) else found)


def _named(target: str, found: object) -> list[Trigger]:
    if not isinstance(found, Iterable):
        raise InvalidRequest(f"{target} is no trigger and no list of them.", hint="Decorate a function with @trigger.")
    triggers = list(found)
    for each in triggers:
        if not isinstance(each, Trigger):
            raise InvalidRequest(f"{target} holds {shown(each)}.", hint="Decorate its functions with @trigger.")
    if not triggers:
        raise InvalidRequest(f"{target} has no triggers.", hint="Decorate a function with @trigger(column=…).")
    _refuse_same_names(triggers)
    return triggers


def _refuse_same_names(triggers: Sequence[Trigger]) -> None:
    names = [each.name for each in triggers]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"Two triggers are called {name}.", hint="Give one another name=….")


def _check_start(start: object) -> None:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise InvalidRequest(f"The start {start} has no time zone.", hint="Pass an aware datetime.")
    elif start not in (None, "now", "beginning"):
        raise InvalidRequest(f"{shown(start)} is no start.", hint="Use 'now', 'beginning' or an aware datetime.")


def _check_timeout(timeout: object) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise InvalidRequest(
            f"The timeout {shown(timeout)} is no number of seconds.", hint="Use a number above 0, or None for no limit."
        )


def _check_group(name: object) -> None:
    if not isinstance(name, str) or not _GROUP_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{shown(name)} is no name of a group.", hint="Use letters, digits, _, . and -, starting with a letter."
        )


def _parameters(function: Callable[..., Any], group: str, batch: int) -> tuple[str, ...]:
    """The names that the function takes, all of them known."""
    names = tuple(inspect.signature(function).parameters)
    for name in names:
        if name not in _PARAMETERS:
            raise InvalidRequest(
                f"The trigger {group} has the parameter {name}.", hint=f"It may take: {', '.join(_PARAMETERS)}."
            )
    if batch > 1 and "cells" not in names:
        raise InvalidRequest(f"The trigger {group} has a batch and no parameter cells.", hint="Add it.")
    if "cells" in names and ("cell" in names or "row_key" in names):
        raise InvalidRequest(f"The trigger {group} takes one cell and several.", hint="Take cells alone.")
    return names
