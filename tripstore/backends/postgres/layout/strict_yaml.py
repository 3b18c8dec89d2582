"""YAML that a person wrote, read strictly: a key that stands there twice is refused, not silently lost."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import yaml

from schemaless_core.indexes.documents import Place
from schemaless_core.urls import shown_setting

_MERGE = "tag:yaml.org,2002:merge"


class _Twice(yaml.MarkedYAMLError):
    """A mapping names a key twice."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses mappings that name a key twice; YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[object] = set()
        for key_node, _value in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise _Twice(problem=f"names {shown_setting(key)} twice", problem_mark=key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, place: Place) -> object:
    """Return what a file holds; a complaint about the path points to `place`, one about its text to the file."""
    try:
        # The loader is a safe one.
        return yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
    except OSError as problem:
        reason = f"{str(path)!r} cannot be read ({problem.strerror})"
        hint = "Name an existing file; `tripstore init --from` writes one."
        raise place.complaint(reason, hint) from problem
    except UnicodeDecodeError:
        raise Place(str(path)).complaint("is no text in UTF-8", "Write the layout as YAML.") from None
    except _Twice as problem:
        raise Place(str(path), _at(problem)).complaint(str(problem.problem), "Leave one of them out.") from None
    except (yaml.YAMLError, ValueError) as problem:
        hint = "Mend it; texts with special characters stand in quotes."
        raise Place(str(path), _at(problem)).complaint("is no YAML", hint) from None


def _at(problem: Exception) -> str:
    mark = getattr(problem, "problem_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
