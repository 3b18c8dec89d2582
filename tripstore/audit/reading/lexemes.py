"""Python source as lexemes: names, brackets, texts with the expressions in them. It knows no grammar.

The tokenizer of the running Python ends a text at the first quote; later ones let quotes stand in the braces of an
f-string. This one does, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

_NAME = re.compile(r"[^\W\d]\w*")
_QUOTE = re.compile(r"\"\"\"|'''|\"|'")
_PREFIXES = frozenset({"r", "b", "u", "f", "t", "br", "rb", "fr", "rf", "tr", "rt"})
_BLANK = " \t\f"


class Lexeme(Enum):
    NAME = auto()
    TEXT = auto()
    COMMENT = auto()
    NEWLINE = auto()
    OTHER = auto()  #: one character: a bracket, an operator, a digit


@dataclass(slots=True)
class Lexed:
    """One lexeme, from where to where. A text knows the expressions in its braces."""

    kind: Lexeme
    begin: int
    end: int
    word: str = ""
    quote: str = ""
    fields: list[tuple[int, int]] = field(default_factory=list)  #: the insides of braces, of f-strings only

    @property
    def prefix(self) -> str:
        return self.word.lower()


class Unlexable(Exception):
    """The source ends in the midst of a text."""


def lexemes(source: str, begin: int = 0, end: int | None = None) -> Iterator[Lexed]:
    """Yield what stands between two places; blanks are left out."""
    at, end = begin, len(source) if end is None else end
    while at < end:
        found = _lexeme(source, at, end)
        if found is not None:
            yield found
        at = at + 1 if found is None else found.end


def _lexeme(source: str, at: int, end: int) -> Lexed | None:
    character = source[at]
    if character in _BLANK:
        return None
    if character == "\n":
        return Lexed(Lexeme.NEWLINE, at, at + 1)
    if character == "\\" and at + 1 < end:
        return Lexed(Lexeme.OTHER, at, at + 2)
    if character == "#":
        line = source.find("\n", at, end)
        return Lexed(Lexeme.COMMENT, at, end if line < 0 else line)
    if character in "\"'":
        return _text(source, at, at, "", end)
    name = _NAME.match(source, at, end)
    if name is None:
        return Lexed(Lexeme.OTHER, at, at + 1, character)
    if name[0].lower() in _PREFIXES and name.end() < end and source[name.end()] in "\"'":
        return _text(source, at, name.end(), name[0], end)
    return Lexed(Lexeme.NAME, at, name.end(), name[0])


def _text(source: str, begin: int, at: int, prefix: str, end: int) -> Lexed:
    opening = _QUOTE.match(source, at)
    assert opening is not None
    quote = opening[0]
    found = Lexed(Lexeme.TEXT, begin, 0, prefix, quote)
    has_fields = bool(set(prefix.lower()) & {"f", "t"})
    at = opening.end()
    while at < end:
        character = source[at]
        if source.startswith(quote, at):
            found.end = at + len(quote)
            return found
        if character == "\\":
            at += 2
        elif character == "\n" and len(quote) == 1:
            break
        elif has_fields and source[at : at + 2] in ("{{", "}}"):
            at += 2
        elif has_fields and character == "{":
            closing = _closing(source, at + 1, end)
            found.fields.append((at + 1, closing))
            at = closing + 1
        else:
            at += 1
    raise Unlexable


def _closing(source: str, begin: int, end: int) -> int:
    """Where the brace closes: texts and brackets inside may have braces of their own."""
    depth = 0
    for each in lexemes(source, begin, end):
        if each.word in ("(", "[", "{"):
            depth += 1
        elif each.word == "}" and depth == 0:
            return each.begin
        elif each.word in (")", "]", "}"):
            depth -= 1
    raise Unlexable
