"""`FoundUses`: the uses of one file as they are found, each once."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tripstore.audit.allowing import Allowances
from tripstore.audit.findings import Access, Use, UseKind
from tripstore.audit.meaning.values import ModelRows
from tripstore.audit.names import LegacyTable
from tripstore.audit.places import Lines
from tripstore.audit.uses.written import written


class FoundUses:
    """They belong to the statement that is being walked."""

    def __init__(
        self, file: str, lines: Lines, allowed: Allowances, parents: Mapping[ast.AST, ast.AST], first: ast.stmt
    ) -> None:
        self._file = file
        self._lines = lines
        self._allowed = allowed
        self._parents = parents
        self._found: dict[object, tuple[ast.AST, ast.expr, Use]] = {}
        self.statement: ast.stmt | ast.ExceptHandler = first
        self._span = (0, 0)

    def walk_into(self, statement: ast.stmt | ast.ExceptHandler) -> None:
        self.statement, self._span = statement, _span(statement)

    def findings(self) -> list[Use]:
        return [found for _node, found in self.placed()]

    def placed(self) -> list[tuple[ast.expr, Use]]:
        """All with their nodes. That a model is named says nothing where the same statement is known to use it."""
        every = self._found.values()
        used = {(statement, found.table) for statement, _, found in every if found.kind is not UseKind.REFERENCE}
        return [
            (node, found)
            for statement, node, found in every
            if found.kind is not UseKind.REFERENCE or (statement, found.table) not in used
        ]

    def add_rows(self, node: ast.expr, unit: ast.AST, rows: ModelRows, kind: UseKind, access: Access) -> None:
        for table in sorted({table for entity in rows.entities for table in entity.tables}, key=str):
            self.add(node, unit, kind, table, access)

    def add(
        self,
        node: ast.expr,
        unit: object,
        kind: UseKind,
        table: LegacyTable,
        access: Access,
        place: tuple[int, int] | None = None,
        allowed: str | None = None,
        statement: str | None = None,
    ) -> None:
        """Note a use; of one unit and table it is one, and a write if any of it is. Kinds of SQL stand each alone."""
        line, column = place or self._lines.of(node)
        allowed = allowed or self._allowed.within(*self._span)
        statement = statement or written(kind, node, unit, table, self._parents)
        found = Use(self._file, line, column, kind, table, access, self._lines.excerpt(line), allowed, statement)
        key = (unit, table, kind if place is not None else None)
        before = self._found.get(key)
        if before is None or (found.access is Access.WRITE and before[2].access is not Access.WRITE):
            self._found[key] = (self.statement, node, found)


def _span(statement: ast.stmt | ast.ExceptHandler) -> tuple[int, int]:
    """The lines of a statement; of one that has others inside those of its head."""
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))])
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return first, statement.end_lineno or statement.lineno
    inner = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return first, max(first, inner - 1)
