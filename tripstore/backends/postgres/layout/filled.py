"""Which columns a BEFORE trigger assigns, read from its function's text or its arguments.

What is not found here may still be assigned, by a function in another language or in a way that is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

#: Functions of Postgres and its contrib modules that assign the column that their first argument names.
_BY_ARGUMENT = frozenset(
    {"tsvector_update_trigger", "tsvector_update_trigger_column", "moddatetime", "insert_username"}
)
_NOISE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.S)
_NAME = r'NEW\.("(?:[^"]|"")+"|\w+)'
_ASSIGNED = re.compile(rf"(?:^|\bBEGIN\b|\bTHEN\b|\bELSE\b|\bLOOP\b)\s*{_NAME}\s*:?=(.*)$", re.I | re.S)
_SELECTED = re.compile(rf"\bINTO\s+(?:STRICT\s+)?{_NAME}", re.I)
_CONDITION = re.compile(r"\b(?:THEN|ELSE|WHEN|LOOP)\b", re.I)
_OPENED = re.compile(r"(?<!END )\b(?:IF|CASE|LOOP)\b", re.I)
_CLOSED = re.compile(r"\bEND\s+(?:IF|CASE|LOOP)\b", re.I)


def assigned(language: str, source: str, function: str, arguments: Sequence[str]) -> Mapping[str, bool]:
    """Columns by whether the function always gives them a value of its own, or only at times, or makes theirs over."""
    if function in _BY_ARGUMENT and arguments:
        return {arguments[0]: True}
    return _of_plpgsql(source) if language == "plpgsql" else {}


def _of_plpgsql(source: str) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for name, is_always in _assignments(_NOISE.sub(_blank, source)):
        found[name] = found.get(name, False) or is_always
    return found


def _assignments(source: str) -> Iterator[tuple[str, bool]]:
    """Statement by statement, with how deep it stands in conditions."""
    depth = 0
    for statement in source.split(";"):
        depth -= len(_CLOSED.findall(statement))
        for pattern in (_ASSIGNED, _SELECTED):
            for match in pattern.finditer(statement):
                value = match[2] if pattern is _ASSIGNED else ""
                is_met = depth > 0 or _CONDITION.search(statement[: match.start(1)]) is not None
                makes_over = re.search(rf"\bNEW\.{re.escape(match[1])}(?!\w)", value, re.I) is not None
                yield _folded(match[1]), not is_met and not makes_over
        depth += len(_OPENED.findall(_CLOSED.sub(" ", statement)))


def _folded(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def _blank(noise: re.Match[str]) -> str:
    return "''" if noise[0].startswith("'") else " "
