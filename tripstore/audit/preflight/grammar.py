"""Statements as trees, by Postgres' own grammar. The one place that knows the library and the shape of its answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tripstore.backends.postgres.tokens import Type, tokens

#: Constants of these types are written as a type and a text; pg_stat_statements leaves `interval $1`.
_TYPED = re.compile(r"(?i)\b(?:interval|date|time|timestamp|timestamptz)\s+$")


class Name(NamedTuple):
    """A relation as a statement names it."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


class UnreadableStatement(Exception):
    """The text is no statement of Postgres'."""


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of a statement's tree; a part that is always of one kind has no name for it."""

    kind: str
    fields: Mapping[str, Any]

    def find(self, name: str) -> TreeNode | None:
        found = self.fields.get(name)
        return _node(found) if isinstance(found, dict) else None

    def every(self, name: str) -> list[TreeNode]:
        found = self.fields.get(name)
        return [_node(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def text(self, name: str) -> str:
        found = self.fields.get(name, "")
        return found if isinstance(found, str) else ""

    def number(self, name: str) -> int:
        found = self.fields.get(name, 0)
        return found if isinstance(found, int) else 0

    def has(self, name: str) -> bool:
        return bool(self.fields.get(name))

    def strings(self, name: str) -> list[str]:
        """The words of a list of names; what is no word there is left out."""
        return [each.text("sval") for each in self.every(name) if each.kind == "String"]

    def children(self, *without: str) -> Iterator[TreeNode]:
        for name, value in self.fields.items():
            if name not in without:
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, dict):
                        yield _node(each)

    def walk(self) -> Iterator[TreeNode]:
        yield self
        for child in self.children():
            yield from child.walk()

    @property
    def shape(self) -> str:
        """Equal for what is written alike, wherever it stands."""
        return f"{self.kind}{_without_places(self.fields)}"

    @property
    def relation(self) -> Name:
        return Name(self.text("schemaname") or None, self.text("relname"))


def parsed(text: str) -> list[TreeNode]:
    """The statements of a text, or raise `UnreadableStatement`. Placeholders of drivers are taken for values."""
    # Imported here: of all commands only this one needs it.
    import pgparse

    complaint = ""
    for candidate in _readings(text):
        try:
            return [_node(each["stmt"]) for each in pgparse.parse(candidate) if "stmt" in each]
        except pgparse.PGQueryError as error:
            complaint = complaint or str(error.message)
    raise UnreadableStatement(complaint)


def fingerprint(text: str) -> str:
    """Equal for statements that differ in their values alone. Of a text that does not parse it is the text."""
    import pgparse

    for candidate in _readings(text):
        try:
            return str(pgparse.fingerprint(candidate))
        except pgparse.PGQueryError:
            continue
    return text


def _readings(text: str) -> Iterator[str]:
    """The text, then with numbers for placeholders, then with texts: not everywhere may a parameter stand."""
    yield text
    holes = [token for token in tokens(text) if token.type is Type.HOLE]
    if not holes:
        return
    numbers: dict[str, int] = {}
    found: dict[str, list[str]] = {"parameters": [], "texts": []}
    position = 0
    for hole in holes:
        key = f"{hole.offset} {hole.raw}" if hole.raw in ("%s", "?") else hole.raw
        number = numbers.setdefault(key, len(numbers) + 1)
        before = text[position : hole.offset]
        found["parameters"] += [before, f"'${number}'" if _TYPED.search(before) else f"${number}"]
        found["texts"] += [before, f"'${number}'"]
        position = hole.offset + len(hole.raw)
    for pieces in found.values():
        yield "".join(pieces) + text[position:]


def _node(value: dict[str, Any]) -> TreeNode:
    if len(value) == 1:
        ((kind, fields),) = value.items()
        if kind[:1].isupper() and isinstance(fields, dict):
            return TreeNode(kind, fields)
    return TreeNode("RangeVar" if "relname" in value else "", value)


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_places(each) for name, each in sorted(value.items()) if name != "location"}
    return [_without_places(each) for each in value] if isinstance(value, list) else value
