"""`RowsOf`: which expressions are objects of models, or statements that bring some.

An object is followed through names, loops, results and annotations within the functions that see it; what is put into
an attribute or handed to another module's function is not. That a model was used at all is found without this.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Protocol

from tripstore.audit.meaning.bindings import Assigned, Bindings, bind_target, last_name
from tripstore.audit.meaning.heads import ACTIVE_RESULTS, ACTIVE_VERBS, EXECUTES, GETS, HOLDERS, RESULTS, STATEMENTS
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.meaning.values import AuditedFunction, Entity, ModelRows, Scope, Value
from tripstore.audit.names import words

#: What types are made of.
_TYPES = words("Annotated Optional Union list List Sequence Iterable Mapped QuerySet")

#: Calls that lead from one to the next are followed so far.
_CALLS_MAX = 5
#: Methods of SQLModel's classes that make an object: `Trip.model_validate(…)`.
_VALIDATES = words("model_validate from_orm parse_obj model_construct")

#: Methods of factory_boy's factories.
_PRODUCES = words("create build create_batch build_batch")


class Denotes(Protocol):
    """What expressions stand for: models and rows are found out together with it."""

    @property
    def is_settled(self) -> bool:
        """Whether no name is being looked up: what is found out half-way round a circle may be wrong."""
        ...

    def value(self, node: ast.expr, scope: Scope) -> Value | None: ...

    def callee(self, call: ast.Call, scope: Scope) -> str: ...


class Relations(Protocol):
    """Where the relationships of a model lead."""

    def relation(self, entity: Entity, attribute: str) -> Entity | None: ...

    def produced(self, entity: Entity) -> Entity | None:
        """The model whose objects a factory makes."""
        ...

    def is_queried(self, entity: Entity, attribute: str) -> bool:
        """Whether a relation is a manager, as Django has it, and no object or list."""
        ...


class RowsOf:
    """Says what rows an expression is; None if none, or if it cannot be told."""

    def __init__(self, denoting: Denotes, models: Relations) -> None:
        self._denoting = denoting
        self._models = models
        self._asked: set[ast.AST] = set()
        self._answers: dict[AuditedFunction, ModelRows | None] = {}

    def forget(self) -> None:
        self._answers.clear()

    def of(self, node: ast.expr, scope: Scope) -> ModelRows | None:
        match node:
            case ast.Call():
                return self._called(node, scope)
            case ast.Await(value=value) | ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self._rows(value, scope)
            case ast.IfExp(body=first, orelse=second):
                return _together([self._rows(first, scope), self._rows(second, scope)])
            case ast.BoolOp(values=values):
                return _together(self._rows(value, scope) for value in values)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return _together(self._rows(part, scope) for part in parts[:8])
            case ast.Subscript(value=value) if last_name(value) in _TYPES:
                return self.annotated(node, scope)  # CurrentTrip = Annotated[Trip, …]
            case ast.Subscript(value=value):
                return _brought(self._rows(value, scope))
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return _brought(self._rows(node.elt, comprehension_scope(node.generators, scope)))
            case _:
                return None

    def elements(self, node: ast.expr, scope: Scope) -> ModelRows | None:
        """What a loop over an expression brings."""
        return _brought(self._rows(node, scope))

    def annotated(self, annotation: ast.expr, scope: Scope) -> ModelRows | None:
        """The objects that an annotation speaks of, wherever in it: Optional[Trip], list["Trip"], Trip | None."""
        found: set[Entity] = set()
        for part in ast.walk(annotation):
            value: Value | None = None
            if isinstance(part, ast.Name | ast.Attribute):
                value = self._denoting.value(part, scope)
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                inner = parsed_annotation(part.value)
                rows = self.annotated(inner, scope) if inner is not None else None
                found |= rows.entities if rows is not None else set()
            if isinstance(value, Entity) and value.facts is not None:
                found.add(value)
            elif isinstance(value, ModelRows) and not value.is_statement:
                found |= value.entities  # a type that has a name
        return ModelRows(frozenset(found), is_statement=False) if found else None

    def related(self, rows: ModelRows, attribute: str) -> ModelRows | None:
        """The objects that a relationship of objects leads to."""
        targets = (self._models.relation(entity, attribute) for entity in rows.entities)
        found = frozenset(target for target in targets if target is not None)
        is_queried = any(self._models.is_queried(entity, attribute) for entity in rows.entities)
        return ModelRows(found, is_statement=is_queried) if found else None

    def _rows(self, node: ast.expr, scope: Scope) -> ModelRows | None:
        found = self._denoting.value(node, scope)
        return found if isinstance(found, ModelRows) else None

    def _called(self, node: ast.Call, scope: Scope) -> ModelRows | None:
        target = self._denoting.value(node.func, scope)
        if isinstance(target, Entity) and (made := self._models.produced(target)) is not None:
            return ModelRows(frozenset({made}), is_statement=False)
        if isinstance(target, Entity):
            return ModelRows(frozenset({target}), is_statement=False) if target.facts is not None else None
        if isinstance(target, AuditedFunction):
            return self._answered(target, node, scope)
        callee = self._denoting.callee(node, scope)
        if (callee in _VALIDATES or callee in _PRODUCES) and isinstance(node.func, ast.Attribute):
            model = self._denoting.value(node.func.value, scope)
            made = self._models.produced(model) if isinstance(model, Entity) and callee in _PRODUCES else None
            if isinstance(model, Entity) and model.tables and callee in _VALIDATES:
                made = model
            if made is not None:
                return ModelRows(frozenset({made}), is_statement=False)
        if (asked := self._asked_model(node, scope)) is not None:
            return asked
        if callee in STATEMENTS or callee in GETS:
            named = self._named(node.args, scope)
            if named:
                return ModelRows(named, is_statement=callee not in GETS)
        chained = self._chained(node, callee, scope)
        if chained is None and (callee in HOLDERS or callee in EXECUTES):
            return _brought(_together(self._rows(argument, scope) for argument in node.args))
        return chained

    def answer(self, function: AuditedFunction) -> ModelRows | None:
        """What a function returns: as its annotation says, else as its `return` does."""
        returns = function.returns
        return self.annotated(returns, function.scope) if returns is not None else self._followed(function)

    def _answered(self, function: AuditedFunction, call: ast.Call, scope: Scope) -> ModelRows | None:
        """One whose annotation is a type variable returns what it is given."""
        if isinstance(function.returns, ast.Name) and function.scope.bindings.is_type_variable(function.returns.id):
            return _together(self._rows(argument, scope) for argument in call.args)
        return self.answer(function)

    def _followed(self, function: AuditedFunction) -> ModelRows | None:
        """What the `return` of a function without annotation brings; one that calls itself brings nothing more."""
        if function.function in self._asked or len(self._asked) > _CALLS_MAX:
            return None
        if function not in self._answers:
            self._asked.add(function.function)
            try:
                answers = function.answers
                inner = function.inner() if answers else function.scope
                found = _together(self._rows(each, inner) for each in answers)
            finally:
                self._asked.discard(function.function)
            if self._asked or not self._denoting.is_settled:
                return found
            self._answers[function] = found
        return self._answers[function]

    def _named(self, arguments: Iterable[ast.expr], scope: Scope) -> frozenset[Entity]:
        found = (self._denoting.value(argument, scope) for argument in arguments)
        return frozenset(value for value in found if isinstance(value, Entity) and value.facts is not None)

    def _asked_model(self, node: ast.Call, scope: Scope) -> ModelRows | None:
        """`Trip.select()`, `Trip.get(…)` of Peewee."""
        if not (isinstance(node.func, ast.Attribute) and node.func.attr in ACTIVE_VERBS):
            return None
        model = self._denoting.value(node.func.value, scope)
        if not (isinstance(model, Entity) and model.orm is Orm.PEEWEE):
            return None
        return ModelRows(frozenset({model}), is_statement=node.func.attr not in ACTIVE_RESULTS)

    def _chained(self, node: ast.Call, callee: str, scope: Scope) -> ModelRows | None:
        """A method of a statement is a statement or what it brings; one of objects brings objects or nothing."""
        if not isinstance(node.func, ast.Attribute):
            return None
        base = self._rows(node.func.value, scope) or self._flask_query(node.func.value, scope)
        if base is None or not (base.is_statement or callee in RESULTS):
            return None
        if any(entity.orm is not None and entity.orm.is_active for entity in base.entities):
            return ModelRows(base.entities, callee not in ACTIVE_RESULTS) if base.is_statement else None
        return ModelRows(base.entities, base.is_statement and callee not in RESULTS)

    def _flask_query(self, node: ast.expr, scope: Scope) -> ModelRows | None:
        """`Trip.query`, as Flask-SQLAlchemy has it."""
        if not (isinstance(node, ast.Attribute) and node.attr == "query"):
            return None
        model = self._denoting.value(node.value, scope)
        return ModelRows(frozenset({model}), is_statement=True) if isinstance(model, Entity) else None


def comprehension_scope(generators: list[ast.comprehension], scope: Scope) -> Scope:
    """The scope of a comprehension; its first source is really seen from outside, which makes no difference here."""
    bound = Bindings()
    inner = Scope(scope.file, bound, scope)
    for generator in generators:
        bind_target(generator.target, Assigned(generator.iter, is_element=True), bound)
    return inner


def parsed_annotation(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _brought(rows: ModelRows | None) -> ModelRows | None:
    return None if rows is None else ModelRows(rows.entities, is_statement=False)


def _together(found: Iterable[ModelRows | None]) -> ModelRows | None:
    known = [rows for rows in found if rows is not None]
    if not known:
        return None
    return ModelRows(frozenset().union(*(rows.entities for rows in known)), any(rows.is_statement for rows in known))
