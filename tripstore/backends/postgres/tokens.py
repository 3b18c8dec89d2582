"""SQL cut into tokens, as Postgres cuts it: quotes, dollar quotes, nested comments, quoted names, placeholders.

Text from the company's code may be half a statement. A quote that is never closed hides nothing: what follows is read
on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

#: Stands in a text for what is known at run time only. It is no character of a name, so it hides none.
HOLE = "\ufffc"


class Type(Enum):
    """What a token is."""

    WORD = "word"  #: a name or a keyword, folded to lower case
    QUOTED = "quoted"  #: a quoted name
    TEXT = "text"  #: a quoted or dollar-quoted text
    HOLE = "hole"  #: a placeholder, or what is known at run time only
    OTHER = "other"  #: a number, an operator, a bracket
    COMMENT = "comment"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `value` is what it means, `raw` how it stands there."""

    type: Type
    value: str
    raw: str
    offset: int
    inner: int = 0  #: Of a text: where its content begins.


#: What may begin a name or the tag of a dollar quote: for Postgres every byte from 128 on is a letter.
_LETTER = rf"A-Za-z_\u0080-{chr(ord(HOLE) - 1)}{chr(ord(HOLE) + 1)}-\U0010ffff"

_PATTERN = re.compile(
    rf"""
    (?P<space>[ \t\n\r\f\v]+)
    | (?P<comment>--[^\n\r]*)
    | (?P<block>/\*)
    | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')
    | (?P<text>(?:[bBxXnN]|[uU]&)?'(?:[^']|'')*')
    | (?P<dollar>\$(?:[{_LETTER}][{_LETTER}\d]*)?\$)
    | (?P<quoted>(?:[uU]&)?"(?:[^"]|"")+"|`[^`]+`)
    | (?P<word>[{_LETTER}][{_LETTER}\d${HOLE}]*|{HOLE}+[{_LETTER}\d${HOLE}]*)
    | (?P<placeholder>%\(\w+\)s|%s|(?<!:):[^\W\d]\w*|\$\d+|\?)
    | (?P<number>\d[\w.]*)
    | (?P<other>::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK = re.compile(r"/\*|\*/")


def tokens(text: str) -> Iterator[Token]:
    """Yield all tokens, comments too."""
    position = 0
    while position < len(text):
        found = _PATTERN.match(text, position)
        assert found is not None  # the last alternative matches anything
        assert found.lastgroup is not None
        offset, raw, end = position, found[0], found.end()
        if found.lastgroup == "block":
            end = _end_of_block(text, end)
            yield Token(Type.COMMENT, text[offset:end], text[offset:end], offset)
        elif found.lastgroup == "dollar" and (close := text.find(raw, end)) >= 0:
            yield Token(Type.TEXT, text[end:close], text[offset : close + len(raw)], offset, end)
            end = close + len(raw)
        elif found.lastgroup != "space":
            yield _token(found.lastgroup, raw, offset)
        position = end


def _end_of_block(text: str, position: int) -> int:
    """Comments nest in Postgres."""
    depth = 1
    for mark in _BLOCK.finditer(text, position):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def _token(group: str, raw: str, offset: int) -> Token:
    if group == "word":
        return Token(Type.HOLE if not raw.strip(HOLE) else Type.WORD, raw.lower(), raw, offset)
    if group == "quoted":
        quote = raw[-1]
        name = raw[raw.index(quote) + 1 : -1].replace(quote * 2, quote)
        return Token(Type.HOLE if not name.strip(HOLE) else Type.QUOTED, name, raw, offset)
    if group in ("text", "escaped"):
        start = raw.index("'") + 1
        return Token(Type.TEXT, raw[start:-1], raw, offset, offset + start)
    if group == "placeholder":
        return Token(Type.HOLE, raw, raw, offset)
    return Token(Type.COMMENT if group == "comment" else Type.OTHER, raw, raw, offset)
