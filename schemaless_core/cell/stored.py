"""Cells as engines pass them: on their way into a shard, and as a shard holds them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class NewCell(NamedTuple):
    """A checked cell on its way into a shard; the body is canonical bytes."""

    row_key: bytes
    column_name: bytes
    ref_key: int
    body: bytes


class StoredCell(NamedTuple):
    """A cell as a shard holds it."""

    added_id: int
    row_key: bytes
    column_name: bytes
    ref_key: int
    body: bytes
    created_at: datetime


class Version(NamedTuple):
    """A cell as a shard holds it, without when it came there: where many are read, that costs as much as the rest."""

    row_key: bytes
    column_name: bytes
    ref_key: int
    body: bytes


class VersionsPage(NamedTuple):
    """All versions that a shard has of some rows, in the order of their keys: a row is in it whole, or not at all."""

    cells: list[Version]
    #: The row key after which the next page begins; None: there is no more.
    after: bytes | None
    #: A row that is larger than a page: nothing of it is here, and the next page begins behind it.
    too_large: bytes | None = None
