"""`uncollected`: work that makes very many objects and no cycle is not stopped to look for cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection within: it was a fifth of the time of a copy. Of two threads the first that is through ends it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
