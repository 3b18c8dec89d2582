"""Headers of a request that say how the store is to answer it: the habits of `using`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemaless_core.deadline import InAll
from schemaless_core.errors import InvalidRequest, shown
from tripstore.aio import AsyncTripStore
from tripstore.http.request import HttpRequest

DEADLINE = "Tripstore-Deadline-Seconds"
_WORDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Tripstore-Read": ("read", {"primary": "primary", "replica": "replica"}),
    "Tripstore-Include-Buffered": ("include_buffered", {"true": True, "false": False}),
    "Tripstore-Durability": ("durability", {"single": "single", "double": "double"}),
}
_MEANINGS = {
    "Tripstore-Read": "Which servers to ask first.",
    "Tripstore-Include-Buffered": "Whether a read sees cells that wait in buffers.",
    "Tripstore-Durability": "double: a put is answered when two servers have the cell.",
}

#: As the OpenAPI document says them.
HEADERS: list[dict[str, Any]] = [
    {
        "name": DEADLINE,
        "in": "header",
        "description": "How long the call may take, once its content is here; waiting for a connection counts.",
        "schema": {"type": "number", "exclusiveMinimum": 0},
    },
    *(
        {
            "name": name,
            "in": "header",
            "description": _MEANINGS[name],
            "schema": {"type": "string", "enum": list(words)},
        }
        for name, (_, words) in _WORDS.items()
    ),
]


def deadline_of(request: HttpRequest, seconds_max: float) -> float | None:
    """Return the seconds that a caller gives a call, or None."""
    given = request.header(DEADLINE)
    return None if given is None else _seconds(given, seconds_max)


def with_habits(store: AsyncTripStore, request: HttpRequest, deadline: float | None) -> AsyncTripStore:
    """Return the store as a request wants it. Waiting for a thread or a connection counts for its deadline."""
    habits: dict[str, Any] = {} if deadline is None else {"deadline": InAll(deadline)}
    for name, (habit, words) in _WORDS.items():
        if (given := request.header(name)) is not None:
            habits[habit] = _word(name, words, given)
    return store.using(**habits) if habits else store


def _word(name: str, words: Mapping[str, Any], given: str) -> Any:
    if given not in words:
        raise InvalidRequest(f"{name} is {shown(given)}.", hint=f"Send {' or '.join(words)}, or leave it out.")
    return words[given]


def _seconds(given: str, seconds_max: float) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= seconds_max:  # NaN is refused, too
        hint = f"Send seconds above 0, {seconds_max:g} at most (http.deadline_seconds_max)."
        raise InvalidRequest(f"{DEADLINE} is {shown(given)}.", hint=hint)
    return seconds
