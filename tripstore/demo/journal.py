"""What a writer was promised: one line per acknowledged cell, on its way to the disk before the next call is made.

The journal is the demo's witness. It outlives the writer, also one that is killed with -9.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import md5
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

import msgspec

from schemaless_core.cell.answers import PutResult, PutStatus
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell, CellKey


class Acknowledged(msgspec.Struct, frozen=True):
    """A cell that the store said it has."""

    row_key: UUID
    column_name: str
    ref_key: int
    digest: str
    status: PutStatus
    shard: int
    added_id: int | None
    at: float
    """The monotonic clock of this machine, which its processes share."""
    seconds: float | None
    """How long the put took, when it was a put of one cell."""

    @property
    def key(self) -> CellKey:
        return CellKey(self.row_key, self.column_name, self.ref_key)


def acknowledged(cell: Cell, result: PutResult, at: float, seconds: float | None) -> Acknowledged:
    return Acknowledged(*cell.key, digest(cell), result.status, result.shard, result.added_id, at, seconds)


def digest(cell: Cell) -> str:
    """Stand for a body by its canonical bytes."""
    return md5(canonical_bytes(cell.body), usedforsecurity=False).hexdigest()


class Journal:
    """Appends lines, unbuffered."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, entries: Iterable[Acknowledged]) -> None:
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        if lines:
            os.write(self._descriptor, lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def read_journal(path: Path) -> list[Acknowledged]:
    """Return all whole lines; one that a kill tore in two was never a promise to a caller."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    decode = msgspec.json.Decoder(Acknowledged).decode
    return [decode(line) for line in lines]
