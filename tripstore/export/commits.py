"""`ExportFolder`: which files of a folder count, decided by one chain of commits, and the way of a file to its place.

A commit is a file with the next number. It comes to be by a hard link, which fails where the number is taken: so of
two processes one commits, whatever either of them knows of the other. A data file is written under a new name, synced,
named by a commit, and only then moved to where readers look. The next process moves what a dead one left.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import BinaryIO
from uuid import UUID, uuid4

import msgspec

from schemaless_core.failpoints import reach
from schemaless_core.process.private import FOLDER_OWNER_ONLY, private
from tripstore.export.errors import ExportOvertaken, ExportRefused

#: Of the folder; what else is in it are the files of columns.
OWN_FOLDER = "_tripstore"
_NEW = ".new"
#: What file systems without hard links answer.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


class ExportedFile(msgspec.Struct, frozen=True):
    """A data file, or what has come in the place of one."""

    path: str
    #: Under which it was written, until it is moved.
    new: str
    rows: int
    #: By shard the last added id in it.
    shards: dict[int, int]


class TakenBackCell(msgspec.Struct, frozen=True):
    """A cell that was exported, and that a promotion took out of the log."""

    shard: int
    added_id: int
    row_key: UUID
    column: str
    ref_key: int


class ExportPlace(msgspec.Struct, frozen=True, array_like=True):
    """Up to where a shard's log is exported, and the last cell there, by which the log is known again."""

    epoch: int
    added_id: int
    #: The last cell's added id, and the digest of its key. 0: not known.
    seen_id: int = 0
    seen: str = ""


class ExportCommit(msgspec.Struct, frozen=True):
    """What one commit adds, replaces and removes, and how far each shard is then."""

    number: int
    at: datetime
    datastore: str
    #: None: all.
    columns: tuple[str, ...] | None
    places: dict[int, ExportPlace]
    files: tuple[ExportedFile, ...] = ()
    removed: tuple[str, ...] = ()
    lost: tuple[TakenBackCell, ...] = ()
    #: Lost cells of this and earlier commits of which no run has told yet: one that died tells nothing.
    untold: tuple[TakenBackCell, ...] = ()
    #: By column and field, values that are in the body alone since they are not of the field's type.
    misfits: dict[str, int] = {}


