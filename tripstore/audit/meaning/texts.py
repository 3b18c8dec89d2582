"""Texts that code puts together: joined, formatted, f-strings. What is known at run time only leaves a hole."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import Formatter

from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.meaning.denoting import Denoting
from tripstore.audit.meaning.values import Entity, Scope, Text
from tripstore.backends.postgres.tokens import HOLE

#: Calls that leave a text as it is, or nearly so.
_WRAPPERS = frozenset({"text", "SQL", "dedent", "cleandoc", "str", "Composed", "literal_column", "DDL"})
_METHODS = frozenset({"strip", "lstrip", "rstrip", "as_string", "encode"})
_PERCENT = re.compile(r"%(?:\((\w+)\))?[-#0 +]*[\d.*]*([sdrif%])")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, and the literal that it stands in; what a name brought stands nowhere here."""

    text: str
    literal: ast.Constant | None = None


Pieces = list[Piece]


def pieces(node: ast.expr, scope: Scope, denoting: Denoting) -> Pieces | None:
    """The parts of a text, or None of what is no text that is written here."""
    return _Puzzle(scope, denoting).of(node)


class _Puzzle:
    def __init__(self, scope: Scope, denoting: Denoting) -> None:
        self._scope = scope
        self._denoting = denoting

    def of(self, node: ast.expr) -> Pieces | None:
        match node:
            case ast.Constant(value=str(text)):
                return [Piece(text, node)]
            case ast.JoinedStr(values=values):
                return [piece for value in values for piece in self._formatted(value)]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                first, second = self.of(left), self.of(right)
                if first is None and second is None:
                    return None
                return (self._named(left) if first is None else first) + (
                    self._named(right) if second is None else second
                )
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                template = self.of(left)
                return None if template is None else self._percent(template, right)
            case ast.Call():
                return self._call(node)
            case _:
                return None

    def _formatted(self, value: ast.expr) -> Pieces:
        if isinstance(value, ast.FormattedValue):
            return self._inserted(value.value)
        return self.of(value) or [Piece(HOLE)]

    def _inserted(self, value: ast.expr) -> Pieces:
        return self.of(value) or self._named(value)

    def _named(self, node: ast.expr) -> Pieces:
        """What a name stands for, if it is known."""
        found = self._denoting.value(node, self._scope)
        if isinstance(found, Text):
            return [Piece(found.text)]
        if isinstance(found, Entity) and found.tables and found.facts is None:
            return [Piece(found.tables[0].name)]  # a table object shows its name
        return [Piece(HOLE)]

    def _call(self, node: ast.Call) -> Pieces | None:
        name = last_name(node.func)
        if name == "Identifier" and node.args:
            parts = ["".join(piece.text for piece in self._inserted(argument)) for argument in node.args]
            return [Piece(".".join(f'"{part}"' for part in parts))]
        if name in _WRAPPERS and node.args:
            return self.of(node.args[0])
        if not isinstance(node.func, ast.Attribute):
            return None
        base = self.of(node.func.value)
        if base is None:
            return None
        if name == "format":
            return self._format(base, node)
        if name == "join" and len(node.args) == 1:
            return self._join(base, node.args[0])
        return base if name in _METHODS else None

    def _join(self, separator: Pieces, parts: ast.expr) -> Pieces:
        if not isinstance(parts, ast.List | ast.Tuple):
            return [Piece(HOLE)]
        found: Pieces = []
        for number, part in enumerate(parts.elts):
            found += (separator if number else []) + self._inserted(part)
        return found

    def _format(self, template: Pieces, call: ast.Call) -> Pieces:
        named = {word.arg: word.value for word in call.keywords if word.arg is not None}
        waiting = iter(call.args)
        found: Pieces = []
        for piece in template:
            try:
                parts = list(Formatter().parse(piece.text))
            except ValueError:
                return template  # no template after all
            for literal, key, _spec, _conversion in parts:
                found.append(Piece(literal, piece.literal))
                if key is not None:
                    found += self._argument(key, call.args, named, waiting)
        return found

    def _argument(
        self, key: str, given: list[ast.expr], named: dict[str, ast.expr], waiting: Iterator[ast.expr]
    ) -> Pieces:
        if key.isdigit():
            value = given[int(key)] if int(key) < len(given) else None
        else:
            value = named.get(key) if key else next(waiting, None)
        return self._inserted(value) if value is not None else [Piece(HOLE)]

    def _percent(self, template: Pieces, values: ast.expr) -> Pieces:
        given = iter(values.elts if isinstance(values, ast.Tuple) else [values])
        named = _constant_keys(values)
        found: Pieces = []
        for piece in template:
            position = 0
            for mark in _PERCENT.finditer(piece.text):
                found.append(Piece(piece.text[position : mark.start()], piece.literal))
                position = mark.end()
                if mark[2] == "%":
                    found.append(Piece("%"))
                    continue
                value = named.get(mark[1]) if mark[1] else next(given, None)
                found += self._inserted(value) if value is not None else [Piece(HOLE)]
            found.append(Piece(piece.text[position:], piece.literal))
        return found


def _constant_keys(values: ast.expr) -> dict[str, ast.expr]:
    if not isinstance(values, ast.Dict):
        return {}
    return {
        key.value: value
        for key, value in zip(values.keys, values.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
