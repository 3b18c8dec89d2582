"""The JSON documents of `tripstore mirror`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from schemaless_core.cell.cell import Cell
from tripstore.cli.documents import CellDocument, cell_document
from tripstore.cli.mirror.keys import key_text
from tripstore.migration.mirror.parked import Parked
from tripstore.migration.mirror.status import MirrorStatus


class ForwardDocument(msgspec.Struct, frozen=True):
    """The queue of Postgres: changes that wait, the age of the oldest, those that were set aside."""

    changes: int
    seconds: float
    parked: int


class ReverseDocument(msgspec.Struct, frozen=True):
    """The reverse mirror. While Postgres is the authority it rehearses: it compares, and writes nothing."""

    is_rehearsal: bool
    cells: int
    seconds: float
    parked: int
    halted: str
    unserved: int
    unknown: int


class MirrorStatusDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`; null: the source did not answer."""

    phase: str
    authority: str
    epoch: int
    direction: str | None
    is_fine: bool
    forward: ForwardDocument | None
    reverse: ReverseDocument | None
    advice: list[str]


class DrainDocument(msgspec.Struct, frozen=True):
    """The JSON document of `drain`; `reason` says what is in the way, empty when nothing is left."""

    direction: str
    is_empty: bool
    carried: int
    left: int
    parked: int
    reason: str


class ParkedChangeDocument(msgspec.Struct, frozen=True):
    """A change that was set aside."""

    key: str
    row_key: UUID
    column_name: str
    ref_key: int
    kind: str
    because: str
    attempts: int
    at: datetime


class ParkedChangeList(msgspec.Struct, frozen=True):
    """The JSON document of `parked`."""

    direction: str
    parked: list[ParkedChangeDocument]
    is_complete: bool


class SideDocument(msgspec.Struct, frozen=True):
    """What one backend has under a key; `trouble` when it cannot say."""

    cell: CellDocument | None
    trouble: str | None


class ShowDocument(msgspec.Struct, frozen=True):
    """The JSON document of `show`; not parked in a direction is null."""

    key: str
    is_equal: bool | None
    postgres: SideDocument
    schemaless: SideDocument
    forward: ParkedChangeDocument | None
    reverse: ParkedChangeDocument | None


class RetryDocument(msgspec.Struct, frozen=True):
    """The JSON document of `retry`: how many changes are due now."""

    direction: str
    count: int


class SkipDocument(msgspec.Struct, frozen=True):
    """The JSON document of `skip`."""

    is_done: bool
    keys: list[str]
    #: Parked changes that --all left, since Schemaless cannot do without them.
    left: int = 0


def status_document(seen: MirrorStatus) -> MirrorStatusDocument:
    forward, reverse, row = seen.forward, seen.reverse, seen.authority
    return MirrorStatusDocument(
        phase=str(seen.phase),
        authority=row.backend.value,
        epoch=row.epoch,
        direction=seen.direction,
        is_fine=seen.is_fine,
        forward=None if forward is None else ForwardDocument(*forward),
        reverse=None if reverse is None else ReverseDocument(seen.is_rehearsal, *reverse),
        advice=list(seen.advice()),
    )


def side_document(cell: Cell | None, trouble: str | None) -> SideDocument:
    return SideDocument(None if cell is None else cell_document(cell), trouble)


def parked_document(parked: Parked) -> ParkedChangeDocument:
    key = parked.key
    return ParkedChangeDocument(key_text(key), *key, parked.kind, parked.because, parked.attempts, parked.at)
