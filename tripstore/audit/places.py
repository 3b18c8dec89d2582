"""Lines and columns, counted from 1 in characters, as editors do."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from functools import cached_property

EXCERPT_MAX = 120


class Lines:
    """The lines of a file."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.split("\n")

    def of(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node begins; Python counts its bytes."""
        return node.lineno, self._characters(node.lineno, node.col_offset) + 1

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node begins and ends, as offsets in the whole file."""
        last, size = node.end_lineno or node.lineno, node.end_col_offset or 0
        first = self._starts[node.lineno - 1] + self._characters(node.lineno, node.col_offset)
        return first, self._starts[last - 1] + self._characters(last, size)

    def at(self, offset: int) -> tuple[int, int]:
        """The place of an offset in the whole file."""
        number = bisect_right(self._starts, offset)
        return number, offset - self._starts[number - 1] + 1

    def nth(self, node: ast.Constant, word: re.Pattern[str], number: int) -> tuple[int, int]:
        """The place of the n-th word in the source of a literal; of the literal if it is written otherwise there."""
        line, column = self.of(node)
        begin = self._starts[line - 1] + column - 1
        last = node.end_lineno or line
        end = self._starts[last - 1] + self._characters(last, node.end_col_offset or 0)
        for count, found in enumerate(word.finditer(self.source, begin, end)):
            if count == number:
                return self.at(found.start())
        return line, column

    def excerpt(self, line: int) -> str:
        text = self.lines[line - 1].strip() if line <= len(self.lines) else ""
        return text if len(text) <= EXCERPT_MAX else f"{text[: EXCERPT_MAX - 1]}…"

    def _characters(self, line: int, size: int) -> int:
        text = self.lines[line - 1]
        return size if text.isascii() else len(text.encode()[:size].decode(errors="ignore"))

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line) + 1)
        return starts
