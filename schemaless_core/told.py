"""`Told`: the ground of every error of ours. What happened, what to do next, and a way through pickle."""

from __future__ import annotations

from collections.abc import Callable


class Told(Exception):
    """An error with its facts as attributes: `message` says what happened, `hint` what to do next.

    It survives pickle and copy, whatever its constructor takes: a pool of processes hands it to its parent.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Callable[..., Told], tuple[type[Told], tuple[object, ...]], dict[str, object]]:
        return _remade, (type(self), self.args), self.__dict__


def _remade(kind: type[Told], arguments: tuple[object, ...]) -> Told:
    """An error of a kind without its constructor, which wants facts and writes the message of them."""
    return kind.__new__(kind, *arguments)
