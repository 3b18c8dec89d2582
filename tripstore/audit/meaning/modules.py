"""The modules of a code base: what their own text says, and which file an import means. None of them is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tripstore.audit.meaning.bindings import Bindings


@dataclass
class Modules:
    """All modules below one folder. Where the import path begins is unknown: the nearest is meant."""

    root: Path
    load: Callable[[str], Bindings]  #: Reads a file: only those are read that something leads to.
    _loaded: dict[str, Bindings] = field(default_factory=dict)
    _files: set[str] = field(default_factory=set)
    _by_last: dict[str, list[tuple[tuple[str, ...], str]]] = field(default_factory=dict)
    _answers: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def add(self, file: str) -> None:
        self._files.add(file)
        parts = self._parts(file)
        if parts:
            self._by_last.setdefault(parts[-1], []).append((parts, file))

    def has(self, file: str) -> bool:
        return file in self._files

    def bindings(self, file: str) -> Bindings:
        if file not in self._loaded:
            self._loaded[file] = self.load(file)
        return self._loaded[file]

    def loaded(self) -> list[tuple[str, Bindings]]:
        """The files that were read so far, in a fixed order."""
        return sorted(self._loaded.items(), key=lambda each: each[0])

    def find(self, module: str, importer: str) -> str | None:
        """The file of `a.b.c`, as seen from a file: of several the one that is nearest to it."""
        if module.rpartition(".")[2] not in self._by_last:
            return None
        folder = importer.rpartition("/")[0]
        if (module, folder) not in self._answers:
            self._answers[module, folder] = self._nearest(tuple(module.split(".")), folder)
        return self._answers[module, folder]

    def find_relative(self, module: str, level: int, importer: str) -> str | None:
        """The file of `from ..a.b import …`."""
        folder = PurePosixPath(importer).parent
        for _ in range(level - 1):
            folder = folder.parent
        name = str(folder.joinpath(*module.split("."))) if module else str(folder)
        return next((file for file in _files(name) if file in self._files), None)

    def _nearest(self, parts: tuple[str, ...], folder: str) -> str | None:
        home = self._parts(f"{folder}/__init__.py" if folder else "__init__.py")
        found = [
            (_shared(full[: -len(parts)], home), file)
            for full, file in self._by_last[parts[-1]]
            if full[-len(parts) :] == parts
        ]
        return min(found, key=lambda each: (-each[0], each[1]))[1] if found else None

    def _parts(self, file: str) -> tuple[str, ...]:
        """A module's full name if the import path began at the root of the disk: any end of it may be imported."""
        path = PurePosixPath(file).with_suffix("")
        inner = path.parent.parts if path.name == "__init__" else path.parts
        base = self.root if self.root.is_dir() else self.root.parent
        return (*base.parts[1:], *inner)


def _shared(left: Iterable[str], right: Iterable[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _files(name: str) -> tuple[str, ...]:
    if name == ".":
        return ("__init__.py",)
    return (f"{name}.py", f"{name}/__init__.py", f"{name}.pyw")
