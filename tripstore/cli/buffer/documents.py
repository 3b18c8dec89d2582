"""The JSON documents of `tripstore buffer`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from schemaless_core.engine.buffers import BufferConflict, BufferSize
from schemaless_core.errors import SchemalessError


class BufferClusterView(msgspec.Struct, frozen=True):
    """What waits in the buffer of one cluster; an error: it did not say."""

    cluster: str
    cells: int | None = None
    bytes: int | None = None
    oldest_at: datetime | None = None
    conflicts: int | None = None
    error: str | None = None


class StatusDocument(msgspec.Struct, frozen=True):
    """The JSON document of `status`."""

    is_configured: bool
    is_fine: bool
    clusters: list[BufferClusterView]


class BufferDrainDocument(msgspec.Struct, frozen=True):
    """The JSON document of `drain`."""

    carried: int
    is_empty: bool
    clusters: list[BufferClusterView]


class ConflictView(msgspec.Struct, frozen=True):
    """A cell that waited, and the body that its shard has under its key."""

    cluster: str
    number: int
    row_key: UUID
    column_name: str
    ref_key: int
    waited: msgspec.Raw
    stored: msgspec.Raw
    kept_at: datetime
    found_at: datetime


class ConflictsDocument(msgspec.Struct, frozen=True):
    """The JSON document of `conflicts`."""

    conflicts: list[ConflictView]
    closed: int
    silent: list[str]


def view(cluster: str, size: BufferSize | SchemalessError) -> BufferClusterView:
    if isinstance(size, SchemalessError):
        return BufferClusterView(cluster, error=size.message)
    return BufferClusterView(cluster, size.cells, size.bytes, size.oldest_at, size.conflicts)


def conflict_view(cluster: str, conflict: BufferConflict) -> ConflictView:
    number, cell, kept_at = conflict.waiting.number, conflict.waiting.cell, conflict.waiting.kept_at
    return ConflictView(
        cluster,
        number,
        UUID(bytes=cell.row_key),
        cell.column_name.decode(),
        cell.ref_key,
        msgspec.Raw(cell.body),
        msgspec.Raw(conflict.stored),
        kept_at,
        conflict.found_at,
    )
