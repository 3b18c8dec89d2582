"""CHECK constraints that can be decided here exactly: comparisons, IN, BETWEEN, lengths, patterns, NULL, AND, OR, NOT.

Read from the text that Postgres itself makes of an expression, in which every operator has its parentheses. What is
not understood is `UNSURE`, and so is a value of which Postgres and Python might think differently. A constraint refuses
a row only when it is false for sure; where it may be either, Postgres decides later.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tripstore.backends.postgres.rules.terms import (
    LENGTHS,
    UNSURE,
    Comparable,
    Condition,
    NotUnderstood,
    Texts,
    Typed,
    all_of,
    any_of,
    cast,
    comparing,
    is_null,
    length,
    matching,
    negated,
    number,
    truth,
    value_of,
)

logger = logging.getLogger(__name__)


class Check(NamedTuple):
    """A constraint; `is_whole`: all of it is understood."""

    is_false: Callable[[Texts], bool]
    is_whole: bool


#: A constraint that is left to Postgres as a whole.
_LEFT = Check(lambda texts: False, False)


_KINDS = {
    "int2": Comparable.INTEGER,
    "int4": Comparable.INTEGER,
    "int8": Comparable.INTEGER,
    "numeric": Comparable.NUMERIC,
    "float8": Comparable.FLOAT,
    "text": Comparable.TEXT,
    "varchar": Comparable.TEXT,
    "bool": Comparable.BOOLEAN,
    "date": Comparable.DATE,
}
#: Casts, as Postgres writes them, that change no value.
_CASTS = {
    "smallint": Comparable.INTEGER,
    "integer": Comparable.INTEGER,
    "bigint": Comparable.INTEGER,
    "numeric": Comparable.NUMERIC,
    "double precision": Comparable.FLOAT,
    "text": Comparable.TEXT,
    "character varying": Comparable.TEXT,
    "boolean": Comparable.BOOLEAN,
    "date": Comparable.DATE,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")+\")"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>::|<>|<=|>=|!~~|~~|!~|[=<>~()\[\],-]))"
)


def kind_of(type_name: str | None, *, is_exact: bool) -> Comparable | None:
    """Of a column of this built-in type; None: nothing is compared."""
    kind = _KINDS.get(type_name or "")
    return None if kind is Comparable.TEXT and not is_exact else kind


def check_of(expression: str, columns: Mapping[str, Comparable]) -> Check:
    """A constraint over these columns; others are of any value, and so are those that it compares in other ways."""
    try:
        reader = _Reader(expression, columns)
        condition = reader.whole()
    except NotUnderstood:
        return _LEFT
    except Exception:  # the edge of one constraint: whatever it is, it must not switch off the others
        logger.exception("a constraint could not be read", extra={"event": "rules.not_understood"})
        return _LEFT
    return Check(lambda texts: condition(texts) is False, reader.is_whole)


class _Reader:
    """Reads one expression. A comparison that is not understood is passed, up to its closing parenthesis."""

    def __init__(self, expression: str, columns: Mapping[str, Comparable]) -> None:
        self._columns = columns
        self._tokens = _tokens(expression)
        self._place = 0
        self.is_whole = True

    def whole(self) -> Condition:
        found = self._condition()
        if self._place < len(self._tokens):
            raise NotUnderstood
        return found

    def _condition(self) -> Condition:
        """OR of ANDs of what stands in parentheses."""
        parts = [self._conjunction()]
        while self._skip("OR"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else lambda texts: any_of(part(texts) for part in parts)

    def _conjunction(self) -> Condition:
        parts = [self._negation()]
        while self._skip("AND"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else lambda texts: all_of(part(texts) for part in parts)

    def _negation(self) -> Condition:
        if self._skip("NOT"):
            inner = self._negation()
            return lambda texts: negated(inner(texts))
        start = self._place
        try:
            return self._test()
        except NotUnderstood:
            self._place = start
            return self._unsure()

    def _test(self) -> Condition:
        """A comparison, or a condition in parentheses."""
        start = self._place
        try:
            left = self._term()
            return self._compared(left)
        except NotUnderstood:
            self._place = start
        if not self._skip("("):
            raise NotUnderstood
        found = self._condition()
        self._want(")")
        return found

    def _unsure(self) -> Condition:
        """Pass what is not understood: to the end of these parentheses, or to the next AND or OR between them."""
        self.is_whole = False
        depth = 0
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if depth == 0 and token in (")", "AND", "OR"):
                break
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token, 0)
            self._place += 1
        return lambda texts: UNSURE

    def _compared(self, left: Typed) -> Condition:
        if self._skip("IS"):
            is_not = self._skip("NOT")
            self._want("NULL")
            return lambda texts: is_null(left.term(texts), is_not=is_not)
        operator = self._peek()
        if operator in ("~", "!~", "~~", "!~~"):
            self._place += 1
            return matching(left, operator, self._term())
        if operator in ("=", "<>", "<", "<=", ">", ">="):
            self._place += 1
            if self._peek() in ("ANY", "ALL"):
                return self._among(left, operator)
            return comparing(left, operator, self._term())
        if left.kind is Comparable.BOOLEAN and operator in ("", ")", "AND", "OR"):
            return lambda texts: truth(left.term(texts))
        raise NotUnderstood

    def _among(self, left: Typed, operator: str) -> Condition:
        """= ANY (ARRAY[…]) is IN, <> ALL (ARRAY[…]) is NOT IN."""
        quantifier = self._next()
        if (operator, quantifier) not in (("=", "ANY"), ("<>", "ALL")):
            raise NotUnderstood
        self._want("(")
        depth = 0
        while self._skip("("):
            depth += 1
        self._want("ARRAY")
        self._want("[")
        items = [self._term()]
        while self._skip(","):
            items.append(self._term())
        self._want("]")
        for _ in range(depth):
            self._skip_array_cast()
            self._want(")")
        self._skip_array_cast()
        self._want(")")
        tests = [comparing(left, operator, item) for item in items]
        join = any_of if quantifier == "ANY" else all_of
        return lambda texts: join(test(texts) for test in tests)

    def _skip_array_cast(self) -> None:
        while self._skip("::"):
            if self._type_name() is not Comparable.TEXT:
                raise NotUnderstood
            self._want("[")
            self._want("]")

    def _term(self) -> Typed:
        found = self._plain_term()
        while self._skip("::"):
            found = cast(found, self._type_name())
        return found

    def _plain_term(self) -> Typed:
        token = self._next()
        if token == "(":
            found = self._term()
            self._want(")")
            return found
        if token == "-":
            return number(f"-{self._next()}")
        if token[0].isdigit():
            return number(token)
        if token[0] == "'":
            text = token[1:-1].replace("''", "'")
            return Typed(lambda texts: text, Comparable.TEXT, text)
        if token in ("true", "false"):
            return Typed(lambda texts: token == "true", Comparable.BOOLEAN)
        if token in LENGTHS and self._skip("("):
            argument = self._term()
            self._want(")")
            return length(token, argument)
        return self._column(token)

    def _column(self, token: str) -> Typed:
        name = token[1:-1].replace('""', '"') if token[0] == '"' else token
        kind = self._columns.get(name)
        if kind is None or self._peek() == "(":
            raise NotUnderstood
        return Typed(lambda texts: value_of(texts.get(name, UNSURE), kind), kind)

    def _type_name(self) -> Comparable:
        words = [self._next()]
        while self._peek() in ("varying", "precision"):
            words.append(self._next())
        kind = _CASTS.get(" ".join(words))
        if kind is None or self._peek() == "(":
            raise NotUnderstood
        return kind

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise NotUnderstood
        self._place += 1
        return token

    def _skip(self, token: str) -> bool:
        is_there = self._peek() == token
        self._place += is_there
        return is_there

    def _want(self, token: str) -> None:
        if not self._skip(token):
            raise NotUnderstood


def _tokens(expression: str) -> list[str]:
    found, place = [], 0
    while place < len(expression):
        token = _TOKEN.match(expression, place)
        if token is None:
            raise NotUnderstood
        found.append(token[0].strip() if token["text"] is None else token["text"])
        place = token.end()
    return found
