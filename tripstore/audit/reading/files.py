"""The files of a code base: found in a fixed order, each once, and read in the encoding that they declare.

Code that cannot be read is named: links that lead in a circle, files that are too large, other encodings.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tripstore.audit.findings import Remark
from tripstore.audit.reading.notebooks import notebook_source

PYTHON = (".py", ".pyw")
NOTEBOOK = ".ipynb"
SQL = (".sql", ".psql", ".pgsql", ".ddl")
#: A dump is no code; parsing takes a hundred times the memory.
BYTES_MAX = 16 * 1024 * 1024
_SHEBANG = re.compile(rb"#!.*\bpython[\d.]*\b")
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
        return self.path.suffix.lower() in SQL

    @property
    def is_notebook(self) -> bool:
        return self.path.suffix.lower() == NOTEBOOK


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
            try:
                is_folder = entry.is_dir()
            except OSError as error:  # a link that leads to itself
                self.unread.append(Remark(name, 0, error.strerror or str(error)))
                continue
            if is_folder:
                if entry.name not in SKIPPED and self._enters(entry):
                    yield from self._below(Path(entry.path), f"{name}/")
            elif self._is_code(entry, name) and self._is_read(entry, name):
                yield SourceFile(name, Path(entry.path))

    def _is_code(self, entry: os.DirEntry[str], name: str) -> bool:
        """By its suffix; a file without one by its first line. One that cannot be read may be code: it is named."""
        suffix = Path(entry.name).suffix.lower()
        if suffix:
            return suffix in (*PYTHON, NOTEBOOK, *SQL)
        try:
            if not stat.S_ISREG(entry.stat().st_mode):
                return False
            with open(entry.path, "rb") as file:
                return _SHEBANG.match(file.readline(200)) is not None
        except OSError as error:
            self.unread.append(Remark(name, 0, error.strerror or str(error)))
            return False

    def _enters(self, entry: os.DirEntry[str]) -> bool:
        """A link is followed to a place that was not walked yet: not up, not into what is walked anyway."""
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
            found = entry.stat()
        except OSError as error:
            self.unread.append(Remark(name, 0, error.strerror or str(error)))
            return False
        if found.st_size > BYTES_MAX:
            self.unread.append(
                Remark(name, 0, f"is too large: {found.st_size:,} bytes (--exclude it, if it is a dump)")
            )
            return False
        return stat.S_ISREG(found.st_mode)

    def _is_inside(self, real: str) -> bool:
        return Path(real).is_relative_to(self.root.resolve())

    def _is_above(self, real: str) -> bool:
        return self.root.resolve().is_relative_to(real)

    def _is_excluded(self, name: str) -> bool:
        """A pattern without a slash means any file or folder of that name, one with a slash the whole path."""
        last = name.rsplit("/", 1)[-1]
        return any(fnmatchcase(name if "/" in glob.rstrip("/") else last, glob.rstrip("/")) for glob in self.exclude)


def read(file: SourceFile) -> str:
    """Read a file with its lines ended by newlines alone. Raise OSError, SyntaxError or ValueError."""
    data = file.path.read_bytes()
    if file.is_sql:
        text = _sql_text(data)
    elif file.is_notebook:
        text = notebook_source(data)
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
