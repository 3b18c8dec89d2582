"""The files of a code base: found in a fixed order, each once, and read in the encoding that they declare."""

from __future__ import annotations

import codecs
import io
import os
import stat
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tripstore.audit.findings import Remark

PYTHON = (".py", ".pyw")
SQL = ".sql"
#: Other people's code, and what is made from code. Hidden folders and virtual environments are skipped, too.
SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file and its name below the folder that is looked at, with slashes."""

    name: str
    path: Path

    @property
    def is_sql(self) -> bool:
        return self.path.suffix.lower() == SQL


@dataclass
class SourceTree:
    """A folder, or a single file. What could not be entered is in `unread` after `files()`."""

    root: Path
    exclude: Sequence[str] = ()
    unread: list[Remark] = field(default_factory=list)
    _entered: set[str] = field(default_factory=set)

    def files(self) -> Iterator[SourceFile]:
        """Yield all files of code, sorted by their names within their folders."""
        root = self.root.resolve()
        if root.is_file():
            yield SourceFile(root.name, root)
        else:
            self._entered = {str(root)}
            yield from self._below(root, "")

    def _below(self, folder: Path, prefix: str) -> Iterator[SourceFile]:
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.unread.append(Remark(prefix.rstrip("/") or ".", 0, error.strerror or str(error)))
            return
        for entry in found:
            name = prefix + entry.name
            if entry.name.startswith(".") or self._is_excluded(name):
                continue
            if entry.is_dir():
                if entry.name not in SKIPPED and self._enters(entry):
                    yield from self._below(Path(entry.path), f"{name}/")
            elif Path(entry.name).suffix.lower() in (*PYTHON, SQL) and self._is_read(entry, name):
                yield SourceFile(name, Path(entry.path))

    def _enters(self, entry: os.DirEntry[str]) -> bool:
        """A link is followed to where nobody has been: not up, not into what is walked anyway."""
        if os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
            return False
        real = os.path.realpath(entry.path)
        if entry.is_symlink() and (self._is_inside(real) or self._is_above(real)):
            return False
        is_new = real not in self._entered
        self._entered.add(real)
        return is_new

    def _is_read(self, entry: os.DirEntry[str], name: str) -> bool:
        if entry.is_symlink():
            real = os.path.realpath(entry.path)
            if self._is_inside(real) and os.path.exists(real):
                return False  # met under its own name
        try:
            return stat.S_ISREG(entry.stat().st_mode)
        except OSError as error:
            self.unread.append(Remark(name, 0, error.strerror or str(error)))
            return False

    def _is_inside(self, real: str) -> bool:
        return Path(real).is_relative_to(self.root.resolve())

    def _is_above(self, real: str) -> bool:
        return self.root.resolve().is_relative_to(real)

    def _is_excluded(self, name: str) -> bool:
        """A pattern without a slash means any file or folder of that name, one with a slash the whole path."""
        last = name.rsplit("/", 1)[-1]
        return any(fnmatchcase(name if "/" in glob.rstrip("/") else last, glob.rstrip("/")) for glob in self.exclude)


def read(file: SourceFile) -> str:
    """Read a file with its lines ended by newlines alone. Raise OSError, SyntaxError or UnicodeError."""
    data = file.path.read_bytes()
    if file.is_sql:
        text = _sql_text(data)
    else:
        encoding, _lines = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _sql_text(data: bytes) -> str:
    for bom, encoding in _BOMS.items():
        if data.startswith(bom):
            return data.decode(encoding)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")  # names of tables are nearly always ASCII, whatever the texts are
