"""`Refused`: why a value cannot cross, in either direction, before the codec knows which field it is of."""

from __future__ import annotations

from schemaless_core import Json

_NAMES = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    list: "a list",
    dict: "an object",
}


class Refused(Exception):
    """The reason never holds the value. `path` leads to the culprit inside the value, as in `[0].fare`."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


def other_type(value: Json, wanted: str) -> Refused:
    return Refused(f"it is {_NAMES.get(type(value), type(value).__name__)}, not {wanted}")


def step(key: str | int) -> str:
    """One step of a path; a key that is no plain word stands quoted, so that every path can be printed."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def joined(*steps: str | int) -> str:
    """The path of these steps from the body on."""
    return "".join(map(step, steps)).removeprefix(".")
