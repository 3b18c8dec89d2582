"""`ExperimentOptions`: what a service says of one experiment, besides the two versions of its query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
