"""`KeyList`: every difference of a job as lines of JSON, exact after a kill.

Each holder of a part writes a file of its own, which begins with what the part's checkpoint says was written before.
So neither a line that was written and never saved, nor a holder that lost its part and does not know it, leaves
anything behind. When all parts are done, the last holder's file of each, in order, is the list.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import msgspec

from validation.differences import Difference, from_document
from validation.errors import ValidationError


class InvalidKeyList(ValidationError):
    """A file that is no key list."""


class Written(NamedTuple):
    """What of a part's lines is saved: in which file, and up to which byte. It stands in the part's checkpoint."""

    file: str = ""
    bytes: int = 0


class PartLines(Protocol):
    """The lines of a part, while somebody holds it."""

    def append(self, found: Sequence[Difference]) -> Written:
        """Write lines; they are on disk when it answers."""
        ...


class NoKeyList:
    """Nobody wants it."""

    def lines(self, part: int, fence: int, written: Written) -> PartLines:
        return self

    def append(self, found: Sequence[Difference]) -> Written:
        return Written()


class KeyList:
    """The list of one job. Its workers share a folder beside the file."""

    def __init__(self, path: Path, job: str) -> None:
        self._path = path
        self._folder = path.with_name(f"{path.name}.{job}")

    def lines(self, part: int, fence: int, written: Written) -> PartLines:
        """For a holder of a part, who goes on after what is saved."""
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{part:06d}-{fence:09d}.jsonl"
        file = self._folder / name
        with file.open("wb") as new:
            if written.file:
                with (self._folder / written.file).open("rb") as old:
                    new.write(old.read(written.bytes))
            _flush(new)
        return _Lines(file)

    def finish(self) -> None:
        """All parts are done: make the list. May be repeated."""
        last: dict[str, Path] = {}
        for file in sorted(self._folder.glob("*.jsonl")):
            last[file.name.partition("-")[0]] = file
        if not last and self._path.exists():
            return  # it is made
        whole = self._path.with_name(f"{self._path.name}.new")
        with whole.open("wb") as new:
            for part in sorted(last):
                with last[part].open("rb") as lines:
                    shutil.copyfileobj(lines, new)
            _flush(new)
        whole.replace(self._path)
        shutil.rmtree(self._folder, ignore_errors=True)


class _Lines:
    def __init__(self, file: Path) -> None:
        self._file = file

    def append(self, found: Sequence[Difference]) -> Written:
        with self._file.open("ab") as lines:
            lines.writelines(map(_line, found))
            _flush(lines)
            return Written(self._file.name, lines.tell())


def write_key_list(path: Path, found: Iterable[Difference]) -> None:
    """A list of its own."""
    with path.open("wb") as lines:
        lines.writelines(map(_line, found))


def read_key_list(path: Path) -> Iterator[Difference]:
    """The differences of a list, or `InvalidKeyList`."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield from_document(msgspec.json.decode(line))
                except (msgspec.MsgspecError, KeyError, ValueError, TypeError) as error:
                    hint = "`tripstore diff start --keys FILE` writes one."
                    raise InvalidKeyList(f"Line {number} of {path} is no difference ({error}).", hint=hint) from error
    except OSError as error:
        raise InvalidKeyList(f"{path} cannot be read ({error.strerror}).", hint="Check the path.") from error


def _line(each: Difference) -> bytes:
    return msgspec.json.encode(each.document()) + b"\n"


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
