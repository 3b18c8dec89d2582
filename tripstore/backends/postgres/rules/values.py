"""Which texts a column's type takes and gives back as they are. Each rule is exact, or is not there.

A rule is handed the text that the codec made of a body's value, and says why Postgres refuses it; None: it takes it, or
that is not known here. `is_whole`: there is nothing more that the type could refuse.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from typing import Any, NamedTuple

from tripstore.backends.postgres.codec.moments import INFINITE
from tripstore.backends.postgres.codec.values import NOT_FINITE

#: Says why a text is refused.
Refusal = Callable[[str], str | None]

_MODIFIERS = re.compile(r"\((-?\d+)(?:,(-?\d+))?\)").search
INTEGERS: Mapping[str, int] = {"int2": 15, "int4": 31, "int8": 63}
#: The most digits that a numeric without precision has, before the point and after it.
_DIGITS_MAX, _SCALE_MAX = 131_072, 16_383
#: A 32-bit float is told apart by as many digits.
_FLOAT4_DIGITS = 9
_FIRST_DAY = "4714-11-24"


class TypeRule(NamedTuple):
    """What is checked of a type's values."""

    refusal: Refusal | None
    is_whole: bool


WHOLE, UNKNOWN = TypeRule(None, True), TypeRule(None, False)
#: The codec takes nothing that these refuse.
_TAKEN = frozenset({"text", "int8", "float8", "bool", "uuid", "bytea", "json"})


def type_rule(column: Mapping[str, Any]) -> TypeRule:
    """The rule of a column's type, as the catalogue's document has it."""
    if column["labels"] is not None:
        return TypeRule(_among(column["labels"]), True)
    name = column["type"]
    modifiers = _modifiers(column["shown"])
    if name in _TAKEN:
        return WHOLE
    if name == "varchar":
        return TypeRule(_up_to(modifiers[0]), True) if modifiers else WHOLE
    if name == "bpchar" and modifiers:
        return TypeRule(_padded(modifiers[0]), True)
    if name in ("int2", "int4"):
        return TypeRule(_within(INTEGERS[name]), True)
    if name == "numeric":
        return TypeRule(_numeric(*modifiers) if modifiers else _any_numeric, True)
    if name == "float4":
        return TypeRule(_float4, False)
    if name == "date":
        return TypeRule(_date, True)
    if name in ("timestamp", "timestamptz"):
        return TypeRule(_moment(modifiers[0] if modifiers else 6), True)
    return UNKNOWN


def _modifiers(shown: str) -> tuple[int, ...]:
    found = _MODIFIERS(shown)
    return () if found is None else tuple(int(each) for each in found.groups() if each is not None)


def _among(labels: list[str]) -> Refusal:
    known = frozenset(labels)
    return lambda text: None if text in known else "it is none of the type's labels"


def _up_to(length: int) -> Refusal:
    return lambda text: None if len(text) <= length else f"it is longer than {length} characters"


def _padded(length: int) -> Refusal:
    def refusal(text: str) -> str | None:
        if text.endswith(" "):
            return "the blanks at its end would be lost"
        return None if len(text) <= length else f"it is longer than {length} characters"

    return refusal


def _within(bits: int) -> Refusal:
    low, high = -(1 << bits), (1 << bits) - 1
    return lambda text: None if low <= int(text) <= high else f"it does not fit into {bits + 1} bits with a sign"


def _any_numeric(text: str) -> str | None:
    if text in NOT_FINITE:
        return None
    whole, _, fraction = text.removeprefix("-").partition(".")
    return None if len(whole) <= _DIGITS_MAX and len(fraction) <= _SCALE_MAX else "it has too many digits"


def _numeric(precision: int, scale: int = 0) -> Refusal:
    """Postgres would round to the scale, or write more zeros: another text comes back."""
    bound, unit = Decimal(1).scaleb(precision - scale), Decimal(1).scaleb(-scale)

    def refusal(text: str) -> str | None:
        if text in NOT_FINITE:
            return None if text == "NaN" else "a number with a precision is finite"
        if len(text) > _SCALE_MAX:
            return "it has too many digits"
        whole, _, fraction = text.removeprefix("-").partition(".")
        if len(fraction) != max(scale, 0):
            return f"it is not written with {max(scale, 0)} digits after the point"
        if precision > scale >= 0:
            is_in = len(whole) <= precision - scale
        else:
            with localcontext() as context:
                context.prec = _DIGITS_MAX
                number = abs(Decimal(text))
                if scale < 0 and number % unit:
                    return f"it is rounded to {unit:f}"
                is_in = number < bound
        return None if is_in else f"it is not below {bound:f}"

    return refusal


def _float4(text: str) -> str | None:
    number = float(text)
    if number - number != 0.0:
        return None
    try:
        (nearest,) = struct.unpack("f", struct.pack("f", number))
    except OverflowError:
        return "it is beyond what 32 bits hold"
    if number and not nearest:
        return "it is beyond what 32 bits hold"
    digits = re.sub(r"e.*|\D", "", repr(number)).strip("0")
    return "32 bits hold fewer digits" if len(digits) > _FLOAT4_DIGITS else None


def _date(text: str) -> str | None:
    is_too_early = text.endswith(" BC") and text.startswith("4714-") and text[:10] < _FIRST_DAY
    return "Postgres knows no such day" if is_too_early else None


def _moment(precision: int) -> Refusal:
    unit = 10 ** (6 - precision)

    def refusal(text: str) -> str | None:
        if text in INFINITE:
            return None
        fraction = text.partition(".")[2][:6]
        return f"it is rounded to {precision} digits of a second" if int(fraction) % unit else _date(text)

    return refusal
