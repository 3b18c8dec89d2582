"""Where texts stand in a file, and whether the code around them says that they are SQL."""

from __future__ import annotations

import ast
import re

from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.meaning.texts import Pieces
from tripstore.audit.places import Lines
from tripstore.audit.uses.calls import EXECUTE


def is_executed(node: ast.expr, parent: ast.AST) -> bool:
    """Whether a text is `text(…)`, or the first argument of `execute(…)` and the like."""
    calls = [each for each in (node, parent) if isinstance(each, ast.Call) and each.args]
    return any(last_name(call.func) in EXECUTE and (call is node or node is call.args[0]) for call in calls)


def place_of(offset: int, node: ast.expr, parts: Pieces, lines: Lines, word: re.Pattern[str]) -> tuple[int, int] | None:
    """Where an offset of a text stands in the file; None if it stands elsewhere, where it is found as well.

    Escapes and joins make a text differ from its source. So the words of a literal are counted, in both.
    """
    begin = 0
    before: dict[tuple[int, int], str] = {}
    for part in parts:
        literal = part.literal
        if begin <= offset < begin + len(part.text):
            if literal is None:
                return lines.of(node) if _is_name(part.text) else None
            text = before.get(_key(literal), "") + part.text[: offset - begin]
            return lines.nth(literal, word, len(word.findall(text)))
        if literal is not None:
            before[_key(literal)] = before.get(_key(literal), "") + part.text
        begin += len(part.text)
    return lines.of(node)


def _key(literal: ast.Constant) -> tuple[int, int]:
    """Parts of an f-string have the place of all of it."""
    return literal.lineno, literal.col_offset


def _is_name(text: str) -> bool:
    return text.replace(".", "").replace('"', "").replace("_", "").isalnum()
