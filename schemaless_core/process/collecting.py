"""`uncollected`: work that makes very many objects and no cycle is not stopped to look for cycles."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_is_off = False


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection within: it was a fifth of the time of a copy. Of two threads the first that is through ends it."""
    global _is_off
    if not gc.isenabled():
        yield
        return
    _is_off = True
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _is_off = False


def _collect_in_child() -> None:
    """The thread that would end it is not in a process that another one forked meanwhile."""
    global _is_off
    if _is_off:
        _is_off = False
        gc.enable()


os.register_at_fork(after_in_child=_collect_in_child)
