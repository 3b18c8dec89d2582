"""`BackupFolder`: where backups are kept: a folder of this machine, or whatever fsspec knows by its URL.

A file is written whole or not at all, and never changed. Names have one slash: the backup's, then the file's.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from schemaless_core.errors import BackupDamaged, FolderUnavailable, InvalidRequest

T = TypeVar("T")

#: Rows of every user are in these files.
FILE_MODE, FOLDER_MODE = 0o600, 0o700
_PARTIAL = ".partial-"
_LOCAL = ("file://", "local://")


class BackupFolder(Protocol):
    """Raises `FolderUnavailable` where it cannot be read or written."""

    #: As the operator wrote it.
    place: str

    def write(self, name: str, data: bytes) -> None:
        """Keep a file: all of it is on its disk when this returns. One of that name is replaced by a whole one."""
        ...

    def read(self, name: str) -> bytes:
        """Return a file; `BackupDamaged` if it is not there."""
        ...

    def size(self, name: str) -> int | None:
        """Return how many bytes a file has; None: it is not there."""
        ...

    def backups(self) -> list[str]:
        """Return the names before the slash, in order."""
        ...


def open_folder(place: str) -> BackupFolder:
    """A path, or a URL such as s3://bucket/folder. Nothing is made before something is written."""
    if "://" not in place or place.startswith(_LOCAL):
        return LocalFolder(place)
    if secret := _secret_of(place):  # it would stand in the job, and in messages
        hint = "Leave it out: fsspec finds credentials in the environment, and in its configuration."
        raise InvalidRequest(f"The URL of the folder has {secret}.", hint=hint)
    return UrlFolder(place)


def _secret_of(url: str) -> str:
    """What of a URL may be a secret; empty: nothing. fsspec chains URLs by `::`, and takes what is no URL, too."""
    logins = (part.partition("://")[2].rpartition("@")[0] for part in url.split("::"))
    if any(":" in login for login in logins):
        return "a password"
    return "a query, where keys and signatures stand" if "?" in url else ""


class LocalFolder:
    """A `BackupFolder` of this machine, or one that is mounted here."""

    def __init__(self, place: str) -> None:
        self.place = place
        path = next((place.removeprefix(scheme) for scheme in _LOCAL if place.startswith(scheme)), place)
        self._path = Path(path).expanduser()

    def write(self, name: str, data: bytes) -> None:
        self._asked(lambda: self._write(self._path / name, data), name)

    def read(self, name: str) -> bytes:
        try:
            return self._asked((self._path / name).read_bytes, name)
        except FileNotFoundError:
            raise missing(name, self.place) from None

    def size(self, name: str) -> int | None:
        try:
            return self._asked(lambda: (self._path / name).stat().st_size, name)
        except FileNotFoundError:
            return None

    def backups(self) -> list[str]:
        try:
            return self._asked(lambda: sorted(each.name for each in self._path.iterdir() if each.is_dir()))
        except FileNotFoundError:
            return []

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        partial = path.parent / f"{_PARTIAL}{path.name}-{secrets.token_hex(4)}"
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        for folder in (path.parent, path.parent.parent):  # the names, too, are there after a loss of power
            opened = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)

    def _asked(self, verb: Callable[[], T], name: str = "") -> T:
        try:
            return verb()
        except FileNotFoundError:
            raise
        except OSError as problem:
            raise FolderUnavailable(self.place, problem.strerror or type(problem).__name__, name) from problem


class UrlFolder:
    """A `BackupFolder` by a URL that fsspec knows. Object stores keep an object whole or not at all."""

    def __init__(self, place: str) -> None:
        self.place = place
        try:
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # it brings no types
        except ImportError:
            hint = "Install it: pip install 'tripstore[backup]'; for s3:// 'tripstore[backup,s3]'."
            raise InvalidRequest(f"{place} needs fsspec, which is not installed.", hint=hint) from None
        try:
            self._files, path = url_to_fs(place)
        except ImportError as problem:  # it says what to install
            raise InvalidRequest(f"{place} cannot be opened.", hint=f"{problem}") from None
        except ValueError as problem:
            hint = "Write a URL of a scheme that fsspec knows, or the path of a folder; credentials are configured."
            raise InvalidRequest(f"{place} cannot be opened ({_told(problem)}).", hint=hint) from None
        except Exception as problem:  # noqa: BLE001 - some connect at once, each with errors of its own
            raise FolderUnavailable(place, _told(problem)) from None
        self._root = str(path).rstrip("/")

    def write(self, name: str, data: bytes) -> None:
        folder = name.rpartition("/")[0]
        try:
            self._asked(lambda: self._files.makedirs(f"{self._root}/{folder}", exist_ok=True), name)
            self._asked(lambda: self._files.pipe_file(f"{self._root}/{name}", data), name)
        except FileNotFoundError as problem:  # of the bucket
            raise FolderUnavailable(self.place, _told(problem), name) from None

    def read(self, name: str) -> bytes:
        try:
            return bytes(self._asked(lambda: self._files.cat_file(f"{self._root}/{name}"), name))
        except FileNotFoundError:
            raise missing(name, self.place) from None

    def size(self, name: str) -> int | None:
        try:
            self._asked(self._files.invalidate_cache)
            return int(self._asked(lambda: self._files.size(f"{self._root}/{name}"), name))
        except FileNotFoundError:
            return None

    def backups(self) -> list[str]:
        try:
            self._asked(self._files.invalidate_cache)
            found: list[dict[str, Any]] = self._asked(lambda: self._files.ls(self._root, detail=True))
        except FileNotFoundError:
            return []
        return sorted(str(each["name"]).rpartition("/")[2] for each in found if each["type"] == "directory")

    def _asked(self, verb: Callable[[], T], name: str = "") -> T:
        try:
            return verb()
        except FileNotFoundError:
            raise
        except Exception as problem:  # noqa: BLE001 - each library behind a URL has errors of its own
            raise FolderUnavailable(self.place, _told(problem), name) from None


def _told(problem: BaseException) -> str:
    """What went wrong, in no words of a library: those may repeat a URL that is signed, or a login."""
    names = type(problem).__name__
    if problem.__cause__ is not None:  # what an object store answered
        names += f" of {type(problem.__cause__).__name__}"
    is_known = isinstance(problem, OSError) and isinstance(problem.errno, int)
    return f"{names}: {os.strerror(problem.errno)}" if is_known else names  # type: ignore[attr-defined]  # is_known


def missing(name: str, place: str) -> BackupDamaged:
    return BackupDamaged(name, f"is not in {place}")