class ExportFolder:
    """One folder, and the newest commit that this process knows of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._commits = path / OWN_FOLDER / "commits"
        self._new = path / OWN_FOLDER / "new"
        self.last: ExportCommit | None = self._newest()
        #: What was written for the next commit.
        self._written: list[str] = []

    def check(self, datastore: str, columns: tuple[str, ...] | None) -> None:
        """Refuse a folder that has anything but an export of this datastore and these columns."""
        if self.last is None:
            others = sorted(each.name for each in self.path.iterdir()) if self.path.exists() else []
            if [name for name in others if name != OWN_FOLDER]:
                raise ExportRefused(f"{self.path} has files that are no export.", hint="Name an empty folder.")
            return
        if self.last.datastore != datastore:
            raise ExportRefused(
                f"{self.path} is an export of the datastore {self.last.datastore}, not of {datastore}.",
                hint="Name another folder.",
            )
        if self.last.columns != columns:
            named = (
                "without --columns" if self.last.columns is None else f"with --columns {','.join(self.last.columns)}"
            )
            raise ExportRefused(
                f"{self.path} was begun {named}: cells that were passed over would be missing.",
                hint="Name the same columns, or another folder.",
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes of this host out until the block ends; the commits do that for all others."""
        self.path.mkdir(parents=True, exist_ok=True, mode=FOLDER_OWNER_ONLY)
        for folder in (self.path / OWN_FOLDER, self._commits, self._new):
            folder.mkdir(exist_ok=True, mode=FOLDER_OWNER_ONLY)
        _sync(self.path)
        _sync(self.path / OWN_FOLDER)
        with open(self.path / OWN_FOLDER / "lock", "ab", opener=private) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ExportOvertaken(self.path) from None
            self.last = self._newest()
            self._settle()
            self._forget_dead()
            try:
                yield
            finally:
                self._drop()

    @property
    def next_number(self) -> int:
        return 1 if self.last is None else self.last.number + 1

    @contextmanager
    def new_file(self) -> Iterator[tuple[str, BinaryIO]]:
        """Lend a file for the next commit, with its name; it is on the disk when the block ends."""
        name = f"{self.next_number:010d}-{uuid4().hex}-{_kernel()}{_NEW}"
        self._written.append(name)
        with open(self._new / name, "xb", opener=private) as file:
            yield name, file
            file.flush()
            os.fsync(file.fileno())
        reach("export.file_written")

    def commit(self, commit: ExportCommit) -> None:
        """Have all of it count, or nothing: `ExportOvertaken` when the number is another process's.

        `ExportRefused` where there are no hard links.
        """
        content = msgspec.json.encode(commit)
        with self.new_file() as (name, file):
            file.write(content)
        _sync(self._new)
        reach("export.before_commit")
        written, self._written = self._written, []  # from here on they may count
        try:
            os.link(self._new / name, self._file(commit.number))
        except OSError as error:
            self._judge(error, commit.number, content, written)
        _sync(self._commits)
        reach("export.committed")
        self.last = commit
        self._settle()

    def commits(self) -> Iterator[ExportCommit]:
        """All of them, the newest first."""
        for number in range(0 if self.last is None else self.last.number, 0, -1):
            yield self._read(number)

    def files(self) -> Mapping[str, ExportedFile]:
        """The files that count, by their path."""
        found: dict[str, ExportedFile] = {}
        gone: set[str] = set()
        for commit in self.commits():
            found = {each.path: each for each in commit.files if each.path not in gone} | found
            gone.update(commit.removed)
        return found

    def _judge(self, error: OSError, number: int, content: bytes, written: Sequence[str]) -> None:
        """Raise what an error of a link means; nothing where the link is there: a network may repeat what succeeded."""
        with suppress(FileNotFoundError):
            if self._file(number).read_bytes() == content:
                return
            self._drop(written)
            raise ExportOvertaken(self.path) from None
        if isinstance(error, FileNotFoundError):  # the other one has removed ours by now
            raise ExportOvertaken(self.path) from None
        if error.errno in _NO_LINKS:
            self._drop(written)
            raise ExportRefused(
                f"The file system of {self.path} has no hard links, by which commits come to be.",
                hint="Export into a folder of a local disk, and copy it from there.",
            ) from None
        raise error

    def _newest(self) -> ExportCommit | None:
        numbers = [int(each.stem) for each in self._commits.glob("[0-9]*.json")]
        return self._read(max(numbers)) if numbers else None

    def _read(self, number: int) -> ExportCommit:
        return msgspec.json.decode(self._file(number).read_bytes(), type=ExportCommit)

    def _file(self, number: int) -> Path:
        return self._commits / f"{number:010d}.json"

    def _settle(self) -> None:
        """Move and remove what the newest commit says. All before it was settled before there could be another one."""
        if self.last is None:
            return
        _sync(self._commits)  # a process that died right after its link did not
        for each in self.last.files:
            place = self.path / each.path
            for folder in (place.parent.parent, place.parent):
                folder.mkdir(exist_ok=True, mode=FOLDER_OWNER_ONLY)
            with suppress(FileNotFoundError):  # it was moved
                os.replace(self._new / each.new, place)
            _sync(place.parent)
            _sync(place.parent.parent)
            reach("export.file_moved")
        for path in self.last.removed:
            (self.path / path).unlink(missing_ok=True)
            _sync((self.path / path).parent)
        _sync(self.path)
        self._forget()

    def _forget(self) -> None:
        """Remove what was written for a number that is taken: it can be committed no more."""
        for each in self._new.glob(f"*{_NEW}"):
            if int(each.name.partition("-")[0]) < self.next_number:
                each.unlink(missing_ok=True)

    def _forget_dead(self) -> None:
        """Remove what processes of this kernel have left: all of them are kept out by the lock, so they are dead."""
        for each in self._new.glob(f"*-{_kernel()}{_NEW}"):
            each.unlink(missing_ok=True)

    def _drop(self, names: Sequence[str] | None = None) -> None:
        """Remove what this process wrote and did not commit."""
        for name in self._written if names is None else names:
            (self._new / name).unlink(missing_ok=True)
        self._written = []


@cache
def _kernel() -> str:
    """The boot of this machine: between its processes the lock holds, in containers too."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:  # another system: nothing is known to be dead
        return uuid4().hex


def _sync(folder: Path) -> None:
    """Have the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
