"""`Authority`: the one row that decides which backend is the authority, and how it may change.

Every change raises the epoch by one: open at e, closing at e + 1, decided or undone at e + 2. So no two states of the
row share an epoch, and what was closed for one of them is not taken for closed by another.

It also names the layout in force. A new layout takes a new epoch, so a caller that is refused because of its epoch has
read no row that names the new layout.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from tripstore.errors import StaleLayout


class Backend(Enum):
    """The two stores."""

    LEGACY = "postgres"
    STORE = "schemaless"

    @property
    def other(self) -> Backend:
        return Backend.STORE if self is Backend.LEGACY else Backend.LEGACY


@dataclass(frozen=True, slots=True)
class HandOverFacts:
    """When a hand-over of authority was decided, and the epoch that it began; one that was undone is none."""

    epoch: int
    at: datetime
    #: Of a Postgres that was promoted: it had gone on for a while when that was seen.
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Authority:
    """The row. Two that are equal are the same row: this is what a compare-and-set compares."""

    epoch: int
    backend: Backend
    #: Where a hand-over that has begun leads; None: the backend is open.
    target: Backend | None = None
    #: Of the last hand-over.
    switch_id: str = ""
    since: datetime | None = field(default=None, compare=False)
    who: str = field(default="", compare=False)
    #: The digest of the layout in force, which a row of this epoch has for good; None: no layout was ever put in force.
    layout: str | None = None

    @property
    def is_open(self) -> bool:
        return self.target is None

    @property
    def opened_at(self) -> int:
        """The epoch at which its backend was opened, of a row that is closing, too."""
        return self.epoch if self.is_open else self.epoch - 1

    def is_open_for(self, backend: Backend) -> bool:
        """Whether it says that this backend is to be open."""
        return self.is_open and self.backend is backend

    def closing(self, switch_id: str, who: str = "") -> Authority:
        """A hand-over to the other backend begins."""
        assert self.is_open, self
        return Authority(self.epoch + 1, self.backend, self.backend.other, switch_id, None, who, self.layout)

    def decided(self) -> Authority:
        """The other backend is the authority from now on."""
        assert self.target is not None, self
        return replace(self, epoch=self.epoch + 1, backend=self.target, target=None, since=None)

    def undone(self, who: str = "") -> Authority:
        """It stays as it was, at an epoch of its own."""
        assert self.target is not None, self
        return replace(self, epoch=self.epoch + 1, target=None, since=None, who=who)

    def relaid(self, layout: str) -> Authority:
        """It stays as it was, and another layout is in force from now on."""
        assert self.target is not None, self
        return replace(self, epoch=self.epoch + 1, target=None, since=None, layout=layout)

    def check_layout(self, known: str | None) -> None:
        """Raise `StaleLayout` unless this is the layout in force. None: of a process that goes by no layout."""
        if self.layout is not None and known is not None and known != self.layout:
            raise StaleLayout(known, self.layout)
