"""`TRIPSTORE_SET__SHADOW__SHARE=0.05`: keys of the configuration that the environment sets, over those of the file.

A name is a path of keys, in upper case, with two underscores between them; a value is written as in the YAML file. What
is misspelt is refused, and no complaint shows a value: each may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from schemaless_core.errors import InvalidConfig
from schemaless_core.referenced import Referenced
from schemaless_core.strict_yaml import TooMuch, Twice, load_strict

PREFIX = "TRIPSTORE_SET__"
#: What begins like this, and not with the prefix, is one that was meant.
_NEARLY = "TRIPSTORE_SET"
_KEY = re.compile(r"[A-Z0-9]+(_[A-Z0-9]+)*")
_HINT = f"Write {PREFIX}SHADOW__SHARE=0.05 for the key shadow.share."


def has_settings(environment: Mapping[str, str]) -> bool:
    return any(name.upper().startswith(_NEARLY) for name in environment)


def with_settings(document: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The document with what the environment sets; each name, or its conflict with another, is checked."""
    found = dict(document)
    names = sorted(name for name in environment if name.upper().startswith(_NEARLY))
    for name in names:
        keys = _keys(name)
        _refuse_whole_and_part(name, names)
        _set(found, keys, _value(name, environment[name]), name)
    return found


def _keys(name: str) -> list[str]:
    keys = name.removeprefix(PREFIX).split("__")
    if not name.startswith(PREFIX) or not all(map(_KEY.fullmatch, keys)):
        raise InvalidConfig(name, "is no setting", hint=_HINT)
    return [key.lower() for key in keys]


def _refuse_whole_and_part(name: str, names: list[str]) -> None:
    part = next((each for each in names if each.startswith(f"{name}__")), None)
    if part is not None:
        raise InvalidConfig(name, f"sets what {part} sets in part", hint="Leave out one of them.")


def _value(name: str, text: str) -> Any:
    if not text.strip():
        raise InvalidConfig(name, "is empty", hint="Write a value, or unset it: the key of the file holds then.")
    try:
        return _hidden(load_strict(text))
    except (yaml.YAMLError, ValueError) as problem:
        # Its own words repeat the value.
        what = str(problem.problem) if isinstance(problem, Twice | TooMuch) else "is no YAML"
        raise InvalidConfig(name, what, hint="Quote a text with special characters, as in the file.") from None


def _hidden(value: Any) -> Any:
    """The same with texts that no complaint shows."""
    if isinstance(value, dict):
        return {key: _hidden(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return Referenced(value) if isinstance(value, str) else value


def _set(document: dict[str, Any], keys: list[str], value: Any, name: str) -> None:
    """Nothing of the file's own mappings is changed in place."""
    *path, last = keys
    for key in path:
        inner = document.get(key)
        if inner is not None and not isinstance(inner, dict):
            raise InvalidConfig(name, f"sets a key of {key}, which is no mapping in the file", hint=_HINT)
        document[key] = dict(inner or {})
        document = document[key]
    document[last] = value
