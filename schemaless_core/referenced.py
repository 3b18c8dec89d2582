"""`Referenced`: what a configuration took from the environment or a file."""

from __future__ import annotations


class Referenced(str):
    """A text that came from `${…}`. It may be a password, wherever it stands: no error shows it."""

    __slots__ = ()
