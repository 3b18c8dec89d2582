"""A configuration without what it must keep to itself: it goes into a file that others keep."""

from __future__ import annotations

import re
from typing import Any

from schemaless_core.errors import shown
from schemaless_core.urls import shown_setting

LEFT_OUT = "(left out)"
_SECRET = re.compile(r"password|passwd|secret|token|credential|private", re.IGNORECASE)


def cleaned(value: Any) -> Any:
    """The same document; what may be a password is left out. What is a ${REFERENCE} names no value, and stays."""
    if isinstance(value, dict):
        return {
            key: LEFT_OUT if _SECRET.search(str(key)) and not isinstance(inner, dict) else cleaned(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [cleaned(inner) for inner in value]
    if isinstance(value, str):
        as_told = shown_setting(value)
        return value if as_told == shown(value) else as_told.strip("'\"")
    return value
