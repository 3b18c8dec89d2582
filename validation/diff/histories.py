"""`Histories`: every version of a column that a store has, each by itself where they cannot be read together.

A store may know that it has forgotten versions, and may have one that it cannot give. Neither says anything of the
others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.cell.page_bytes import halves, is_last
from schemaless_core.store import CellStore
from tripstore.engines.validation.diff.suspects import CELLS_PER_LOOK, READ_SECONDS

VERSIONS_PER_PAGE = 100
#: Versions of a column that are read together with those of others. Most have no more.
VERSIONS_TOGETHER = 10


class Versions(Protocol):
    """Knows what a store has of many columns."""

    def newest(self, store: CellStore, keys: Sequence[ColumnKey], limit: int) -> Sequence[Sequence[Cell]]:
        """The newest versions of each, at most so many, newest first, whatever the store has forgotten of them.

        Of the first columns, as many as a page has room for, and of one at least.
        """
        ...

    def ref_keys(self, store: CellStore, key: ColumnKey) -> Sequence[int]:
        """Of every version that it has, readable or not. Raises nothing for what it has forgotten: that is left out."""
        ...

    def find(self, store: CellStore, keys: Sequence[CellKey]) -> Sequence[Cell | Forgotten | None]:
        """Each version; None: it never was."""
        ...


class Unread(NamedTuple):
    """A version that a store has and cannot give."""

    why: str
    is_torn: bool = False  #: Its bytes are no JSON: whatever the other store has is not this.


class Forgotten(Enum):
    """A version that may have been, and that the store knows no more."""

    FORGOTTEN = "forgotten"


FORGOTTEN = Forgotten.FORGOTTEN
Seen = Cell | Unread


class Histories:
    """Reads them, from either store."""

    def __init__(
        self,
        versions: Versions,
        forgotten: tuple[type[BaseException], ...] = (),
        unreadable: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._versions = versions
        self._broken: tuple[type[BaseException], ...] = (msgspec.MsgspecError, *unreadable)
        self._apart = (*self._broken, *forgotten)

    def read(self, store: CellStore, keys: Sequence[ColumnKey]) -> list[Mapping[int, Seen]]:
        """All that a store has of each column, by ref key: of the first columns, that a page has room for.

        Raises what a store raises that does not answer.
        """
        return self._read(store.using(deadline=READ_SECONDS), keys) if keys else []

    def find(self, store: CellStore, keys: Sequence[CellKey]) -> list[Seen | Forgotten | None]:
        """Each version; None: it never was."""
        store = store.using(deadline=READ_SECONDS)
        portions = [keys[first : first + CELLS_PER_LOOK] for first in range(0, len(keys), CELLS_PER_LOOK)]
        return [seen for portion in portions for seen in self._find(store, portion)]

    def _read(self, store: CellStore, keys: Sequence[ColumnKey]) -> list[Mapping[int, Seen]]:
        try:
            pages = self._versions.newest(store, keys, VERSIONS_TOGETHER)
        except self._apart:
            if len(keys) == 1:
                return [self._each(store, keys[0])]
            first, second = halves(keys)
            found = self._read(store, first)
            return found if len(found) < len(first) else [*found, *self._read(store, second)]
        return [self._whole(store, key, page) for key, page in zip(keys, pages, strict=False)]

    def _whole(self, store: CellStore, key: ColumnKey, newest: Sequence[Cell]) -> Mapping[int, Seen]:
        found = {cell.ref_key: cell for cell in newest}
        if len(newest) < VERSIONS_TOGETHER:
            return found
        try:
            return found | _below(store, key, newest[-1].ref_key)
        except self._apart:
            return self._each(store, key)

    def _find(self, store: CellStore, keys: Sequence[CellKey]) -> Sequence[Seen | Forgotten | None]:
        try:
            return self._versions.find(store, keys)
        except self._broken as error:
            if len(keys) == 1:
                return [Unread(str(error), is_torn=isinstance(error, msgspec.MsgspecError))]
        return [seen for half in halves(keys) for seen in self._find(store, half)]

    def _each(self, store: CellStore, key: ColumnKey) -> dict[int, Seen]:
        keys = [CellKey(*key, ref_key) for ref_key in self._versions.ref_keys(store, key)]
        # What it lists and has no more, it has forgotten meanwhile: the caller asks for what it misses.
        return {
            each.ref_key: seen
            for each, seen in zip(keys, self.find(store, keys), strict=True)
            if seen is not None and not isinstance(seen, Forgotten)
        }


def _below(store: CellStore, key: ColumnKey, before: int) -> dict[int, Cell]:
    found: dict[int, Cell] = {}
    while True:
        page = store.get_history(*key, before=before, limit=VERSIONS_PER_PAGE)
        found.update((cell.ref_key, cell) for cell in page)
        if is_last(page, VERSIONS_PER_PAGE):
            return found
        before = page[-1].ref_key
