"""`KeyList`: every difference of a job as lines of JSON, exact after a kill. Each line says which store was the source.

Each holder of a part writes a file of its own, which begins with what the part's checkpoint says was written before.
So neither a line that was written and never saved, nor a holder that lost its part and does not know it, leaves
anything behind. When all parts are done, what their checkpoints say was written, in order, is the list.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, NamedTuple, Protocol

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.errors import InvalidRequest
from tripstore.engines.validation.diff.differences import Difference, from_document
from tripstore.engines.validation.errors import ValidationError

BYTES_PER_COPY = 1 << 20
#: Of a line, beside the difference.
SOURCE = "from"


class InvalidKeyList(ValidationError):
    """A file that is no key list."""


class KeyListElsewhere(ValidationError):
    """What was saved of a part is not where the list is made: the list would lack it."""

    def __init__(self, part: int, folder: Path) -> None:
        super().__init__(
            f"What part {part} of the diff found is not in {folder}: the key list would lack it.",
            hint="Resume it on the machine that began it, or begin another with `tripstore diff start --keys FILE`.",
        )


class Written(NamedTuple):
    """What of a part's lines is saved: in which file, and up to which byte. It stands in the part's checkpoint."""

    file: str = ""
    bytes: int = 0


class PartLines(Protocol):
    """The lines of a part, while a worker holds it."""

    def append(self, found: Sequence[Difference]) -> Written:
        """Write lines; they are on disk when it answers."""
        ...


class NoKeyList:
    """No key list was asked for."""

    def lines(self, part: int, fence: int, written: Written) -> PartLines:
        return self

    def append(self, found: Sequence[Difference]) -> Written:
        return Written()


class KeyList:
    """The list of one job. Its workers share a folder beside the file."""

    def __init__(self, path: Path, job: str, source: str) -> None:
        self._path = path
        self._source = source
        self._folder = path.with_name(f"{path.name}.{job}")
        #: The same, once the list is made: it is only to be removed.
        self._done = self._folder.with_name(f"{self._folder.name}.done")

    def lines(self, part: int, fence: int, written: Written) -> PartLines:
        """For a holder of a part, which goes on after what is saved."""
        self._folder.mkdir(exist_ok=True)
        if written.file and _size(self._folder / written.file) < written.bytes:
            raise KeyListElsewhere(part, self._folder)
        name = f"{part:06d}-{fence:09d}.jsonl"
        file = self._folder / name
        with file.open("wb") as new:
            if written.file:
                _copy(self._folder / written.file, written.bytes, new)
            _flush(new)
        return _Lines(file, self._source)

    def check(self, parts: Mapping[int, Written]) -> None:
        """Raise `KeyListElsewhere` unless what is saved of these parts is here."""
        if self._is_made(parts):
            return
        for part, written in sorted(parts.items()):
            if written.file and _size(self._folder / written.file) < written.bytes:
                raise KeyListElsewhere(part, self._folder)

    def finish(self, parts: Mapping[int, Written]) -> None:
        """All parts are done: make the list. May be repeated, after a kill anywhere."""
        if not self._is_made(parts):
            self.check(parts)
            self._make(parts)
        # Renamed before files go: half a folder must never be taken for a whole one.
        if self._folder.exists():
            shutil.rmtree(self._done, ignore_errors=True)
            self._folder.replace(self._done)
        shutil.rmtree(self._done, ignore_errors=True)

    def _is_made(self, parts: Mapping[int, Written]) -> bool:
        if self._folder.exists():
            return False
        return self._done.exists() or _size(self._path) == sum(written.bytes for written in parts.values())

    def _make(self, parts: Mapping[int, Written]) -> None:
        whole = self._path.with_name(f"{self._path.name}.new")
        with whole.open("wb") as new:
            for _part, written in sorted(parts.items()):
                if written.file:
                    _copy(self._folder / written.file, written.bytes, new)
            _flush(new)
        whole.replace(self._path)


class _Lines:
    def __init__(self, file: Path, source: str) -> None:
        self._file = file
        self._source = source

    def append(self, found: Sequence[Difference]) -> Written:
        with self._file.open("ab") as lines:
            lines.writelines(_line(each, self._source) for each in found)
            _flush(lines)
            return Written(self._file.name, lines.tell())


def check_place(path: Path) -> None:
    """Raise `InvalidRequest` when no list can be written there: before anything is compared, not after it."""
    hint = "Name a file in a folder that there is, and that may be written to."
    if not path.parent.is_dir():
        raise InvalidRequest(f"There is no folder {path.parent}.", hint=hint)
    if path.exists() and not path.is_file():
        raise InvalidRequest(f"{path} is no file.", hint=hint)
    try:
        TemporaryDirectory(prefix=f"{path.name}.", suffix=".beginning", dir=path.parent).cleanup()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written ({error.strerror}).", hint=hint) from error


def write_key_list(path: Path, found: Iterable[Difference], source: str) -> None:
    """A list of its own."""
    with path.open("wb") as lines:
        lines.writelines(_line(each, source) for each in found)


def read_key_list(path: Path) -> Iterator[Difference]:
    """The differences of a list, or `InvalidKeyList`."""
    return (from_document(document) for document in _documents(path))


def source_of(path: Path) -> str | None:
    """Which store was the source of a list's comparison; None: it is empty, or no diff wrote it."""
    found = next(_documents(path), {}).get(SOURCE)
    return None if found is None else str(found)


def _documents(path: Path) -> Iterator[Mapping[str, Json]]:
    """Of differences, all of them."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    document: Mapping[str, Json] = msgspec.json.decode(line)
                    from_document(document)
                except (msgspec.MsgspecError, KeyError, ValueError, TypeError) as error:
                    hint = "`tripstore diff start --keys FILE` writes one."
                    raise InvalidKeyList(f"Line {number} of {path} is no difference ({error}).", hint=hint) from error
                yield document
    except OSError as error:
        raise InvalidKeyList(f"{path} cannot be read ({error.strerror}).", hint="Check the path.") from error


def _line(each: Difference, source: str) -> bytes:
    return msgspec.json.encode({**each.document(), SOURCE: source}) + b"\n"


def _copy(file: Path, size: int, new: BinaryIO) -> None:
    """The first so many bytes, a few at a time: a part may have found millions."""
    with file.open("rb") as old:
        while size and (some := old.read(min(size, BYTES_PER_COPY))):
            new.write(some)
            size -= len(some)


def _size(file: Path) -> int:
    """-1: there is none."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return -1


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
