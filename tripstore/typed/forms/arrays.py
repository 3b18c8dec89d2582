"""Forms of arrays: tuples, whose elements have a form of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from schemaless_core.cell.canonical import Json
from tripstore.typed.forms.form import ValueForm
from tripstore.typed.forms.plain import JSON
from tripstore.typed.kept import NestedArray
from tripstore.typed.unfit import Unfit, other_kind

Crossed = TypeVar("Crossed")


def array_of(items: ValueForm) -> ValueForm:
    """The form of arrays of such items. A list inside a list is a second dimension; among json values it is a value."""

    def read(value: Json) -> tuple[object, ...] | NestedArray:
        if type(value) is not list:
            raise other_kind(value, "a list")
        if items is not JSON and any(isinstance(element, list) for element in value):
            return NestedArray(value)
        return tuple(_each(value, items.read))

    def write(value: object) -> Json:
        if isinstance(value, NestedArray):
            return value.lists
        if not isinstance(value, tuple | list):
            raise other_kind(value, "a tuple")
        return list(_each(value, items.write))

    return ValueForm(read, write)


def _each(elements: Sequence[Any], crossing: Callable[[Any], Crossed]) -> Iterator[Crossed | None]:
    for position, element in enumerate(elements):
        try:
            yield None if element is None else crossing(element)
        except Unfit as unfit:
            raise Unfit(unfit.reason, unfit.hint, f"[{position}]{unfit.path}") from None
