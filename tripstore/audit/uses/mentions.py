"""A place where code names a model or a table object: which call it belongs to, and what that does."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tripstore.audit.findings import Access, UseKind
from tripstore.audit.meaning.heads import ACTIVE_VERBS, ACTIVE_WRITES, BULKS, GETS, STATEMENTS, WRITES, receivers
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.meaning.values import Entity

_READS = frozenset({"select", "join", "outerjoin", "exists"})
#: What still means the table itself: Trip.__table__.insert()
_SAME = frozenset({"__table__", "alias"})


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a mention is used, and the node that it is part of: one use per such node and table."""

    unit: ast.AST
    kind: UseKind
    access: Access


@dataclass(frozen=True, slots=True)
class MentionJudge:
    """Climbs from a mention to the call that uses it."""

    parents: Mapping[ast.AST, ast.AST]
    callee: Callable[[ast.Call], str]  #: How a call is named where it was defined.
    is_manager: Callable[[str], bool]  #: Whether an attribute of the model is a manager of Django's.
    is_statement: Callable[[ast.expr], bool]  #: Whether a variable is a statement that was begun earlier.

    def judge(self, node: ast.expr, entity: Entity, statement: ast.AST) -> Judgement:
        child: ast.AST = node
        is_itself = True  # the model, not a column of it
        while not isinstance(parent := self.parents[child], ast.stmt):
            found: Judgement | None = None
            if isinstance(parent, ast.Attribute) and is_itself:
                found = self._method(parent, entity)
                is_itself = parent.attr in _SAME
            elif isinstance(parent, ast.Call) and child is parent.func:
                if is_itself and entity.facts is not None:
                    return Judgement(parent, UseKind.NEW, Access.WRITE)
                is_itself = is_itself and isinstance(child, ast.Attribute)
            elif isinstance(parent, ast.Call):
                found = self._argument(parent, child)
                is_itself = False
            elif not isinstance(parent, ast.keyword | ast.Tuple | ast.List | ast.Starred):
                is_itself = False
            if found is not None:
                return found
            child = parent
        return Judgement(statement, UseKind.REFERENCE, Access.UNKNOWN)

    def _method(self, attribute: ast.Attribute, entity: Entity) -> Judgement | None:
        """`trips.insert()`, `Trip.query.filter(…).delete()`, `Trip.objects.get(…)`"""
        if entity.orm is Orm.DJANGO and self.is_manager(attribute.attr):
            return self._active(attribute)
        if entity.orm is Orm.PEEWEE and attribute.attr in ACTIVE_VERBS:
            return self._active(attribute, attribute)
        if attribute.attr == "query":
            return self._query(attribute, is_target=True)
        call = self.parents[attribute]
        if not (isinstance(call, ast.Call) and call.func is attribute):
            return None
        if attribute.attr in WRITES:
            return Judgement(call, WRITES[attribute.attr], Access.WRITE)
        return Judgement(call, UseKind.SELECT, Access.READ) if attribute.attr in _READS else None

    def _active(self, head: ast.Attribute, first: ast.Attribute | None = None) -> Judgement:
        """What the chain of a manager, or of a model of Peewee, ends with."""
        verb: ast.AST | None = first if first is not None else self.parents[head]
        while isinstance(verb, ast.Attribute):
            call = self.parents[verb]
            if not (isinstance(call, ast.Call) and call.func is verb):
                break
            kind = ACTIVE_VERBS.get(verb.attr, UseKind.QUERY)
            if kind is not UseKind.QUERY:
                return Judgement(head, kind, Access.WRITE if kind in ACTIVE_WRITES else Access.READ)
            verb = self.parents[call]
        return Judgement(head, UseKind.QUERY, Access.READ)

    def _argument(self, call: ast.Call, child: ast.AST) -> Judgement | None:
        """An argument of a call, or of a method that is chained to one: `select(User).join(Trip)`."""
        head = self._head(call)
        if head is None:
            goes_on = self.is_statement(_base(call))  # stmt = stmt.where(Trip.id == 7)
            return Judgement(_base(call), UseKind.SELECT, Access.READ) if goes_on else None
        name, is_own = self.callee(head), head is call
        is_first = is_own and bool(head.args) and child is head.args[0]
        if name in GETS:
            return Judgement(head, UseKind.GET, Access.READ) if is_first else None
        if name in BULKS:
            return Judgement(head, UseKind.BULK, Access.WRITE) if is_first else None
        if name in WRITES:
            kind = WRITES[name] if is_first else UseKind.SELECT
            return Judgement(head, kind, Access.WRITE if is_first else Access.READ)
        if name == "query":
            return self._query(head, is_target=is_own)
        return Judgement(head, UseKind.SELECT, Access.READ)

    def _head(self, call: ast.Call) -> ast.Call | None:
        """The first call of a chain that begins a statement."""
        found = None
        for each in receivers(call):
            name = self.callee(each)
            if name in STATEMENTS or name in BULKS or (name in GETS and len(each.args) + len(each.keywords) > 1):
                found = each
        return found

    def _query(self, head: ast.expr, *, is_target: bool) -> Judgement:
        """A query reads, unless the chain ends with `.update(…)` or `.delete()`."""
        node: ast.AST = head
        while isinstance(attribute := self.parents[node], ast.Attribute):
            call = self.parents[attribute]
            if not (isinstance(call, ast.Call) and call.func is attribute):
                break
            if attribute.attr in ("update", "delete") and is_target:
                return Judgement(head, WRITES[attribute.attr], Access.WRITE)
            node = call
        return Judgement(head, UseKind.QUERY, Access.READ)


def _base(call: ast.Call) -> ast.expr:
    """What a chain of methods begins with."""
    node: ast.expr = call
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node
