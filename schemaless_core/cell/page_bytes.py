"""How large a page may be: it ends with the cell that brings its bodies to the bound, and has one at least.

A page that is shorter than asked is not the last one: a history and a log go on behind it, until one is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell

T = TypeVar("T")

#: Bodies of one page, all its shards together.
PAGE_BYTES = 32 * 1024 * 1024


def bound() -> int:
    """In force now: tests lower it."""
    return PAGE_BYTES


def is_last(page: Sequence[Cell], limit: int) -> bool:
    """Whether nothing comes behind a page of so many cells at most: it is short, and not because of its bytes."""
    if len(page) >= limit:
        return False
    # Stored bytes that are not canonical may be more than these.
    return sum(len(canonical_bytes(cell.body)) for cell in page) < bound() // 2


def fitting(sizes: Iterable[int], left: int | None = None) -> int:
    """How many cells of these sizes a page has room for."""
    room = bound() if left is None else left
    count = 0
    for size in sizes:
        count += 1
        room -= size
        if room <= 0:
            break
    return count


def halves(what: Sequence[T]) -> tuple[list[T], list[T]]:
    """Two parts of what was too large for a server, in order."""
    middle = len(what) // 2
    return [*what[:middle]], [*what[middle:]]
