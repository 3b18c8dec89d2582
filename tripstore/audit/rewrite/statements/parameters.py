"""`SqlParameters`: what each placeholder of a statement stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tripstore.audit.rewrite.statements.sqltext import SqlValue
from tripstore.audit.rewrite.verdicts import NotCertain

_BY_HAND = "rewrite it by hand"


@dataclass(frozen=True)
class SqlParameters:
    """Expressions by number or name; or one name that stands for all of them."""

    known: Mapping[object, ast.expr]
    source: Callable[[ast.expr], str]
    several: ast.Name | None = None

    @classmethod
    def of(cls, node: ast.expr | None, source: Callable[[ast.expr], str]) -> SqlParameters:
        if isinstance(node, ast.Tuple | ast.List):
            return cls(dict(enumerate(node.elts)), source)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return cls({key.value: value for key, value in pairs if isinstance(key, ast.Constant)}, source)
        if isinstance(node, ast.Name):
            return cls({}, source, node)
        if node is not None:
            raise NotCertain("its values are known at run time only", _BY_HAND)
        return cls({}, source)

    def text(self, of: SqlValue) -> str:
        if self.several is not None and of.placeholder is not None:
            return f"{self.source(self.several)}[{of.placeholder!r}]".replace("'", '"')
        node = self.node(of)
        return of.constant if node is None else self.source(node)

    def nodes(self, values: Iterable[SqlValue]) -> list[ast.expr]:
        return [node for value in values if (node := self.node(value)) is not None]

    def node(self, of: SqlValue) -> ast.expr | None:
        if of.placeholder is None or self.several is not None:
            return None
        if of.placeholder not in self.known or isinstance(self.known[of.placeholder], ast.Starred):
            raise NotCertain("its values do not fit its placeholders", _BY_HAND)
        return self.known[of.placeholder]
