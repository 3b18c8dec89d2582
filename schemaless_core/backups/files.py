"""`FilePage` and the files that are made of them: what leads from one added id to another, each page compressed alone.

A file begins with its format. Each page follows with its length, and a zstd frame of its head, the added ids that were
purged, and its records. A frame has a checksum of its own, beside that of the file in the manifest.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from schemaless_core.backups.compression import compressed, decompressed
from schemaless_core.backups.folders import BackupFolder
from schemaless_core.backups.records import decoded
from schemaless_core.engine.copies import CellRecord
from schemaless_core.errors import BackupDamaged

MAGIC = b"tripstore backup 1\n"
#: First and last added id of a page, how many of its ids are purged, how many cells it has.
_PAGE = struct.Struct(">QQII")
_LENGTH = struct.Struct(">I")
_ID_BYTES = 8


class FilePage(NamedTuple):
    """A part of a log: each added id from the first to the last has a record, or is among the purged."""

    first: int
    last: int
    purged: Sequence[int]
    cells: int
    #: In no order.
    records: bytes

    @property
    def bytes(self) -> int:
        """Before they are compressed."""
        return len(self.records) + _ID_BYTES * len(self.purged)

    def decoded(self) -> list[CellRecord]:
        """Its cells in order; `ValueError` unless they and the purged are all that it leads over."""
        found = sorted(decoded(self.records))
        if len(found) != self.cells:
            raise ValueError("cells are missing")
        if not self.last:
            return found
        ids = {cell.added_id for cell in found}.union(self.purged)
        if len(found) + len(self.purged) != self.last - self.first + 1 or len(ids) != len(found) + len(self.purged):
            raise ValueError("added ids are missing, or twice there")
        if min(ids, default=self.first) != self.first or max(ids, default=self.last) != self.last:
            raise ValueError("added ids are not those of the page")
        return found


class StoredFile(msgspec.Struct, frozen=True):
    """A file as a manifest names it. `name`: with the backup that it was made for."""

    name: str
    bytes: int
    sha256: str


def frame_of(page: FilePage) -> bytes:
    """A page as it stands in a file."""
    head = _PAGE.pack(page.first, page.last, len(page.purged), page.cells)
    ids = struct.pack(f">{len(page.purged)}Q", *page.purged)
    frame = compressed(head + ids + page.records)
    return _LENGTH.pack(len(frame)) + frame


def keep(folder: BackupFolder, name: str, frames: Iterable[bytes]) -> StoredFile:
    """Write a file of pages."""
    return keep_bytes(folder, name, MAGIC + b"".join(frames))


def keep_bytes(folder: BackupFolder, name: str, data: bytes) -> StoredFile:
    """Write a file of whatever it is."""
    folder.write(name, data)
    return StoredFile(name, len(data), hashlib.sha256(data).hexdigest())


def read_bytes(folder: BackupFolder, file: StoredFile) -> bytes:
    """Return a file that is as its manifest says; else `BackupDamaged`.

    One that is not is read once more: an object store's answer may have been cut on its way.
    """
    data = folder.read(file.name)
    if _damage(file, data):
        data = folder.read(file.name)
    if damage := _damage(file, data):
        raise BackupDamaged(file.name, damage)
    return data


def _damage(file: StoredFile, data: bytes) -> str:
    if len(data) != file.bytes:
        return f"has {len(data):,} bytes, and not {file.bytes:,}"
    if hashlib.sha256(data).hexdigest() != file.sha256:
        return "has other bytes than were written: its checksum differs"
    return ""


def pages(folder: BackupFolder, file: StoredFile) -> Iterator[FilePage]:
    """Yield the pages of a file that is as its manifest says."""
    data = read_bytes(folder, file)
    if not data.startswith(MAGIC):
        raise BackupDamaged(file.name, "is of a format that this version does not know")
    at = len(MAGIC)
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + size
        yield _page(file, data[at - size : at])


def _page(file: StoredFile, frame: bytes) -> FilePage:
    try:
        plain = decompressed(frame)
        first, last, purged, cells = _PAGE.unpack_from(plain)
        at = _PAGE.size + _ID_BYTES * purged
        ids = struct.unpack_from(f">{purged}Q", plain, _PAGE.size)
    except (ValueError, struct.error) as problem:
        raise BackupDamaged(file.name, f"cannot be read ({problem})") from problem
    return FilePage(first, last, ids, cells, plain[at:])
