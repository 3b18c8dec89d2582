"""Arrays of Postgres as text: `{1,NULL,"a b"}` and lists.

Lost in a list, and so refused, are first indexes other than 1. A list with an empty list inside and one whose
lists differ in length are no arrays.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import cast

from schemaless_core import Json
from tripstore.backends.postgres.codec.refused import Refused, other_type, step
from tripstore.backends.postgres.codec.value import Value

#: Of Postgres.
MAX_DIMENSIONS = 6

#: A brace, a comma, a quoted element, an unquoted one.
_TOKEN = re.compile(r'[{},]|"((?:[^"\\]|\\.)*)"|([^{},"\\]+)', re.DOTALL).match
_ESCAPED = re.compile(r"\\(.)", re.DOTALL).sub


class Array:
    """Elements of one type; NULL is null. Lists of json values have one dimension: a list inside is a value."""

    def __init__(self, items: Value, *, is_nested: bool) -> None:
        self._items = items
        self._is_nested = is_nested

    def read(self, text: str) -> Json:
        if text.startswith("["):
            raise Refused("its first index is not 1")
        if text == "{}":
            return []
        elements = _elements(text)
        if not any(isinstance(element, list) for element in elements):
            with suppress(Refused):  # the careful reading says where
                values = [None if element is None else self._items.read(cast(str, element)) for element in elements]
                if values.count(None) == elements.count(None):
                    return values
        if not self._is_nested and any(isinstance(element, list) for element in elements):
            raise Refused("it is an array of several dimensions")
        return self._read(elements, "")

    def write(self, value: Json) -> str:
        if type(value) is not list:
            raise other_type(value, "a list")
        if self._is_nested:
            _check_shape(value)
        return self._write(value)

    def _read(self, elements: list[Element], path: str) -> Json:
        return [self._read_element(element, path + step(n)) for n, element in enumerate(elements)]

    def _read_element(self, element: Element, path: str) -> Json:
        if element is None:
            return None
        if isinstance(element, list):
            return self._read(element, path)
        try:
            value = self._items.read(element)
        except Refused as refused:
            raise Refused(refused.reason, path + refused.path) from None
        if value is None:
            raise Refused("it is JSON's null, which cannot be told from NULL here", path)
        return value

    def _write(self, value: list[Json]) -> str:
        elements: list[str] = []
        for inner in value:
            try:
                elements.append(self._write_element(inner))
            except Refused as refused:
                raise Refused(refused.reason, step(len(elements)) + refused.path) from None
        return "{" + ",".join(elements) + "}"

    def _write_element(self, value: Json) -> str:
        if value is None:
            return "NULL"
        if self._is_nested and isinstance(value, list):
            return self._write(value)
        return '"' + self._items.write(value).replace("\\", r"\\").replace('"', r"\"") + '"'


Element = str | None | list["Element"]


def _plain(text: str) -> list[str]:
    """The elements of an array that quotes none of them."""
    elements = text[1:-1].split(",")
    if not (text.startswith("{") and text.endswith("}")) or "" in elements or "}" in text[:-1] or "\\" in text:
        raise Refused("it is no array")
    return elements


def _elements(text: str) -> list[Element]:
    """The elements of an array's text, unquoted."""
    if '"' not in text and "{" not in text[1:]:  # of one dimension, of numbers or plain words
        return [None if element == "NULL" else element for element in _plain(text)]
    outermost: list[Element] = []
    open_lists, at = [outermost], 0
    while at < len(text):
        token = _TOKEN(text, at)
        if token is None or not open_lists:
            break
        at = token.end()
        if token[0] == "{":
            inner: list[Element] = []
            open_lists[-1].append(inner)
            open_lists.append(inner)
        elif token[0] == "}":
            open_lists.pop()
        elif token[1] is not None:
            open_lists[-1].append(_ESCAPED(r"\1", token[1]))
        elif token[2] is not None:
            open_lists[-1].append(None if token[2] == "NULL" else token[2])
    if at < len(text) or open_lists != [outermost] or len(outermost) != 1 or not isinstance(outermost[0], list):
        raise Refused("it is no array")
    return outermost[0]


def _check_shape(value: list[Json]) -> None:
    """Refuse what no array of several dimensions is: lists of different lengths, empty ones, elements among them."""
    level: list[list[Json]] = [value]
    for _dimension in range(MAX_DIMENSIONS):
        inner: list[list[Json]] = [element for each in level for element in each if isinstance(element, list)]
        if not inner:
            return
        if len(inner) != sum(map(len, level)) or len({len(each) for each in inner}) > 1 or not inner[0]:
            raise Refused("its lists make no array: all elements are lists of one length, and not empty, or none is")
        level = inner
    raise Refused(f"it has more than {MAX_DIMENSIONS} dimensions")
