"""`plain`: what a query answered, as values that can be compared and that its caller can no longer change.

Types are kept apart, as a service would notice: a text is no UUID, a moment without a zone is not the one in UTC. What
Python calls equal is equal: 7, 7.0 and Decimal("7.00"); one moment in two zones. What has no value of its own is
refused, an object of an ORM or an iterator: only its service knows what of it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from schemaless_core.cell.cell import Cell
from tripstore.engines.validation.errors import ValidationError

#: Of one answer; its caller waits while they are taken down.
VALUES_MAX = 20_000
DEPTH_MAX = 100
#: About what a value takes beside its text.
_VALUE_BYTES = 150
#: Whole numbers below are their own text.
_SMALL = 10**18


class NoValue(ValidationError):
    """A part of an answer, or what a query is asked with, that cannot be compared."""


class Leaf(NamedTuple):
    """A value that JSON has no type for, or a number: what it is, and its text."""

    kind: str
    text: str


Plain: TypeAlias = "None | bool | str | Leaf | list[Plain] | dict[str, Plain]"


class Weighed(NamedTuple):
    """A value, and about how many bytes of memory it takes."""

    value: Plain
    weight: int


def plain(value: object) -> Plain:
    """The value, or `NoValue`."""
    return weighed(value).value


def weighed(value: object) -> Weighed:
    """The same with its weight."""
    taking = _Taking()
    found = taking.value(value, 0)
    return Weighed(found, taking.weight)


class _Taking:
    """Of one answer."""

    def __init__(self) -> None:
        self._left = VALUES_MAX
        self._characters = 0

    @property
    def weight(self) -> int:
        return (VALUES_MAX - self._left) * _VALUE_BYTES + self._characters

    def value(self, value: Any, depth: int) -> Plain:
        self._left -= 1
        if self._left < 0 or depth > DEPTH_MAX:
            raise NoValue(
                f"An answer has more than {VALUES_MAX:,} values, or is nested too deep.",
                hint="Give a smaller limit, or a `normalise` that takes what counts.",
            )
        kind = type(value)
        if kind is str:
            self._characters += len(value)
        if value is None or kind in (bool, str):
            found: Plain = value
            return found
        make = _LEAVES.get(kind)
        if make is None:
            return self._other(value, depth)
        leaf = make(value)
        self._characters += len(leaf.text)
        return leaf

    def _other(self, value: Any, depth: int) -> Plain:
        if isinstance(value, Enum):
            return self._member(value, depth)
        if isinstance(value, Mapping):
            return self._mapping(value.items(), depth)
        if isinstance(value, Cell):
            return self._cell(value, depth)
        if callable(row := getattr(value, "_asdict", None)) and isinstance(value, Sequence):  # a row, a named tuple
            return self._row(value, row(), depth)
        if isinstance(value, list | tuple):
            return [self.value(each, depth + 1) for each in value]
        if isinstance(value, set | frozenset):
            return Leaf("set", repr(sorted((self.value(each, depth + 1) for each in value), key=repr)))
        if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "_sa_instance_state"):
            return self._mapping(((each.name, getattr(value, each.name)) for each in fields(value)), depth)
        return self._of_a_subclass(value)

    def _member(self, value: Enum, depth: int) -> Plain:
        """One that is a text or number as well is that; what a service holds against `Status.PAID` no text is."""
        if isinstance(value, str | int | float):
            return self.value(value.value, depth + 1)
        return Leaf(f"member of {type(value).__qualname__}", value.name)

    def _row(self, row: Sequence[Any], named: Mapping[str, Any], depth: int) -> Plain:
        """By its names, unless two of its columns have the same."""
        if len(named) == len(row):
            return self._mapping(named.items(), depth)
        return [self.value(each, depth + 1) for each in row]

    def _mapping(self, items: Iterable[tuple[Any, Any]], depth: int) -> Plain:
        found = {_name(name): self.value(each, depth + 1) for name, each in items}
        return {name: found[name] for name in sorted(found)}

    def _cell(self, cell: Cell, depth: int) -> Plain:
        """Without what belongs to its store."""
        named = ("row_key", cell.row_key), ("column_name", cell.column_name), ("ref_key", cell.ref_key)
        return self._mapping((*named, ("body", cell.body)), depth)

    def _of_a_subclass(self, value: Any) -> Plain:
        for kind, make in _LEAVES.items():
            if isinstance(value, kind):
                return make(value)
        if isinstance(value, str):
            return str(value)
        raise NoValue(
            f"An answer holds {type(value).__qualname__}, which has no value that could be compared.",
            hint="Give `normalise`, a function that makes lists, dicts and plain values of an answer.",
        )


def _name(name: object) -> str:
    """A member of a `StrEnum` is its text. What is no text has the name of none: None is not "None"."""
    found = name if type(name) is str else plain(name)
    if isinstance(found, str):
        return found if found[:1] != "<" else f"<{found}"
    return f"<{found.kind} {found.text}>" if isinstance(found, Leaf) else f"<{found}>"


def _whole(value: int) -> Leaf:
    return Leaf("number", str(value)) if -_SMALL < value < _SMALL else _number(value)


def _number(value: float | Decimal) -> Leaf:
    """Exactly, and the same for all types of numbers."""
    exact = Decimal(value)
    if not exact.is_finite():
        return Leaf("number", "NaN" if exact.is_nan() else str(exact))
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short:
        return Leaf("number", "0")
    exponent += len(text) - len(short)
    minus = "-" if sign else ""
    if exponent >= 0 and len(short) + exponent <= len(str(_SMALL)) - 1:
        return Leaf("number", f"{minus}{short}{'0' * exponent}")
    return Leaf("number", f"{minus}{short}e{exponent}")


def _moment(value: datetime) -> Leaf:
    if value.utcoffset() is None:
        return Leaf("moment without a zone", value.isoformat())
    try:
        return Leaf("moment", value.astimezone(UTC).isoformat())
    except OverflowError:  # it is in year 1 or 9999, and not in UTC's
        return Leaf("moment", value.isoformat())


def _leaf(kind: str, text: Callable[[Any], str] = str) -> Callable[[Any], Leaf]:
    return lambda value: Leaf(kind, text(value))


#: A moment is a day as well, so it comes first.
_LEAVES: dict[type[Any], Callable[[Any], Leaf]] = {
    int: _whole,
    float: _number,
    Decimal: _number,
    datetime: _moment,
    date: _leaf("day"),
    time: _leaf("time of day"),
    timedelta: _leaf("span"),
    UUID: _leaf("UUID"),
    bytes: _leaf("bytes", bytes.hex),
    bytearray: _leaf("bytes", bytearray.hex),
    memoryview: _leaf("bytes", memoryview.hex),
}
