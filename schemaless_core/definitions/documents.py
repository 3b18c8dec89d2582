"""Documents that describe indexes: where they are found, and complaints that say where in which of them.

Knows YAML and places, not what an index is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from schemaless_core.errors import InvalidConfig, shown
from schemaless_core.strict_yaml import load_strict
from schemaless_core.urls import shown_setting

#: What articles and word processors make of a hyphen.
_DASHED = re.compile(r"\s*([\u2010-\u2015\u2212\uff0d])")


class DocumentPlace(NamedTuple):
    """Where a complaint points to: a file or an element of the list, and the key in it."""

    source: str
    path: str = ""

    def under(self, key: str) -> DocumentPlace:
        return DocumentPlace(self.source, f"{self.path}.{key}" if self.path else key)

    def complaint(self, reason: str, hint: str | None) -> InvalidConfig:
        return InvalidConfig(f"{self.source}: {self.path}" if self.path else self.source, reason, hint=hint)

    def mapping(self, value: object, known: tuple[str, ...], required: tuple[str, ...]) -> dict[str, Any]:
        """Return the mapping that stands here, or refuse it."""
        self.refuse_dash(value if isinstance(value, dict) else [value])
        if not isinstance(value, dict):
            raise self.complaint(f"{shown_setting(value)} is no mapping", f"Write its keys: {', '.join(known)}.")
        for key in value:
            if key not in known:
                name = key if isinstance(key, str) and key.isidentifier() else shown_setting(key)
                raise self.under(name).complaint("is no known key", meant(key, known, "Known keys"))
        for key in required:
            if key not in value:
                raise self.under(key).complaint("is missing", f"Add {key}; the keys here are {', '.join(known)}.")
        return value

    def elements(self, value: object, example: str) -> list[tuple[object, DocumentPlace]]:
        """Return the elements of the list that stands here, each with its place; it must not be empty."""
        self.refuse_dash(value if isinstance(value, dict) else [value])
        if not isinstance(value, list) or not value:
            reason = "is empty" if isinstance(value, list) else f"{shown_setting(value)} is no list"
            raise self.complaint(reason, f"Write {example}.")
        return [(element, DocumentPlace(self.source, f"{self.path}[{number}]")) for number, element in enumerate(value)]

    def refuse_dash(self, texts: Iterable[object]) -> None:
        """Name what a pasted document suffers from: a dash that only looks like a hyphen is text to YAML."""
        for text in texts:
            if isinstance(text, str) and (match := _DASHED.match(text)):
                dash = match.group(1)
                raise self.complaint(
                    f"begins with {dash!r} ({unicodedata.name(dash).lower()}), which YAML takes for text",
                    "Begin the items of a list with the ASCII hyphen -; articles and word processors replace it.",
                )


def read_documents(setting: object, folder: Path) -> Iterator[tuple[str, object]]:
    """Every document that a folder, or a list of file names and mappings, holds, with the name of its source."""
    place = DocumentPlace("indexes")
    if setting is None:
        return
    if isinstance(setting, str):
        for path in _files(folder / setting, place):
            yield str(path), _read(path, place)
    elif isinstance(setting, list):
        for number, entry in enumerate(setting):
            place = DocumentPlace(f"indexes[{number}]")
            if isinstance(entry, str):
                place.refuse_dash([entry])
                yield str(folder / entry), _read(folder / entry, place)
            else:
                yield place.source, entry
    else:
        reason = f"{shown_setting(setting)} is neither a folder nor a list"
        raise place.complaint(reason, "Name the folder of their files.")


def meant(name: object, known: Iterable[str], what: str) -> str:
    """The known name that is like this one, or all of them."""
    names, text = list(known), name if isinstance(name, str) else shown(name)
    near = get_close_matches(text[:64].lower(), [entry.lower() for entry in names], n=1)
    same = [entry for entry in names if entry.lower() in near]
    return f"Did you mean {same[0]}?" if same else f"{what}: {', '.join(names)}."


def _files(folder: Path, place: DocumentPlace) -> list[Path]:
    if not folder.is_dir():
        hint = "Name a folder of *.yaml files, one index each; single files stand in a list, [driver_index.yaml]."
        raise place.complaint(f"{str(folder)!r} is no folder", hint)
    return sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())


def _read(path: Path, place: DocumentPlace) -> object:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        reason = f"{str(path)!r} cannot be read ({problem.strerror})"
        raise place.complaint(reason, "Name an existing file.") from problem
    except UnicodeDecodeError:
        raise DocumentPlace(str(path)).complaint("is no text in UTF-8", "Write the definition as YAML.") from None
    for number, line in enumerate(text.splitlines(), start=1):
        DocumentPlace(str(path), f"line {number}").refuse_dash([line])
    try:
        return load_strict(text)
    except (yaml.YAMLError, ValueError) as problem:
        mark = getattr(problem, "problem_mark", None)
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        hint = "Mend it; a file holds one index, and texts with special characters stand in quotes."
        raise DocumentPlace(str(path)).complaint(f"is no YAML{at}", hint) from None
