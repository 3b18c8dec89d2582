"""Terms and conditions of a CHECK constraint, as functions of the texts of a row's columns.

Logic has four values here: true, false, NULL, and `UNSURE` where Postgres and Python might think differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import Enum
from typing import NamedTuple

from tripstore.backends.postgres.codec.values import NOT_FINITE
from tripstore.backends.postgres.rules.regex import compiled, compiled_like


class Unsure(Enum):
    """Neither true, nor false, nor NULL, as far as can be said here."""

    UNSURE = "unsure"


UNSURE = Unsure.UNSURE
Value = int | Decimal | float | str | bool | None | Unsure
Truth = bool | None | Unsure
#: Of columns by name; NULL is None.
Texts = Mapping[str, str | None]
Term = Callable[[Texts], Value]
Condition = Callable[[Texts], Truth]


class Comparable(Enum):
    """What values can be compared with each other."""

    INTEGER = "whole numbers"
    NUMERIC = "numerics"
    FLOAT = "64-bit floats"
    TEXT = "text of a deterministic collation"
    BOOLEAN = "booleans"
    DATE = "dates"


class Typed(NamedTuple):
    """A term, what its values are, and its constant text if it is one."""

    term: Term
    kind: Comparable
    constant: str | None = None


class NotUnderstood(Exception):
    """A part of an expression that is left to Postgres."""


_NUMBERS = {Comparable.INTEGER, Comparable.NUMERIC}
LENGTHS: Mapping[str, Callable[[str], int]] = {
    "length": len,
    "char_length": len,
    "character_length": len,
    "octet_length": lambda text: len(text.encode()),
}
_DAY = re.compile(r"\d{4}-\d\d-\d\d").fullmatch
_INTEGER = re.compile(r"-?\d+").fullmatch


def number(token: str) -> Typed:
    try:
        value = int(token) if _INTEGER(token) else Decimal(token)
    except ArithmeticError:
        raise NotUnderstood from None
    return Typed(lambda texts: value, Comparable.INTEGER if isinstance(value, int) else Comparable.NUMERIC, token)


def cast(found: Typed, kind: Comparable) -> Typed:
    """A constant is read as the type; a column's value is what it was where the type is of its kind, or a wider one."""
    if found.constant is not None:
        value = value_of(found.constant, kind)
        if value is UNSURE:
            raise NotUnderstood
        return Typed(lambda texts: value, kind, found.constant)
    if found.kind is not kind and (found.kind, kind) != (Comparable.INTEGER, Comparable.NUMERIC):
        raise NotUnderstood
    return found._replace(kind=kind)


def value_of(text: str | None | Unsure, kind: Comparable) -> Value:
    if not isinstance(text, str):
        return text
    if kind is Comparable.TEXT:
        return text
    if kind is Comparable.BOOLEAN:
        return {"true": True, "false": False}.get(text, UNSURE)
    if kind is Comparable.DATE:
        return text if _DAY(text) else UNSURE
    if text in NOT_FINITE:
        return UNSURE
    try:
        if kind is Comparable.INTEGER:
            return int(text)
        return Decimal(text) if kind is Comparable.NUMERIC else float(text)
    except (ArithmeticError, ValueError):
        return UNSURE


def length(function: str, argument: Typed) -> Typed:
    if argument.kind is not Comparable.TEXT:
        raise NotUnderstood
    measure = LENGTHS[function]

    def term(texts: Texts) -> Value:
        value = argument.term(texts)
        return measure(value) if isinstance(value, str) else value

    return Typed(term, Comparable.INTEGER)


def comparing(left: Typed, operator: str, right: Typed) -> Condition:
    if not ({left.kind, right.kind} <= _NUMBERS or left.kind is right.kind):
        raise NotUnderstood
    if left.kind in (Comparable.TEXT, Comparable.BOOLEAN) and operator not in ("=", "<>"):
        raise NotUnderstood  # how texts are sorted depends on their collation

    def condition(texts: Texts) -> Truth:
        one, other = left.term(texts), right.term(texts)
        if one is None or other is None:
            return None
        if one is UNSURE or other is UNSURE:
            return UNSURE
        return _holds(one, operator, other)

    return condition


def _holds(one: Value, operator: str, other: Value) -> bool:
    """Of two values of one kind."""
    if operator in ("=", "<>"):
        return (one == other) is (operator == "=")
    assert isinstance(one, int | float | Decimal | str)
    assert isinstance(other, int | float | Decimal | str)
    is_less, is_equal = one < other, one == other  # type: ignore[operator]  # both are of one kind
    return {"<": is_less, "<=": is_less or is_equal, ">": not (is_less or is_equal), ">=": not is_less}[operator]


def matching(left: Typed, operator: str, right: Typed) -> Condition:
    if left.kind is not Comparable.TEXT or right.kind is not Comparable.TEXT or right.constant is None:
        raise NotUnderstood
    matches = compiled(right.constant) if operator in ("~", "!~") else compiled_like(right.constant)
    if matches is None:
        raise NotUnderstood
    asked = matches
    is_wanted = not operator.startswith("!")

    def condition(texts: Texts) -> Truth:
        value = left.term(texts)
        if not isinstance(value, str):
            return UNSURE if value is UNSURE else None
        found = asked(value)
        return UNSURE if found is None else found is is_wanted

    return condition


def is_null(value: Value, *, is_not: bool) -> Truth:
    return UNSURE if value is UNSURE else (value is None) is not is_not


def truth(value: Value) -> Truth:
    return value if value is None or isinstance(value, bool | Unsure) else UNSURE


def negated(value: Truth) -> Truth:
    return not value if isinstance(value, bool) else value


def all_of(values: Iterable[Truth]) -> Truth:
    """SQL's AND: false if one is, whatever the others may be."""
    found = list(values)
    if False in found:
        return False
    return UNSURE if UNSURE in found else None if None in found else True


def any_of(values: Iterable[Truth]) -> Truth:
    found = list(values)
    if True in found:
        return True
    return UNSURE if UNSURE in found else None if None in found else False
