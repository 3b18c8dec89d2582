"""`Unfit`: why a value cannot cross between a body and Python, before its field and its cell are known."""

from __future__ import annotations


class Unfit(Exception):
    """The reason never holds the value: it is logged, and bodies are not. `path` leads to an element, as in `[0]`."""

    def __init__(self, reason: str, hint: str | None = None, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.path = path


def other_kind(value: object, wanted: str) -> Unfit:
    return Unfit(f"it is a {type(value).__name__}, not {wanted}", f"Pass {wanted}.")
