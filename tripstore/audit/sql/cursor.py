"""`Cursor`: a place in the tokens of an SQL text, and what stands around it: words, names, aliases, brackets."""

from __future__ import annotations

from tripstore.audit.sql.keywords import NO_ALIAS
from tripstore.backends.postgres.tokens import HOLE, Token, Type

#: What stands behind the last token.
END = Token(Type.OTHER, "", "", 1 << 60)


class Cursor:
    """Moves forwards over tokens; a reader puts it back where it meant something else."""

    def __init__(self, found: list[Token]) -> None:
        self.tokens = found
        self.at = 0
        #: Where each bracket is closed.
        self.closings = _closings(found)

    def peek(self, ahead: int = 0) -> Token:
        index = self.at + ahead
        return self.tokens[index] if 0 <= index < len(self.tokens) else END

    def word(self, ahead: int = 0) -> str:
        token = self.peek(ahead)
        return token.value if token.type in (Type.WORD, Type.OTHER) else ""

    def name(self) -> tuple[str | None, str, Token] | None:
        """Read a name with its schema, and stop behind it."""
        parts: list[Token] = []
        while self.peek().type in (Type.WORD, Type.QUOTED, Type.HOLE):
            parts.append(self.peek())
            self.at += 1
            if self.word() != ".":
                break
            self.at += 1
        if not parts:
            return None
        return _schema(parts), parts[-1].value, parts[-1]

    def alias(self) -> str:
        token = self.peek()
        if token.type is Type.QUOTED or (token.type is Type.WORD and token.value not in NO_ALIAS):
            self.at += 1
            return token.value
        return ""

    def skip(self, words: set[str] | frozenset[str]) -> None:
        while self.peek().type is Type.WORD and self.word() in words:
            self.at += 1

    def common_table(self, at: int) -> tuple[str, int, int] | None:
        """`name [(columns)] AS [[NOT] MATERIALIZED] (…)`: the name, and where its brackets open and close."""
        name = self._value(at)
        at += 1
        if self._value(at) == "(":
            at = self.closings.get(at, at) + 1
        if self._value(at) != "as":
            return None
        at += 1
        while self._value(at) in ("not", "materialized"):
            at += 1
        return (name, at, self.closings[at]) if self._value(at) == "(" and at in self.closings else None

    def _value(self, at: int) -> str:
        return self.tokens[at].value if at < len(self.tokens) else ""


def _schema(parts: list[Token]) -> str | None:
    if len(parts) < 2:
        return None
    return HOLE if parts[-2].type is Type.HOLE else parts[-2].value


def _closings(found: list[Token]) -> dict[int, int]:
    """Where each bracket is closed."""
    opened: list[int] = []
    closings: dict[int, int] = {}
    for index, token in enumerate(found):
        if token.type is Type.OTHER and token.value == "(":
            opened.append(index)
        elif token.type is Type.OTHER and token.value == ")" and opened:
            closings[opened.pop()] = index
    return closings
