"""`RowName`: a name that holds rows in a function. All of its uses must be such that a body serves as well."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from tripstore.audit.rewrite.models.attributes import ColumnRole
from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.questions.asking import is_counted
from tripstore.audit.rewrite.verdicts import NotCertain, RewriteAssumption

Parents = Callable[[ast.AST], ast.AST | None]


@dataclass
class RowName:
    """What is known of one name: the row or the list that it holds, and where it is changed."""

    name: str
    model: RewriteModel
    is_list: bool
    reads: list[tuple[ast.Attribute, str]] = field(default_factory=list)  #: with what stands there instead
    assigned: list[tuple[ast.stmt, ast.Attribute]] = field(default_factory=list)
    deleted: list[tuple[ast.Expr, ast.Call]] = field(default_factory=list)  #: `session.delete(note)`
    loops: list[str] = field(default_factory=list)  #: names that a loop gives its rows
    assumes: set[RewriteAssumption] = field(default_factory=set)

    def take(self, node: ast.Name, parents: Parents) -> None:
        """One use of the name: noted, or `NotCertain`."""
        above = parents(node)
        if self.is_list:
            self._take_of_list(node, above)
        elif isinstance(above, ast.Attribute) and above.value is node:
            self._take_attribute(above, parents)
        elif _is_deleted(above, node) and isinstance(call := above, ast.Call):
            statement = parents(call)
            if not isinstance(statement, ast.Expr):
                raise NotCertain("what the deletion answers is used", "delete in a statement of its own")
            self.deleted.append((statement, call))
        elif not (_is_none_asked(above, node) or _is_truth(above, node, parents)):
            raise NotCertain(
                f"{self.name} is handed on as an object of a model", "hand on what is needed of it, or its id"
            )

    def _take_of_list(self, node: ast.Name, above: ast.AST | None) -> None:
        if isinstance(above, ast.For | ast.comprehension) and above.iter is node and isinstance(above.target, ast.Name):
            self.loops.append(above.target.id)
        elif not is_counted(above, node):
            raise NotCertain(f"{self.name} is handed on as a list of objects", "hand on what is needed of them")

    def _take_attribute(self, attribute: ast.Attribute, parents: Parents) -> None:
        if isinstance(attribute.ctx, ast.Load):
            self.reads.append((attribute, self._read(attribute)))
            return
        statement = parents(attribute)
        is_plain = isinstance(statement, ast.Assign) and statement.targets == [attribute]
        if not is_plain or not isinstance(statement, ast.Assign):
            raise NotCertain(
                f"{self.name}.{attribute.attr} is changed in place", f"say {self.name}.{attribute.attr} = …"
            )
        self.assigned.append((statement, attribute))

    def _read(self, attribute: ast.Attribute) -> str:
        known = self.model.attribute(attribute.attr)
        if self.model.is_number(known):
            return f"{self.name}.number"
        if known.role is ColumnRole.ROW_KEY:
            return f"{self.name}.row_key"
        text, assumed = known.read(f'{self.name}.get("{known.mapped().name}")')
        self.assumes |= assumed
        return text


def _is_deleted(above: ast.AST | None, node: ast.Name) -> bool:
    """`session.delete(note)`"""
    is_method = isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) and above.func.attr == "delete"
    return is_method and isinstance(above, ast.Call) and above.args == [node] and not above.keywords


def _is_none_asked(above: ast.AST | None, node: ast.Name) -> bool:
    """`trip is None`"""
    if not isinstance(above, ast.Compare) or above.left is not node or len(above.ops) != 1:
        return False
    other = above.comparators[0]
    return isinstance(above.ops[0], ast.Is | ast.IsNot) and isinstance(other, ast.Constant) and other.value is None


def _is_truth(above: ast.AST | None, node: ast.expr, parents: Parents) -> bool:
    """`if trip`, `not trip`, `if trip and …`"""
    if isinstance(above, ast.UnaryOp):
        return isinstance(above.op, ast.Not)
    if isinstance(above, ast.If | ast.While | ast.IfExp | ast.Assert):
        return above.test is node
    if isinstance(above, ast.BoolOp) and isinstance(above.op, ast.And) and above.values[-1] is not node:
        return True  # `trip and trip.fare` is None where there is none
    if isinstance(above, ast.BoolOp):
        return _is_truth(parents(above), above, parents)
    return False
