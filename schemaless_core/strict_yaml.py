"""YAML that a person wrote, read strictly: a key twice is refused, and so is what is no configuration but a bomb.

The bounds are on what a document means, not on its text: a few lines of aliases may stand for billions of values.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

import yaml

from schemaless_core.urls import shown_setting

DEPTH_MAX = 50
#: With every alias written out.
VALUES_MAX = 100_000
_MERGE = "tag:yaml.org,2002:merge"


class Twice(yaml.MarkedYAMLError):
    """A mapping names a key twice."""


class TooMuch(yaml.MarkedYAMLError):
    """Deeper or larger than any configuration."""


class _Strict(yaml.constructor.SafeConstructor):
    """Refuses mappings that name a key twice; YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[object] = set()
        for key_node, _value in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise Twice(problem=f"names {shown_setting(key)} twice", problem_mark=key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)


class _Loader(_Strict, yaml.SafeLoader):
    """In Python: its complaints are the same wherever it runs."""


#: The same in C, ten times as quick, where PyYAML was built with it.
_CLoader = type("_CLoader", (_Strict, yaml.CSafeLoader), {}) if yaml.__with_libyaml__ else _Loader


def load_strict(text: str) -> object:
    """Return what a text says; raises `yaml.YAMLError`, also for what YAML itself would take, or `ValueError`."""
    try:
        return _loaded(text, _CLoader)
    except (yaml.YAMLError, ValueError):
        return _loaded(text, _Loader)  # which says what is wrong


def _loaded(text: str, kind: type) -> object:
    _refuse_depth(text, kind)
    loader = kind(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _values(root, {})
        return loader.construct_document(root)
    except TypeError:  # a list as a key of a merged mapping, and other shapes that the library trips over
        raise yaml.YAMLError("has a key that is none") from None
    finally:
        loader.dispose()


def _refuse_depth(text: str, kind: type) -> None:
    """From events: what makes nodes of them calls itself for each level."""
    depth = 0
    for event in yaml.parse(text, kind):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            mark = cast("yaml.Mark | None", event.start_mark)  # of the loader in Python, not of the one in C
            raise TooMuch(problem=f"is nested deeper than {DEPTH_MAX} levels", problem_mark=mark)


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for; a node that holds itself has no number."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if (found := known.get(id(node))) is not None:
        if found == 0:
            raise TooMuch(problem="holds itself", problem_mark=node.start_mark)
        return found
    known[id(node)] = 0
    inner = [each for pair in node.value for each in pair] if isinstance(node, yaml.MappingNode) else node.value
    count = 1 + sum(_values(each, known) for each in inner)
    if count > VALUES_MAX:
        raise TooMuch(problem=f"stands for more than {VALUES_MAX:,} values", problem_mark=node.start_mark)
    known[id(node)] = count
    return count
