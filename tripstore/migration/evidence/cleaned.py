"""A configuration without what it must keep to itself: it goes into a file that others keep."""

from __future__ import annotations

import re
from typing import Any

from schemaless_core.errors import shown
from schemaless_core.urls import shown_setting

LEFT_OUT = "(left out)"
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_SECRET = re.compile(r"pass|pwd|secret|token|credential|private|api_?key", re.IGNORECASE)


def cleaned(value: Any) -> Any:
    """The same document; what may be a password is left out. What is a ${REFERENCE} names no value, and stays."""
    if isinstance(value, dict):
        return {
            key: LEFT_OUT if _SECRET.search(str(key)) and not _is_open(inner) else cleaned(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [cleaned(inner) for inner in value]
    if isinstance(value, str):
        as_told = shown_setting(value)
        return value if as_told == shown(value) else as_told.strip("'\"")
    return value


def _is_open(value: Any) -> bool:
    """Whether what stands under such a name says nothing by itself: more names, or a reference."""
    return isinstance(value, dict) or (isinstance(value, str) and _REFERENCE.fullmatch(value) is not None)
