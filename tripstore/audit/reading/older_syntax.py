"""`older`: source in the syntax of later Pythons, rewritten for the one that runs. Nothing moves to another place.

def first[T: Trip](…)       3.12   def first          (…)        the bounds are handed back
type Trips = list[Trip]     3.12        Trips = list[Trip]
f"{row["id"]}"              3.12   f"{row['id']}"
except A, B:                3.14   except A| B:
t"DELETE FROM trips"        3.14   f"DELETE FROM trips"
lazy import models          3.15   if 1:import models
[*each for each in all]     3.15   [ each for each in all]
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tripstore.audit.reading.lexemes import Lexed, Lexeme, Unlexable, lexemes

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


@dataclass(frozen=True, slots=True)
class Bound:
    """The classes that the type parameters of a function or class name."""

    line: int
    name: str
    texts: tuple[str, ...]


@dataclass(slots=True)
class Rewritten:
    """The source in older syntax, and what had no place in it."""

    source: str
    bounds: list[Bound] = field(default_factory=list)


def older(source: str) -> Rewritten | None:
    """Rewrite; None if the source cannot be read as Python of any version."""
    try:
        return _Rewriter(source).run()
    except (Unlexable, RecursionError):
        return None


class _Rewriter:
    def __init__(self, source: str) -> None:
        self._source = source
        self._characters = list(source)
        self._bounds: list[Bound] = []
        self._lexemes: list[Lexed] = []

    def run(self) -> Rewritten:
        self._lexemes = [each for each in lexemes(self._source) if each.kind is not Lexeme.COMMENT]
        begins_statement = True
        for number, each in enumerate(self._lexemes):
            if each.kind is Lexeme.TEXT:
                self._text(each)
            elif each.kind is Lexeme.NAME and begins_statement:
                self._statement(number)
            elif each.word in ("def", "class"):
                self._parameters(number)  # async def, and after a colon
            elif each.word == "*" and self._word(number - 1) in ("[", "{", "("):
                self._unpacked(number)
            begins_statement = each.kind is Lexeme.NEWLINE or each.word == ";" or each.word == ":"
        return Rewritten("".join(self._characters), self._bounds)

    def _word(self, number: int) -> str:
        return self._lexemes[number].word if 0 <= number < len(self._lexemes) else ""

    def _blank(self, begin: int, end: int) -> None:
        for at in range(begin, end):
            if self._characters[at] != "\n":
                self._characters[at] = " "

    # ---------------------------------------------------------------------------------------- statements

    def _statement(self, number: int) -> None:
        word, after = self._word(number), self._lexemes[number + 1] if number + 1 < len(self._lexemes) else None
        if word in ("def", "class"):
            self._parameters(number)
        elif word == "type" and after is not None and after.kind is Lexeme.NAME:
            self._alias(number)
        elif word == "except":
            self._exceptions(number)
        elif word == "lazy" and self._word(number + 1) in ("import", "from"):
            begin = self._lexemes[number].begin
            if self._source[begin + 4] == " ":
                self._characters[begin : begin + 5] = "if 1:"

    def _parameters(self, number: int) -> None:
        """`def name[T: Bound = Default](`"""
        if self._word(number + 2) != "[":
            return
        closing = self._closing(number + 2)
        begin, end = self._lexemes[number + 2].begin, self._lexemes[closing].end
        texts = tuple(filter(None, self._bound_texts(number + 3, closing)))
        if texts:
            line = self._source.count("\n", 0, self._lexemes[number].begin) + 1
            self._bounds.append(Bound(line, self._word(number + 1), texts))
        self._blank(begin, end)
        for at in range(begin, end):
            if self._characters[at] == "\n":
                raise Unlexable  # lines of parameters: a function's head cannot go on without brackets

    def _bound_texts(self, begin: int, end: int) -> list[str]:
        """What follows the colons and equal signs of a list of type parameters."""
        found, depth, start = [], 0, None
        for each in self._lexemes[begin : end + 1]:
            is_end = depth == 0 and each.word in (",", "=", "]")
            if start is not None and is_end:
                found.append(self._source[start : each.begin].strip())
                start = None
            if depth == 0 and each.word in (":", "="):
                start = each.end
            depth += (each.word in _OPENING) - (each.word in _CLOSING)
        return found

    def _alias(self, number: int) -> None:
        """`type Name[T] = …`"""
        at = number + 2
        if self._word(at) == "[":
            closing = self._closing(at)
            self._blank(self._lexemes[at].begin, self._lexemes[closing].end)
            at = closing + 1
        if self._word(at) != "=":
            return  # `type` is a name like any other
        name = self._lexemes[number + 1]
        word = self._lexemes[number]
        # Blanks before a name would be an indentation: the name begins where the statement did.
        self._blank(word.begin, name.end)
        self._characters[word.begin : word.begin + len(name.word)] = name.word

    def _exceptions(self, number: int) -> None:
        """`except A, B:` without brackets"""
        depth = 0
        for each in self._lexemes[number + 1 :]:
            if each.kind is Lexeme.NEWLINE or (depth == 0 and each.word == ":"):
                return
            if depth == 0 and each.word == ",":
                self._characters[each.begin] = "|"
            depth += (each.word in _OPENING) - (each.word in _CLOSING)

    def _unpacked(self, number: int) -> None:
        """`[*each for each in all]`, `{**each for each in all}`"""
        closing, depth = self._closing(number - 1), 0
        for each in self._lexemes[number:closing]:
            if depth == 0 and each.word == ",":
                return
            if depth == 0 and each.word == "for":
                star = self._lexemes[number]
                self._blank(star.begin, star.end + (self._word(number + 1) == "*"))
                return
            depth += (each.word in _OPENING) - (each.word in _CLOSING)

    def _closing(self, opening: int) -> int:
        depth = 0
        for number in range(opening, len(self._lexemes)):
            word = self._word(number)
            depth += (word in _OPENING) - (word in _CLOSING)
            if depth == 0:
                return number
        raise Unlexable

    # --------------------------------------------------------------------------------------------- texts

    def _text(self, text: Lexed) -> None:
        if "t" in text.prefix:
            at = text.begin + text.prefix.index("t")
            self._characters[at] = "f"
        for begin, end in text.fields:
            self._field(begin, end, text.quote)

    def _field(self, begin: int, end: int, outer: str) -> None:
        """The inside of braces: no backslash, no comment and not the quote of the text may stand there."""
        for each in lexemes(self._source, begin, end):
            if each.kind is Lexeme.COMMENT:
                self._blank(each.begin, each.end)
            elif each.kind is Lexeme.TEXT:
                self._inner(each, outer)
        for at in range(begin, end):
            if self._characters[at] == "\\":
                self._blank(at, at + 2)

    def _inner(self, text: Lexed, outer: str) -> None:
        if text.fields:
            if text.quote[0] == outer[0]:
                raise Unlexable  # an f-string in an f-string: there is no quote left
            for begin, end in text.fields:
                self._field(begin, end, text.quote)
        if text.quote[0] != outer[0]:
            return
        other = "'" if outer[0] == '"' else '"'
        size = len(text.quote)
        inside = range(text.begin + len(text.word) + size, text.end - size)
        for at in inside:
            if self._characters[at] == other:
                self._blank(at, at + 1)
        self._characters[text.begin + len(text.word) : inside.start] = other * size
        self._characters[inside.stop : text.end] = other * size
