"""`Attributes`: what methods of a class put into its objects, `self.trip = Trip(…)`, and what annotations say there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Protocol

from tripstore.audit.meaning.bindings import Bindings, ClassFacts, Method, bindings, last_name, parameters
from tripstore.audit.meaning.values import AuditedFunction, Entity, ModelRows, Scope, Value


class DenotesRows(Protocol):
    """What expressions stand for."""

    @property
    def is_settled(self) -> bool:
        """Whether no name is being looked up: what is found out half-way round a circle may be wrong."""
        ...

    def value(self, node: ast.expr, scope: Scope) -> Value | None: ...

    def annotated(self, annotation: ast.expr, scope: Scope) -> ModelRows | None: ...

    def answered(self, function: AuditedFunction) -> ModelRows | None: ...


class Owners(Protocol):
    """Classes, their files and their bases."""

    def scope(self, file: str) -> Scope: ...

    def parents(self, entity: Entity) -> list[Entity]: ...


class Attributes:
    """Found when one is asked for. Whether a method ran before is not known: it is believed."""

    def __init__(self, denoting: DenotesRows, owners: Owners) -> None:
        self._denoting = denoting
        self._owners = owners
        self._assigned: dict[ClassFacts, dict[str, list[tuple[ast.expr, Scope]]]] = {}
        self._asked: set[tuple[ClassFacts, str]] = set()
        self._lineages: dict[ClassFacts, list[Entity]] = {}

    def forget(self) -> None:
        self._lineages.clear()

    def of(self, rows: ModelRows, attribute: str) -> Value | None:
        """What the attribute of any of these objects holds, or the method that it is."""
        found = [self._held(entity, attribute) or self.method(entity, attribute, rows) for entity in rows.entities]
        return next((value for value in found if value is not None), None)

    def every(self, entity: Entity) -> Iterator[ModelRows]:
        """Whatever its objects hold, in attributes of its own or of its bases."""
        for owner in self._lineage(entity):
            if owner.facts is not None:
                if owner.facts not in self._assigned:
                    self._assigned[owner.facts] = self._assignments(owner, owner.facts)
                for attribute in (*self._assigned[owner.facts], *owner.facts.annotations):
                    held = self._held(owner, attribute)
                    if held is not None:
                        yield held

    def method(self, entity: Entity, name: str, first: Value) -> Value | None:
        """A method of a class or of the nearest of its bases; of a property, what it answers."""
        for owner in self._lineage(entity):
            facts = owner.facts
            method = next((each for each in facts.methods if each.name == name), None) if facts is not None else None
            if facts is not None and method is not None:
                arguments = [*method.args.posonlyargs, *method.args.args]
                is_static = any(last_name(part) == "staticmethod" for part in method.decorator_list)
                bound = (arguments[0].arg, first) if arguments and not is_static else None
                scope = Scope(owner.file, Bindings(), self._owners.scope(owner.file), is_class=True)
                function = AuditedFunction(method, scope, bound)
                return self._denoting.answered(function) if facts.is_read(name) else function
        return None

    def _lineage(self, entity: Entity) -> list[Entity]:
        """A class and all of its bases that the code base defines, the nearest first."""
        if entity.facts is not None and entity.facts in self._lineages:
            return self._lineages[entity.facts]
        found, waiting = list[Entity](), [entity]
        while waiting:
            each = waiting.pop(0)
            if each.facts not in [known.facts for known in found]:
                found.append(each)
                waiting += self._owners.parents(each)
        if entity.facts is not None and self._denoting.is_settled:
            self._lineages[entity.facts] = found
        return found

    def _held(self, entity: Entity, attribute: str) -> ModelRows | None:
        facts = entity.facts
        if facts is None or (facts, attribute) in self._asked:
            return None  # self.trip = self.trip or …: another method says it
        self._asked.add((facts, attribute))
        try:
            known = [value for value in self._values(entity, facts, attribute) if isinstance(value, ModelRows)]
            if known:
                every = frozenset().union(*(value.entities for value in known))
                return ModelRows(every, any(value.is_statement for value in known))
            above = (self._held(each, attribute) for each in self._lineage(entity)[1:])
            return next((value for value in above if value is not None), None)
        finally:
            self._asked.discard((facts, attribute))

    def _values(self, entity: Entity, facts: ClassFacts, attribute: str) -> Iterator[Value | None]:
        if facts not in self._assigned:
            self._assigned[facts] = self._assignments(entity, facts)
        for value, scope in self._assigned[facts].get(attribute, ()):
            yield self._denoting.value(value, scope)
        annotation = facts.annotations.get(attribute)
        if annotation is not None:
            yield self._denoting.annotated(annotation, self._owners.scope(entity.file))

    def _assignments(self, entity: Entity, facts: ClassFacts) -> dict[str, list[tuple[ast.expr, Scope]]]:
        found: dict[str, list[tuple[ast.expr, Scope]]] = {}
        for method in facts.methods:
            first = _first(method)
            every = list(_put(method, first)) if first is not None else []
            scope = self._scope(entity, method, first) if every and first is not None else None
            for attribute, value in every:
                if scope is not None:
                    found.setdefault(attribute, []).append((value, scope))
        return found

    def _scope(self, entity: Entity, method: Method, first: str) -> Scope:
        bound = bindings(method.body)
        parameters(method.args, bound)
        owner = Scope(entity.file, Bindings(), self._owners.scope(entity.file), is_class=True)
        return Scope(entity.file, bound, owner, first=(first, ModelRows(frozenset({entity}), is_statement=False)))


def _first(method: Method) -> str | None:
    arguments = [*method.args.posonlyargs, *method.args.args]
    return arguments[0].arg if arguments and not method.decorator_list else None


def _put(method: Method, first: str) -> Iterator[tuple[str, ast.expr]]:
    """`self.trip = …`, wherever in a method."""
    for node in ast.walk(method):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == first
                ):
                    yield target.attr, node.value
