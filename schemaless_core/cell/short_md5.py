"""`short_md5`: the md5 of a few bytes, as `shard_of` and buckets ask for with every row.

OpenSSL's makes a context for each call, which costs more than 16 bytes do; the interpreter's own takes less than half
of the time for them. Not every interpreter has it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import md5
from importlib import import_module
from typing import Protocol, cast


class Digest(Protocol):
    """What is asked of either."""

    def digest(self) -> bytes: ...


def _found() -> Callable[[bytes], Digest]:
    try:
        return cast(Callable[[bytes], Digest], import_module("_md5").md5)
    except ImportError:
        return partial(md5, usedforsecurity=False)


short_md5 = _found()
