"""Values that a change computes of the row that it meets: `fare = fare + 1`, `text = text || '!'`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from schemaless_core.cell.canonical import Json
from schemaless_core.errors import InvalidRequest, shown
from tripstore.rewritten.values import decimal_text, int_value, text_value

#: Sums are exact; they are rounded once, to the scale of their column.
_EXACT = Context(prec=1000)


@dataclass(frozen=True, slots=True)
class ComputedValue:
    """A value made of the one that a field has when the change is made. Of NULL it is NULL."""

    field: str
    compute: Callable[[Any], Json] | None  #: None: NULL, whatever the field has.

    def of(self, body: Mapping[str, Any]) -> Json:
        known = body.get(self.field)
        return None if known is None or self.compute is None else self.compute(known)


def added_decimal(field: str, value: Decimal | int | None, scale: int, precision: int | None = None) -> ComputedValue:
    """`fare + value`, as a column of this scale keeps it."""
    if value is None:
        return ComputedValue(field, None)
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise InvalidRequest(f"{shown(value)} is no decimal number.", hint="Pass a Decimal or an int.")
    summand = Decimal(value)
    return ComputedValue(field, lambda known: decimal_text(_EXACT.add(Decimal(known), summand), scale, precision))


def added_int(field: str, value: int | None, bits: int = 64) -> ComputedValue:
    """`reads + value`, in a column of so many bits."""
    summand = int_value(value)
    return ComputedValue(field, None if summand is None else lambda known: int_value(known + summand, bits))


def joined_text(field: str, value: str | None, length: int | None = None) -> ComputedValue:
    """`text || value`, in a column of so many characters."""
    tail = text_value(value)
    return ComputedValue(field, None if tail is None else lambda known: text_value(known + tail, length))
