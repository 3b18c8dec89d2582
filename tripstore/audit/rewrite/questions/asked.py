"""What a chain of SQLAlchemy's calls asks for: `session.query(Trip).filter(Trip.id == 7).first()` as data.

A chain that is not understood in full raises `NotCertain`; one that is no question to a legacy table is None.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from tripstore.audit.meaning.bindings import Assigned, last_name
from tripstore.audit.meaning.denoting import Denoting
from tripstore.audit.meaning.values import Entity, Module, Scope
from tripstore.audit.names import words
from tripstore.audit.rewrite.questions.questions import (
    ANY_SUM,
    AskedChange,
    AskedCondition,
    AskedQuestion,
    links,
    short,
)
from tripstore.audit.rewrite.reasons import OF_LINK, OF_VERB
from tripstore.audit.rewrite.verdicts import NotCertain

_BY_HAND = "rewrite it by hand"
_ONE = words("first one_or_none scalar_one_or_none")
_MANY = words("all count")
#: What raises where there is no row: how it brings one, and which call raises the same.
_STRICT = {
    "one": ("one_or_none", "required"),
    "scalar_one": ("one_or_none", "required"),
    "first_or_404": ("first", "or_404"),
    "one_or_404": ("one_or_none", "or_404"),
}
_GETS = {"get": "", "get_one": "required", "get_or_404": "or_404"}
_WHERE = words("where filter filter_by")
_OPERATORS = {ast.Eq: "=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class AskedReader:
    """Reads chains in one scope."""

    def __init__(
        self, denoting: Denoting, scope: Scope, kept: Callable[[ast.Name], ast.Assign | None] = lambda _name: None
    ) -> None:
        """`kept` finds the assignment of a statement that has a name."""
        self._denoting = denoting
        self._scope = scope
        self._kept = kept

    def asked(self, node: ast.expr) -> AskedQuestion | None:
        base, chain = links(node)
        if not chain:
            return None
        name, first = chain[0]
        if isinstance(base, ast.Attribute) and base.attr == "query":
            entity = self._entity(base.value)
            return None if entity is None else self._query(AskedQuestion(entity, None), chain)
        if base is None:
            return None
        if name in _GETS:
            return self._get(base, first, chain)
        if name == "query":
            begun = self._begun(first, base)
            return None if begun is None else self._query(begun, chain[1:])
        if name in ("scalars", "scalar", "execute"):
            return self._executed(base, name, first, chain[1:])
        return None

    def attribute(self, node: ast.AST) -> tuple[Entity, str] | None:
        """The column that `Trip.city` or `trips.c.city` is."""
        if not isinstance(node, ast.Attribute):
            return None
        owner = node.value
        if isinstance(owner, ast.Attribute) and owner.attr in ("c", "columns"):
            owner = owner.value
        entity = self._entity(owner)
        return None if entity is None else (entity, node.attr)

    def mentions(self, node: ast.AST, steps: int = 3) -> bool:
        """Whether a model, a table or SQLAlchemy itself is in it, or in what its names stand for here.

        Postgres computes such a value.
        """
        for part in ast.walk(node):
            if (
                isinstance(part, ast.Name)
                and steps
                and any(self.mentions(each, steps - 1) for each in self._said(part))
            ):
                return True
            if isinstance(part, ast.Name | ast.Attribute):
                value = self._denoting.value(part, self._scope)
                if isinstance(value, Entity) and value.tables:
                    return True
                if isinstance(value, Module) and value.dotted.partition(".")[0] in (
                    "sqlalchemy",
                    "sqlmodel",
                    "psycopg2",
                ):
                    return True
        return False

    def _said(self, name: ast.Name) -> Iterator[ast.expr]:
        """The values that the function gives to a name; not what it asks a session for."""
        for bound in self._scope.bindings.names.get(name.id, ()):
            is_plain = isinstance(bound, Assigned) and not bound.is_element and not bound.is_annotation
            if isinstance(bound, Assigned) and is_plain and self._is_computing(bound.value):
                yield bound.value

    def _is_computing(self, node: ast.expr) -> bool:
        """Whether an expression is no question, the answer to which is a value of Python's."""
        asks = words("get scalar scalars execute query first all one one_or_none")
        return not any(isinstance(part, ast.Call) and last_name(part.func) in asks for part in ast.walk(node))

    def _entity(self, node: ast.expr) -> Entity | None:
        found = self._denoting.value(node, self._scope) if isinstance(node, ast.Name | ast.Attribute) else None
        return found if isinstance(found, Entity) and found.tables else None

    def _get(self, handle: ast.expr, call: ast.Call, chain: list[tuple[str, ast.Call]]) -> AskedQuestion | None:
        entity = self._entity(call.args[0]) if call.args else None
        if entity is None:
            return None
        if call.keywords:
            said = ", ".join(f"{word.arg}=" for word in call.keywords)
            raise NotCertain(
                f"get has {said}: no call of tripstore locks a row or loads others with it", "put with expect_latest"
            )
        if len(call.args) != 2 or len(chain) > 1:
            raise NotCertain("this form of get is not known", _BY_HAND)
        key = call.args[1]
        if isinstance(key, ast.Dict | ast.Starred):
            raise NotCertain("its key is a mapping", "say the values of the key in their order")
        keys = tuple(key.elts) if isinstance(key, ast.Tuple) else (key,)
        return AskedQuestion(entity, handle, keys=keys, end="get", or_raise=_GETS[chain[0][0]])

    def _executed(
        self, handle: ast.expr, name: str, call: ast.Call, rest: list[tuple[str, ast.Call]]
    ) -> AskedQuestion | None:
        if len(call.args) != 1 or call.keywords:
            return None
        said = call.args[0]
        kept = self._kept(said) if isinstance(said, ast.Name) else None
        _, inner = links(said if kept is None else kept.value)
        if not inner:
            return None
        verb, first = self._verb(inner)
        if verb == "select":
            begun = self._begun(first, handle)
            if begun is None:
                return None
            read = self._refined(replace(begun, kept=kept), inner[1:])
            return self._ended(read, name, [each for each, _ in rest])
        if verb in ("update", "delete", "insert"):
            entity = self._target(inner[0], first)
            if entity is None:
                return None
            if verb == "insert":
                raise NotCertain(*OF_VERB[verb])
            begun = AskedQuestion(entity, handle, is_update=verb == "update", is_delete=verb == "delete", kept=kept)
            return self._update(begun, inner[1:], rest)
        return None

    def _verb(self, inner: list[tuple[str, ast.Call]]) -> tuple[str, ast.Call]:
        name, first = inner[0]
        return (self._denoting.callee(first, self._scope), first) if isinstance(first.func, ast.Name) else (name, first)

    def _target(self, link: tuple[str, ast.Call], first: ast.Call) -> Entity | None:
        """Of `update(Trip)` and of `trips.update()`."""
        if first.args:
            return self._entity(first.args[0])
        return self._entity(first.func.value) if isinstance(first.func, ast.Attribute) else None

    def _begun(self, call: ast.Call, handle: ast.expr) -> AskedQuestion | None:
        """What `query(…)` and `select(…)` name: one model, or columns of one."""
        wholes = [self._entity(each) for each in call.args]
        columns = [self.attribute(each) for each in call.args]
        if not any(wholes) and not any(columns):
            if any(self.mentions(each) for each in call.args):
                raise NotCertain(
                    "it asks for more than columns: an aggregate or an expression",
                    "keep a count in a cell, by a trigger",
                )
            return None
        if len(call.args) == 1 and wholes[0] is not None:
            return AskedQuestion(wholes[0], handle)
        named = [each for each in columns if each is not None]
        if len(named) != len(call.args) or len({each[0].line for each in named}) > 1:
            raise NotCertain(
                "it asks for more than the columns of one table",
                "ask for each by its own call, or denormalise the field",
            )
        return AskedQuestion(named[0][0], handle, columns=tuple(each[1] for each in named))

    def _query(self, begun: AskedQuestion, chain: list[tuple[str, ast.Call]]) -> AskedQuestion:
        """The links behind `session.query(Trip)`, the last of which brings rows."""
        ends = [name for name, _ in chain if name in _ONE | _MANY | _STRICT.keys()]
        if len(chain) == 1 and chain[0][0] in _GETS and len(chain[0][1].args) == 1 and not chain[0][1].keywords:
            key = chain[0][1].args[0]
            keys = tuple(key.elts) if isinstance(key, ast.Tuple) else (key,)
            return replace(begun, end="get", keys=keys, or_raise=_GETS[chain[0][0]])
        if chain and chain[-1][0] == "update" and len(chain[-1][1].args) >= 1:
            call = chain[-1][1]
            read = self._refined(begun, chain[:-1])
            return replace(read, is_update=True, changes=tuple(self._pairs(call.args[0], begun.entity)))
        if chain and chain[-1][0] == "delete" and not chain[-1][1].args:
            return replace(self._refined(begun, chain[:-1]), is_delete=True)
        if chain and chain[-1][0] in OF_VERB:
            raise NotCertain(*OF_VERB[chain[-1][0]])
        if len(ends) > 1 or (ends and (chain[-1][0] != ends[0] or chain[-1][1].args or chain[-1][1].keywords)):
            raise NotCertain(f".{chain[-1][0]}(…) is not known here", _BY_HAND)
        read = self._refined(begun, chain[:-1] if ends else chain)
        return self._ended(read, "query", ends)

    def _ended(self, read: AskedQuestion, name: str, ends: list[str]) -> AskedQuestion:
        """With the call that brings the rows; tuples are left."""
        or_raise = ""
        if ends and ends[-1] in _STRICT:
            ends, or_raise = [*ends[:-1], _STRICT[ends[-1]][0]], _STRICT[ends[-1]][1]
            if read.columns or (name != "query" and or_raise != "required"):
                raise NotCertain("it brings a value or raises", "ask for None instead, and raise")
        if name == "execute" and ends[:1] == ["scalars"]:
            name, ends = "scalars", ends[1:]
        elif name == "execute" and (ends == ["scalar_one_or_none"] or or_raise):
            name, ends = "scalars", ["one_or_none"]
        if name == "scalar" and not ends:
            ends = ["scalar"]
        elif name not in ("scalars", "query") or len(ends) > 1 or (ends and ends[0] not in _ONE | _MANY):
            raise NotCertain(
                "rows come as tuples, or by a call that is not known here", "ask for scalars, or rewrite it by hand"
            )
        if ends == ["count"] and name == "query" and not read.columns:
            return replace(read, end="count")
        if len(read.columns) > 1 or (read.columns and name == "query") or ends == ["count"]:
            raise NotCertain("rows come as tuples", "ask for scalars, or rewrite it by hand")
        return replace(read, end=ends[0] if ends else "", or_raise=or_raise)

    def _update(
        self, begun: AskedQuestion, chain: list[tuple[str, ast.Call]], rest: list[tuple[str, ast.Call]]
    ) -> AskedQuestion:
        if rest:
            raise NotCertain("what the statement answers is used", "ask for the row first")
        changes: list[AskedChange] = []
        others = []
        for name, call in chain:
            if name == "values":
                if not all(word.arg for word in call.keywords):
                    raise NotCertain("which columns change is known at run time only", _BY_HAND)
                changes += [self._change(str(word.arg), word.value, begun.entity) for word in call.keywords]
                changes += [pair for each in call.args for pair in self._pairs(each, begun.entity)]
            elif name == "execution_options":
                if any(word.arg != "synchronize_session" for word in call.keywords):
                    raise NotCertain("its execution options are not known here", _BY_HAND)
            elif name == "returning":
                raise NotCertain("what the statement answers is used", "ask for the row first")
            else:
                others.append((name, call))
        return replace(self._refined(begun, others), changes=tuple(changes))

    def _change(self, name: str, value: ast.expr, entity: Entity) -> AskedChange:
        """A value; or `Trip.fare + x`, of the same column."""
        operator = ""
        match value:
            case ast.BinOp(left=left, op=ast.Add(), right=right) if self.attribute(left) == (entity, name):
                operator, value = ANY_SUM, right
        if self.mentions(value):
            raise NotCertain("Postgres computes a value", "read first, compute in Python, then change by the key")
        return AskedChange(name, value, operator)

    def _pairs(self, node: ast.expr, entity: Entity) -> Iterator[AskedChange]:
        if not isinstance(node, ast.Dict):
            raise NotCertain("which columns change is known at run time only", _BY_HAND)
        for key, value in zip(node.keys, node.values, strict=True):
            named = self.attribute(key) if key is not None else None
            if named is not None:
                yield self._change(named[1], value, entity)
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield self._change(key.value, value, entity)
            else:
                raise NotCertain("which columns change is known at run time only", _BY_HAND)

    def _refined(self, read: AskedQuestion, chain: list[tuple[str, ast.Call]]) -> AskedQuestion:
        """With conditions, order and limit."""
        for name, call in chain:
            if name in _WHERE:
                found = [condition for each in call.args for condition in self._conditions(each, read.entity)]
                if not all(word.arg for word in call.keywords):
                    raise NotCertain("its conditions are known at run time only", _BY_HAND)
                found += [AskedCondition(str(word.arg), "=", (word.value,)) for word in call.keywords]
                read = replace(read, conditions=(*read.conditions, *found))
            elif name == "order_by":
                read = replace(read, order=(*read.order, *(self._order(each, read.entity) for each in call.args)))
            elif name == "limit" and len(call.args) == 1:
                read = replace(read, limit=call.args[0])
            else:
                raise NotCertain(*OF_LINK.get(name, (f".{name}(…) is not known here", _BY_HAND)))
        for condition in read.conditions:
            if any(self.mentions(value) for value in condition.values):
                raise NotCertain(
                    f"{condition.attribute} is compared with what Postgres computes", "denormalise the field"
                )
        return read

    def _conditions(self, node: ast.expr, entity: Entity) -> Iterator[AskedCondition]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                operator = _OPERATORS[type(op)]
                column, other = self.attribute(left), right
                if column is None:
                    column, other, operator = self.attribute(right), left, _TURNED[operator]
                if column is None or column[0] != entity:
                    raise NotCertain("a condition is not about one of its columns", "denormalise the field")
                if isinstance(other, ast.Constant) and other.value is None:
                    raise NotCertain(
                        f"no index finds rows without {column[1]}", "put a value that says so, and index that"
                    )
                yield AskedCondition(column[1], operator, (other,))
            case ast.Call(func=ast.Attribute(attr="is_"), args=[ast.Constant(value=bool()) as value]) if (
                named := self._mine(node, entity)
            ):
                yield AskedCondition(named, "=", (value,), is_truth=True)
            case ast.Name() | ast.Attribute() if (column := self.attribute(node)) is not None and column[0] == entity:
                yield AskedCondition(column[1], "=", (ast.Constant(True),), is_truth=True)
            case ast.UnaryOp(op=ast.Invert(), operand=ast.Attribute() as inner) if (
                column := self.attribute(inner)
            ) is not None and column[0] == entity:
                yield AskedCondition(column[1], "=", (ast.Constant(False),), is_truth=True)
            case ast.Call(func=ast.Attribute(attr="in_"), args=[values]) if named := self._mine(node, entity):
                yield AskedCondition(named, "in", (values,))
            case ast.Call(func=ast.Attribute(attr="between"), args=[low, high]) if named := self._mine(node, entity):
                yield AskedCondition(named, "between", (low, high))
            case ast.Call(args=parts) if self._denoting.callee(node, self._scope) == "and_":
                for part in parts:
                    yield from self._conditions(part, entity)
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
                yield from self._conditions(left, entity)
                yield from self._conditions(right, entity)
            case _:
                raise NotCertain(
                    f"the condition {short(node)} is none that an index knows", "denormalise what it says as a field"
                )

    def _mine(self, node: ast.Call, entity: Entity) -> str | None:
        named = self.attribute(node.func.value) if isinstance(node.func, ast.Attribute) else None
        return named[1] if named is not None and named[0] == entity and not node.keywords else None

    def _order(self, node: ast.expr, entity: Entity) -> tuple[str, bool]:
        descends = False
        if isinstance(node, ast.Call) and last_name(node.func) in ("asc", "desc"):
            descends = last_name(node.func) == "desc"
            node = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else node
        named = self.attribute(node)
        if named is None or named[0] != entity:
            raise NotCertain(f"the order {short(node)} is none of its columns", "sort in Python")
        return named[1], descends
