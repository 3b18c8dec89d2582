"""`Unclosed`: says of a store that was never closed, when it is collected, that its caller forgot to."""

from __future__ import annotations

import warnings
import weakref


class Unclosed:
    """Shared by a store and all that `using` made of it. Silent where the process ends."""

    def __init__(self, told: str) -> None:
        self._warning = weakref.finalize(self, _warn, told)
        self._warning.atexit = False

    def note_closed(self) -> None:
        """There is nothing to say."""
        self._warning.detach()


def _warn(told: str) -> None:
    advice = "Use it in a `with` block, or call close(): its connections and threads lived until now."
    warnings.warn(f"{told} was never closed. {advice}", ResourceWarning, stacklevel=2)
