"""The file of a layout, read strictly; complaints name the file and the place in it."""

from __future__ import annotations

from pathlib import Path

import yaml

from schemaless_core.definitions.documents import DocumentPlace
from schemaless_core.strict_yaml import TooMuch, Twice, load_strict


def read_yaml(path: Path, place: DocumentPlace) -> object:
    """Return what a file holds; a complaint about the path points to `place`, one about its text to the file."""
    try:
        return load_strict(path.read_text(encoding="utf-8"))
    except OSError as problem:
        reason = f"{str(path)!r} cannot be read ({problem.strerror})"
        hint = "Name an existing file; `tripstore init --from` writes one."
        raise place.complaint(reason, hint) from problem
    except UnicodeDecodeError:
        raise DocumentPlace(str(path)).complaint("is no text in UTF-8", "Write the layout as YAML.") from None
    except Twice as problem:
        raise DocumentPlace(str(path), _at(problem)).complaint(str(problem.problem), "Leave one of them out.") from None
    except TooMuch as problem:
        raise DocumentPlace(str(path), _at(problem)).complaint(str(problem.problem), "Write it out.") from None
    except (yaml.YAMLError, ValueError) as problem:
        hint = "Mend it; texts with special characters stand in quotes."
        raise DocumentPlace(str(path), _at(problem)).complaint("is no YAML", hint) from None


def _at(problem: Exception) -> str:
    mark = getattr(problem, "problem_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
