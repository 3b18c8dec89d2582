"""Names that code computes from the name of a class: `cls.__name__.lower() + "s"`. Nothing of it is run."""

from __future__ import annotations

import ast
from collections.abc import Callable

_PLAIN = frozenset({"lower", "upper", "strip", "capitalize", "title", "casefold", "swapcase"})


def computed_name(node: ast.expr, class_name: str, known: Callable[[ast.expr], str | None]) -> str | None:
    """The name, or None if it calls what cannot be followed; `known` is the text of a constant."""

    def of(part: ast.expr) -> str | None:
        match part:
            case ast.Constant(value=str(text)):
                return text
            case ast.Attribute(attr="__name__" | "__qualname__"):
                return class_name
            case ast.Call(func=ast.Attribute(value=inner, attr=method), args=[], keywords=[]) if method in _PLAIN:
                said = of(inner)
                return None if said is None else str(getattr(said, method)())
            case ast.Call(func=ast.Attribute(value=inner, attr="replace"), args=[old, new]):
                before, found, put = of(inner), of(old), of(new)
                return None if before is None or found is None or put is None else before.replace(found, put)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _together([of(left), of(right)])
            case ast.JoinedStr(values=values):
                return _together([of(each) for each in values])
            case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
                return of(inner)
            case _:
                return known(part)

    return of(node)


def _together(texts: list[str | None]) -> str | None:
    return None if None in texts else "".join(text for text in texts if text is not None)


def constants(node: ast.expr) -> list[str]:
    """The texts in an expression: of f"{prefix}_trips" the part that is known."""
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
