"""`RowName`: a name that holds rows in a function. All of its uses must be such that a body serves as well."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from tripstore.audit.rewrite.models.attributes import ColumnRole
from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.models.relations import ChildList
from tripstore.audit.rewrite.questions.asking import is_counted
from tripstore.audit.rewrite.verdicts import NotCertain, RewriteAssumption

Parents = Callable[[ast.AST], ast.AST | None]
#: Whether a call is of a function that sets attributes by a dict, and does nothing else.
Settings = Callable[[ast.Call], bool]
#: The child rows that an attribute of a model leads to; None: it is no relationship.
Lists = Callable[[RewriteModel, str], ChildList | None]


@dataclass(frozen=True, slots=True)
class ListChange:
    """`trip.notes.append(…)`, or `remove`, in a statement of its own."""

    statement: ast.Expr
    call: ast.Call
    children: ChildList

    @property
    def is_insert(self) -> bool:
        return isinstance(self.call.func, ast.Attribute) and self.call.func.attr == "append"


@dataclass(frozen=True, slots=True)
class RowChange:
    """An attribute that gets a value, by an assignment or by a function that sets several."""

    statement: ast.stmt
    attribute: str
    value: ast.expr


@dataclass
class RowName:
    """What is known of one name: the row or the list that it holds, and where it is changed."""

    name: str
    model: RewriteModel
    is_list: bool
    lists: Lists
    sets: Settings
    store: str
    stores: int = 1  #: how many questions give it a row
    reads: list[tuple[ast.Attribute, str]] = field(default_factory=list)  #: with what stands there instead
    changes: list[RowChange] = field(default_factory=list)
    changing: list[ast.expr] = field(default_factory=list)  #: what of the code changes it
    deleted: list[tuple[ast.Expr, ast.Call]] = field(default_factory=list)  #: `session.delete(note)`
    added: list[tuple[ast.Expr, ast.Call]] = field(default_factory=list)  #: `session.add(trip)`
    loops: list[tuple[str, RewriteModel]] = field(default_factory=list)  #: names that a loop gives its rows
    related: list[tuple[ast.Attribute, ChildList]] = field(default_factory=list)  #: those of `reads` that are lists
    list_changes: list[ListChange] = field(default_factory=list)
    assumes: set[RewriteAssumption] = field(default_factory=set)

    @property
    def writes(self) -> list[ast.expr]:
        """What changes the row, or its child rows, or deletes it."""
        return [*self.changing, *(call for _, call in self.deleted), *(each.call for each in self.list_changes)]

    def take(self, node: ast.Name, parents: Parents) -> None:
        """One use of the name: noted, or `NotCertain`."""
        above = parents(node)
        if self.is_list:
            self._take_of_list(node, above)
        elif isinstance(above, ast.Attribute) and above.value is node:
            self._take_attribute(above, parents)
        elif _is_call_of(above, "delete", node) and isinstance(call := above, ast.Call):
            statement = parents(call)
            if not isinstance(statement, ast.Expr):
                raise NotCertain("what the deletion answers is used", "delete in a statement of its own")
            self.deleted.append((statement, call))
        elif _is_call_of(above, "add", node) and isinstance(call := above, ast.Call):
            statement = parents(call)
            if not isinstance(statement, ast.Expr):
                raise NotCertain(f"{self.name} is handed on as an object of a model", "hand on what is needed of it")
            self.added.append((statement, call))
        elif isinstance(above, ast.Call) and len(above.args) == 2 and above.args[0] is node and self.sets(above):
            self._take_settings(above, parents(above))
        elif not (_is_none_asked(above, node) or _is_truth(above, node, parents)):
            raise NotCertain(
                f"{self.name} is handed on as an object of a model", "hand on what is needed of it, or its id"
            )

    def _take_of_list(self, node: ast.Name, above: ast.AST | None) -> None:
        if isinstance(above, ast.For | ast.comprehension) and above.iter is node and isinstance(above.target, ast.Name):
            self.loops.append((above.target.id, self.model))
        elif not is_counted(above, node):
            raise NotCertain(f"{self.name} is handed on as a list of objects", "hand on what is needed of them")

    def _take_attribute(self, attribute: ast.Attribute, parents: Parents) -> None:
        children = self.lists(self.model, attribute.attr)
        if children is not None:
            self._take_related(attribute, children, parents)
            return
        if isinstance(attribute.ctx, ast.Load):
            self.reads.append((attribute, self._read(attribute)))
            return
        statement = parents(attribute)
        is_plain = isinstance(statement, ast.Assign) and statement.targets == [attribute]
        if not is_plain or not isinstance(statement, ast.Assign):
            raise NotCertain(
                f"{self.name}.{attribute.attr} is changed in place", f"say {self.name}.{attribute.attr} = …"
            )
        self.changes.append(RowChange(statement, attribute.attr, statement.value))
        self.changing.append(attribute)

    def _take_settings(self, call: ast.Call, statement: ast.AST | None) -> None:
        """`fill(trip, {"status": "open"})`"""
        row = call.args[1]
        if not isinstance(statement, ast.Expr) or not isinstance(row, ast.Dict) or call.keywords or not row.keys:
            raise NotCertain("which attributes are set is known at run time only", "name them where they are written")
        for key, value in zip(row.keys, row.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                raise NotCertain(
                    "which attributes are set is known at run time only", "name them where they are written"
                )
            self.changes.append(RowChange(statement, key.value, value))
        self.changing.append(call)

    def _take_related(self, attribute: ast.Attribute, children: ChildList, parents: Parents) -> None:
        above = parents(attribute)
        change = _list_change(attribute, children, parents)
        if change is not None:
            self.list_changes.append(change)
            return
        is_loop = isinstance(above, ast.For | ast.comprehension) and above.iter is attribute
        if is_loop and isinstance(above, ast.For | ast.comprehension) and isinstance(above.target, ast.Name):
            self.loops.append((above.target.id, children.child))
        elif not (is_counted(above, attribute) or _is_truth(above, attribute, parents) or _is_removed(above, parents)):
            raise NotCertain(
                f"{self.name}.{attribute.attr} is handed on as a list of objects", "hand on what is needed of them"
            )
        self.related.append((attribute, children))
        self.reads.append((attribute, children.found(self.store, self.name)))

    def _read(self, attribute: ast.Attribute) -> str:
        known = self.model.attribute(attribute.attr)
        if self.model.is_number(known):
            return f"{self.name}.number"
        if known.role is ColumnRole.ROW_KEY:
            return f"{self.name}.row_key"
        text, assumed = known.read(f'{self.name}.get("{known.mapped().name}")')
        self.assumes |= assumed
        return text


def _is_call_of(above: ast.AST | None, method: str, node: ast.Name) -> bool:
    """`session.delete(note)`"""
    is_method = isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) and above.func.attr == method
    return is_method and isinstance(above, ast.Call) and above.args == [node] and not above.keywords


def is_none_given(above: ast.AST | None, node: ast.Name) -> bool:
    """`trip = None`"""
    value = above.value if isinstance(above, ast.Assign) and above.targets == [node] else None
    return isinstance(value, ast.Constant) and value.value is None


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


def _list_change(attribute: ast.Attribute, children: ChildList, parents: Parents) -> ListChange | None:
    """`trip.notes.append(Note(…))`, `trip.notes.remove(trip.notes[-1])`"""
    method = parents(attribute)
    call = parents(method) if isinstance(method, ast.Attribute) and method.attr in ("append", "remove") else None
    statement = parents(call) if isinstance(call, ast.Call) and call.func is method else None
    if not isinstance(statement, ast.Expr) or not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None
    return ListChange(statement, call, children)


def _is_removed(above: ast.AST | None, parents: Parents) -> bool:
    """`trip.notes[-1]` of `trip.notes.remove(trip.notes[-1])`"""
    call = parents(above) if isinstance(above, ast.Subscript) else None
    is_method = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "remove"
    if not is_method or not isinstance(call, ast.Call) or not isinstance(above, ast.Subscript) or call.args != [above]:
        return False
    is_same = isinstance(call.func, ast.Attribute) and ast.dump(call.func.value) == ast.dump(above.value)
    try:
        return is_same and type(ast.literal_eval(above.slice)) is int
    except ValueError:
        return False
