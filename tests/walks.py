"""Which files of the product a piece of work passes, as Python enters their functions."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parent.parent
#: Importing a file and making its objects is no part of a walk.
_MAKING = frozenset({"<module>", "__init__", "__post_init__"})
PRODUCT = ("backfill", "schemaless_core", "tripstore", "validation")


@dataclass
class Walk:
    """Calls of functions of the product, in the order in which they were begun."""

    calls: int = 0
    #: Calls of a function that stands in another file than its caller.
    changes: int = 0
    #: Each once, in the order in which they were met.
    files: list[str] = field(default_factory=list)

    def note(self, frame: FrameType) -> None:
        file = _of_product(frame.f_code.co_filename)
        if file is None or frame.f_code.co_name in _MAKING:
            return
        self.calls += 1
        self.changes += _caller(frame) not in (None, file)
        if file not in self.files:
            self.files.append(file)


@contextmanager
def walked() -> Iterator[Walk]:
    """Follow this thread, and those that are started meanwhile."""
    walk = Walk()

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            walk.note(frame)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _caller(frame: FrameType) -> str | None:
    """The file of the nearest function of the product that waits for this one."""
    before = frame.f_back
    while before is not None:
        file = _of_product(before.f_code.co_filename)
        if file is not None:
            return file
        before = before.f_back
    return None


@cache
def _of_product(filename: str) -> str | None:
    """The file's place in the repository, behind the links of `tripstore/engines`; None: it is none of ours."""
    if not filename.startswith(str(ROOT)):
        return None
    place = Path(filename).resolve().relative_to(ROOT.resolve()).as_posix()
    return place if place.split("/", 1)[0] in PRODUCT else None
