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
from schemaless_core.cell.page_bytes import is_last
from schemaless_core.store import CellStore
from tripstore.engines.validation.diff.suspects import CELLS_PER_LOOK, READ_SECONDS

VERSIONS_PER_PAGE = 100


class Versions(Protocol):
    """Knows what a store has of a column that cannot be read as a whole."""

    def ref_keys(self, store: CellStore, key: ColumnKey) -> Sequence[int]:
        """Of every version that it has, readable or not. Raises nothing for what it has forgotten: that is left out."""
        ...

    def is_forgotten(self, store: CellStore, key: CellKey) -> bool:
        """Whether a version of which the store says that it never was may have been all the same."""
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
        self._forgotten = forgotten
        self._unreadable = unreadable
        self._apart: tuple[type[BaseException], ...] = (msgspec.MsgspecError, *forgotten, *unreadable)

    def read(self, store: CellStore, key: ColumnKey) -> Mapping[int, Seen]:
        """All that a store has of a column, by ref key. Raises what a store raises that does not answer."""
        store = store.using(deadline=READ_SECONDS)
        try:
            return _together(store, key)
        except self._apart:
            return self._each(store, key)

    def find(self, store: CellStore, key: CellKey) -> Seen | Forgotten | None:
        """One version; None: it never was."""
        store = store.using(deadline=READ_SECONDS)
        try:
            found = store.get_cell(*key)
        except self._forgotten:
            return FORGOTTEN
        except msgspec.MsgspecError as error:
            return Unread(str(error), is_torn=True)
        except self._unreadable as error:
            return Unread(str(error))
        return FORGOTTEN if found is None and self._versions.is_forgotten(store, key) else found

    def _each(self, store: CellStore, key: ColumnKey) -> dict[int, Seen]:
        keys = [CellKey(*key, ref_key) for ref_key in self._versions.ref_keys(store, key)]
        found: dict[int, Seen] = {}
        for first in range(0, len(keys), CELLS_PER_LOOK):
            portion = keys[first : first + CELLS_PER_LOOK]
            for each, seen in zip(portion, self._seen(store, portion), strict=True):
                # What it lists and has no more, it has forgotten meanwhile: the caller asks for what it misses.
                if seen is not None and seen is not FORGOTTEN:
                    found[each.ref_key] = seen
        return found

    def _seen(self, store: CellStore, keys: Sequence[CellKey]) -> Sequence[Seen | Forgotten | None]:
        try:
            return store.get_cells(keys)
        except self._apart:
            return [self.find(store, key) for key in keys]


def _together(store: CellStore, key: ColumnKey) -> dict[int, Seen]:
    found: dict[int, Seen] = {}
    before: int | None = None
    while True:
        page = store.get_history(*key, before=before, limit=VERSIONS_PER_PAGE)
        found.update((cell.ref_key, cell) for cell in page)
        if is_last(page, VERSIONS_PER_PAGE):
            return found
        before = page[-1].ref_key
