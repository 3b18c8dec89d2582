"""`Rendering`: the source of a file with some of its expressions replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from tripstore.audit.places import Lines
from tripstore.audit.rewrite.verdicts import Edit, NotCertain

#: How an f-string begins.
_QUOTES = re.compile(r"""\b(?:f|rf|fr)('''|\"{3}|'|")""", re.IGNORECASE)


class Rendering:
    """Remembers what is replaced, and renders nodes with it."""

    def __init__(self, lines: Lines, parents: Callable[[ast.AST], ast.AST | None]) -> None:
        self._lines = lines
        self._parents = parents
        self.replaced: dict[ast.expr, str] = {}

    def replace(self, node: ast.expr, text: str) -> None:
        """Put a text in the place of a node. Older Pythons cannot tell all places in f-strings: these are checked."""
        self._check_place(node)
        self.replaced[node] = self._quoted(node, text)

    def forget(self, nodes: Iterable[ast.expr]) -> None:
        """Nothing stands in their place yet."""
        for node in nodes:
            del self.replaced[node]

    def _check_place(self, node: ast.expr) -> None:
        start, end = self._lines.span(node)
        try:
            there = ast.parse(f"({self._lines.source[start:end]}\n)", mode="eval").body
        except (SyntaxError, ValueError):
            there = ast.Constant(None)
        if ast.dump(there) != ast.dump(node):
            raise NotCertain("its place within a text cannot be told", "give it a name before the text")

    def _quoted(self, node: ast.expr, text: str) -> str:
        """With other quotes than those of the f-string around it, which Pythons before 3.12 need."""
        around = self._parents(node)
        while around is not None and not isinstance(around, ast.JoinedStr | ast.stmt):
            around = self._parents(around)
        if not isinstance(around, ast.JoinedStr) or '"' not in text:
            return text
        start, end = self._lines.span(around)
        quotes = {found[1] for found in _QUOTES.finditer(self._lines.source[start:end])}
        if quotes <= {"'", "'''", '"""'}:
            return text
        if quotes != {'"'} or "'" in text:
            raise NotCertain("it stands in a text with several quotes", "give it a name before the text")
        return text.replace('"', "'")

    def has(self, node: ast.AST) -> bool:
        """Whether a node is within something that is replaced."""
        above: ast.AST | None = node
        while above is not None and above not in self.replaced:
            above = self._parents(above)
        return above is not None

    def source(self, node: ast.expr) -> str:
        """A node as it stands, with what is replaced inside of it."""
        if not hasattr(node, "lineno"):
            return ast.unparse(node)  # True, where the code has `Trip.is_open` alone
        self._check_place(node)
        return self.source_of_statement(node)

    def source_of_statement(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._lines.span(node)
        text, at = "", start
        for inner, new in self._outermost(node):
            begin, close = self._lines.span(inner)
            text += self._lines.source[at:begin] + new
            at = close
        return text + self._lines.source[at:end]

    def _outermost(self, node: ast.expr | ast.stmt) -> list[tuple[ast.expr, str]]:
        found: list[tuple[ast.expr, str]] = []
        waiting: list[ast.AST] = [node]
        while waiting:
            each = waiting.pop()
            if isinstance(each, ast.expr) and each in self.replaced:
                found.append((each, self.replaced[each]))
            else:
                waiting.extend(ast.iter_child_nodes(each))
        return sorted(found, key=lambda pair: self._lines.span(pair[0]))

    def check_text(self, node: ast.expr | ast.stmt) -> None:
        """Nothing would be lost in it."""
        start, end = self._lines.span(node)
        if "#" in self._lines.source[start:end]:
            raise NotCertain("there is a comment, or a # in a text, inside of it", "move it above")
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr | ast.Starred | ast.GeneratorExp):
                raise NotCertain("there is an assignment, a star or a generator inside of it", "take it out")

    def check_order(self, values: Sequence[ast.expr]) -> None:
        """Calls that make the values are made in the order in which they were: any of them may draw a number."""
        calling = [each for each in values if any(isinstance(part, ast.Call) for part in ast.walk(each))]
        places = [self._lines.span(each) for each in calling]
        if places != sorted(places):
            raise NotCertain("its values would be computed in another order", "give them names first")

    def edits(self, statements: dict[tuple[ast.stmt, ...], str], needless: Collection[ast.stmt] = ()) -> Iterator[Edit]:
        """All changes; statements become one text where the last of them stands; needless ones go."""
        gone = {each for several, text in statements.items() if text for each in several} | set(needless)
        yield from (Edit(*self._whole_lines(each), "") for each in needless)
        for several, text in statements.items():
            if text:
                yield Edit(*self._lines.span(several[-1]), text)
                yield from (Edit(*self._whole_lines(each), "") for each in several[:-1])
        for node, text in self.replaced.items():
            above = self._parents(node)
            if not self.is_below(node, gone) and not (above is not None and self.has(above)):
                yield Edit(*self._lines.span(node), text)

    def is_below(self, node: ast.AST, those: Collection[ast.AST]) -> bool:
        above: ast.AST | None = node
        while above is not None and above not in those:
            above = self._parents(above)
        return above is not None

    def _whole_lines(self, statement: ast.stmt) -> tuple[int, int]:
        start, end = self._lines.span(statement)
        source = self._lines.source
        before = source.rfind("\n", 0, start) + 1
        after = source.find("\n", end)
        if source[before:start].strip() or source[end:after].strip():
            raise NotCertain("there is more than this statement in its line", "give it a line of its own")
        return before, after + 1
