"""Regular expressions of Postgres that Python's `re` decides alike, for texts of ASCII.

Only what is a regular language, written in a form that both read the same: literals, sets, dots, groups, branches,
anchors, counts. A count of a group that holds counts is left out: `re` could take for ever over it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: Longer texts are left to Postgres, whose matcher does not go back.
LENGTH_MAX = 1_000

Matches = Callable[[str], bool | None]

_PLAIN = frozenset("_-@,:/#%&=!<>;\"'~` ")
_SETS = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t\\n\\r\\f\\v"}
_CLASSES = {
    "digit": "0-9",
    "alpha": "A-Za-z",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": " \\t\\n\\r\\f\\v",
}
_COUNT = re.compile(r"\{\d{1,3}(?:,(?:\d{1,3})?)?\}")


class RegexNotUnderstood(Exception):
    """Left to Postgres."""


def compiled(pattern: str) -> Matches | None:
    """What says whether a text holds a match; None: not for sure. So is the answer for texts that are not ASCII."""
    try:
        return _asking(re.compile(_Translation(pattern).whole(), re.DOTALL))
    except (RegexNotUnderstood, re.error, OverflowError, RecursionError):  # counts that are none; too deep a nesting
        return None


def compiled_like(pattern: str) -> Matches | None:
    """The same of LIKE."""
    parts, place = [], 0
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += 1
            if place == len(pattern):
                return None
            parts.append(re.escape(pattern[place]))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
        place += 1
    return _asking(re.compile(rf"\A{''.join(parts)}\Z", re.DOTALL))


def _asking(expression: re.Pattern[str]) -> Matches:
    def matches(text: str) -> bool | None:
        if len(text) > LENGTH_MAX or not text.isascii():
            return None
        return expression.search(text) is not None

    return matches


class _Translation:
    """From left to right, once."""

    def __init__(self, pattern: str) -> None:
        if not pattern.isascii() or pattern.startswith("***"):
            raise RegexNotUnderstood
        self._pattern = pattern
        self._place = 0

    def whole(self) -> str:
        found, _has_counts = self._branches()
        if self._place < len(self._pattern):
            raise RegexNotUnderstood
        return found

    def _branches(self) -> tuple[str, bool]:
        branches, has_counts = [], False
        while True:
            branch, counts = self._branch()
            branches.append(branch)
            has_counts |= counts
            if self._peek() != "|":
                return "|".join(branches), has_counts
            self._place += 1

    def _branch(self) -> tuple[str, bool]:
        parts, has_counts = [], False
        while self._peek() not in ("", "|", ")"):
            atom, may_count, counts = self._atom()
            count = self._count()
            if count and not may_count:
                raise RegexNotUnderstood
            parts.append(atom + count)
            has_counts |= counts or bool(count)
        if not parts:
            raise RegexNotUnderstood
        return "".join(parts), has_counts

    def _atom(self) -> tuple[str, bool, bool]:
        """An atom, whether it may be counted, and whether it counts something itself."""
        character = self._next()
        if character in "^$":
            return {"^": r"\A", "$": r"\Z"}[character], False, False
        if character == "(":
            inner, counts = self._group()
            return f"(?:{inner})", not counts, counts
        if character == "[":
            return self._set(), True, False
        if character == "\\":
            return self._escaped(), True, False
        if character == ".":
            return ".", True, False
        if character.isalnum() or character in _PLAIN:
            return re.escape(character), True, False
        raise RegexNotUnderstood

    def _group(self) -> tuple[str, bool]:
        if self._pattern.startswith("?:", self._place):
            self._place += 2
        inner = self._branches()
        if self._next() != ")":
            raise RegexNotUnderstood
        return inner

    def _escaped(self) -> str:
        character = self._next()
        if character in _SETS:
            return f"[{_SETS[character]}]"
        if character.isalnum():
            raise RegexNotUnderstood
        return re.escape(character)

    def _count(self) -> str:
        character = self._peek()
        if character in ("*", "+", "?"):
            self._place += 1
            count = character
        elif character == "{" and (found := _COUNT.match(self._pattern, self._place)):
            self._place = found.end()
            count = found[0]
        else:
            return ""
        if self._peek() in ("*", "+", "?", "{"):  # of the second, each means something else
            raise RegexNotUnderstood
        return count

    def _set(self) -> str:
        is_negated = self._peek() == "^"
        self._place += is_negated
        items: list[str] = []
        while self._peek() != "]":
            items.append(self._item())
        self._place += 1
        if not items:
            raise RegexNotUnderstood
        return f"[{'^' if is_negated else ''}{''.join(items)}]"

    def _item(self) -> str:
        character = self._next()
        if character == "[":
            end = self._pattern.find(":]", self._place)
            name = self._pattern[self._place + 1 : end]
            if end < 0 or self._peek() != ":" or name not in _CLASSES:
                raise RegexNotUnderstood
            self._place = end + 2
            return _CLASSES[name]
        if character == "\\":
            escaped = self._next()
            if escaped in _SETS:
                return _SETS[escaped]
            if escaped.isalnum():
                raise RegexNotUnderstood
            return re.escape(escaped)
        if self._peek() == "-" and self._pattern[self._place + 1 : self._place + 2] not in ("]", ""):
            self._place += 1
            last = self._next()
            if not (character.isalnum() and last.isalnum() and character <= last):
                raise RegexNotUnderstood
            return f"{character}-{last}"
        return re.escape(character)

    def _peek(self) -> str:
        return self._pattern[self._place : self._place + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise RegexNotUnderstood
        self._place += 1
        return character
