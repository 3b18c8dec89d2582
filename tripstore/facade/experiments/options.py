"""`ExperimentOptions`: what a service says of one experiment, besides the two versions of its query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from schemaless_core.errors import InvalidRequest
from tripstore.engines.validation.experiment.plain import NoValue

#: Of one question: a thread of the shadow waits for it.
DEADLINE_SECONDS_MAX = 3600.0


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
    #: Whether the candidate may read what was true a moment ago: from a replica, say, or a cache.
    may_lag: bool = False

    def __post_init__(self) -> None:
        """What is wrong shows where an experiment is made, and not at the first call that comes to it."""
        raises: Any = self.raises  # as `except` takes it, or a list
        given = tuple(raises) if isinstance(raises, tuple | list | set | frozenset) else (raises,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in given):
            hint = "Write raises=(NoResultFound,)."
            raise InvalidRequest(f"raises={raises!r} are no classes of exceptions.", hint=hint)
        object.__setattr__(self, "raises", given)
        if self.deadline is not None and not (isfinite(self.deadline) and 0 < self.deadline <= DEADLINE_SECONDS_MAX):
            hint = f"Give seconds above 0, at most {DEADLINE_SECONDS_MAX:.0f}."
            raise InvalidRequest(f"A deadline of {self.deadline} seconds is none.", hint=hint)
        normalise: Any = self.normalise
        if normalise is not None and not callable(normalise):
            hint = "Give a function that makes lists, dicts and plain values of an answer."
            raise InvalidRequest(f"normalise={normalise!r} cannot be called.", hint=hint)


def key_text(key: object) -> str:
    """What tells a caller from others, the same in every process. `NoValue`: its text says where it is in memory."""
    for each in key if isinstance(key, tuple) else (key,):
        kind: Any = type(each)
        if kind.__repr__ is object.__repr__ and (kind.__str__ is object.__str__ or each is not key):
            hint = "Let `key` give an id, a text or a number."
            raise NoValue(f"A key is a {kind.__name__}, whose text is another one in each process.", hint=hint)
    return str(key)
