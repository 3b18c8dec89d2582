"""`Models`: finds what stands for a legacy table: mapped classes, table objects, and classes that lead to them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from tripstore.audit.bindings import ClassFacts, Imported, Relation, keyword
from tripstore.audit.denoting import Denoting
from tripstore.audit.findings import Definition, Remark
from tripstore.audit.modules import Modules
from tripstore.audit.names import LegacyTable, LegacyTables
from tripstore.audit.values import Entity, Function, Rows, Scope, Text, Value


class Models:
    """Everything in a code base that stands for a legacy table; classes are read, never imported."""

    def __init__(self, modules: Modules, tables: LegacyTables) -> None:
        self.modules = modules
        self.tables = tables
        self.denoting = Denoting(self)
        self._scopes: dict[str, Scope] = {}
        self._entities: dict[ClassFacts, Entity] = {}
        self._mapped: dict[ClassFacts, tuple[LegacyTable, ...]] = {}

    def scope(self, file: str) -> Scope:
        if file not in self._scopes:
            self._scopes[file] = Scope(file, self.modules.bindings(file))
        return self._scopes[file]

    def entity(self, facts: ClassFacts, scope: Scope) -> Entity:
        """The class with the tables that its objects are kept in, those of its bases included."""
        if facts not in self._entities:
            # Bases that lead back to the class itself end here.
            self._entities[facts] = Entity(scope.file, facts.line, facts.name, (), facts)
            found = (*self._own(facts, scope), *self._mapped.get(facts, ()), *self._inherited(facts, scope))
            self._entities[facts] = replace(self._entities[facts], tables=tuple(dict.fromkeys(found)))
        return self._entities[facts]

    def map_imperatively(self, call: ast.Call, scope: Scope) -> None:
        """Note `registry.map_imperatively(Trip, trips)`. To be done before classes are asked for."""
        if len(call.args) < 2:
            return
        target, table = (self.denoting.value(argument, scope) for argument in call.args[:2])
        if isinstance(target, Entity) and target.facts is not None and isinstance(table, Entity):
            self._mapped[target.facts] = self._mapped.get(target.facts, ()) + table.tables
            self._entities.clear()
            self.denoting.forget()

    def table_object(self, call: ast.Call, scope: Scope) -> Entity | None:
        """What `Table("trips", metadata, …)` makes."""
        name = self._text(call.args[0], scope) if call.args else None
        schema = self._text(keyword(call, "schema"), scope)
        table = self.tables.find(schema, name) if name is not None else None
        return None if table is None else Entity(scope.file, call.lineno, str(table), (table,))

    def named(self, name: str) -> Entity | None:
        """The class that `relationship("Trip")` means: models are known by their names everywhere."""
        last = name.strip().rpartition(".")[2]
        found = [self.entity(facts, self.scope(file)) for file, facts in self._classes.get(last, ())]
        return next((entity for entity in found if entity.tables), found[0] if found else None)

    def relation(self, entity: Entity, attribute: str) -> Entity | None:
        """The class that an attribute of a class leads to, if it is a relationship."""
        facts = entity.facts
        if facts is None:
            return None
        if attribute in facts.relations:
            return self.target(facts.relations[attribute], self.scope(entity.file))
        if (facts, attribute) in self._backrefs:
            return self._backrefs[facts, attribute]
        bases = (self.denoting.value(base, self.scope(entity.file)) for base in facts.bases)
        parents = (base for base in bases if isinstance(base, Entity) and base.facts is not facts)
        return next(filter(None, (self.relation(parent, attribute) for parent in parents)), None)

    def target(self, relation: Relation, scope: Scope) -> Entity | None:
        """The class that a relationship names, itself, by a text, by a lambda or by `Mapped[…]`."""
        target = relation.target.body if isinstance(relation.target, ast.Lambda) else relation.target
        found = self.denoting.value(target, scope) if target is not None else None
        if isinstance(found, Text):
            return self.named(found.text)
        if isinstance(found, Entity):
            return found
        rows = self.denoting.annotated(relation.annotation, scope) if relation.annotation is not None else None
        return None if rows is None else min(rows.entities, key=lambda entity: (entity.file, entity.line))

    @cached_property
    def relation_names(self) -> frozenset[str]:
        """The attributes, of any class, that lead to a legacy table."""
        return frozenset(name for name, _source, target in self._relations if target.tables) | frozenset(
            attribute for (_facts, attribute), target in self._backrefs.items() if target.tables
        )

    @cached_property
    def words(self) -> frozenset[str]:
        """All names under which modules know something that leads to a legacy table."""
        leading = {source for _name, source, target in self._relations if target.tables}
        leading |= {facts for (facts, _attribute), target in self._backrefs.items() if target.tables}
        found = set(self.tables.names)
        for file, bound in self.modules.loaded():
            for name in bound.names:
                if self._leads(self.denoting.named(name, self.scope(file)), leading):
                    found.add(name)
        return frozenset(found)

    def definitions(self) -> Iterator[Definition]:
        """Where models and table objects are defined."""
        for file, bound in self.modules.loaded():
            for name, every in bound.names.items():
                for binding in every:
                    if isinstance(binding, ClassFacts):
                        entity = self.entity(binding, self.scope(file))
                        yield from (Definition(file, binding.line, name, table) for table in entity.tables)
                    elif not isinstance(binding, Imported):
                        found = self.denoting.named(name, self.scope(file))
                        if isinstance(found, Entity) and found.facts is None and found.file == file:
                            yield from (Definition(file, found.line, name, table) for table in found.tables)

    def computed(self) -> Iterator[Remark]:
        """Classes whose table is known at run time only."""
        for name, every in self._classes.items():
            for file, facts in every:
                if facts.is_computed or (facts.table_name is not None and not self._is_known(facts, file)):
                    yield Remark(file, facts.line, f"the table of class {name} is known at run time only")

    def _is_known(self, facts: ClassFacts, file: str) -> bool:
        return self._text(facts.table_name, self.scope(file)) is not None

    def _own(self, facts: ClassFacts, scope: Scope) -> tuple[LegacyTable, ...]:
        name = self._text(facts.table_name, scope)
        if name is None and facts.is_sqlmodel:
            name = facts.name.lower()
        if name is not None:
            table = self.tables.find(self._text(facts.schema, scope), name)
            return () if table is None else (table,)
        mapped = self.denoting.value(facts.table, scope) if facts.table is not None else None
        return mapped.tables if isinstance(mapped, Entity) else ()

    def _inherited(self, facts: ClassFacts, scope: Scope) -> Iterator[LegacyTable]:
        for base in facts.bases:
            found = self.denoting.value(base, scope)
            if isinstance(found, Entity):
                yield from found.tables

    def _text(self, node: ast.expr | None, scope: Scope) -> str | None:
        found = self.denoting.value(node, scope) if node is not None else None
        return found.text if isinstance(found, Text) else None

    def _leads(self, found: Value | None, leading: set[ClassFacts]) -> bool:
        if isinstance(found, Entity):
            return bool(found.tables) or found.facts in leading
        if isinstance(found, Text):
            return found.text.rpartition(".")[2].strip('"') in self.tables.names
        if isinstance(found, Function):
            rows = self.denoting.annotated(found.returns, found.scope) if found.returns is not None else None
            return rows is not None and any(self._leads(entity, leading) for entity in rows.entities)
        return isinstance(found, Rows) and any(self._leads(entity, leading) for entity in found.entities)

    @cached_property
    def _classes(self) -> dict[str, list[tuple[str, ClassFacts]]]:
        found: dict[str, list[tuple[str, ClassFacts]]] = {}
        for file, bound in self.modules.loaded():
            for name, every in bound.names.items():
                for binding in every:
                    if isinstance(binding, ClassFacts):
                        found.setdefault(name, []).append((file, binding))
        return found

    @cached_property
    def _relations(self) -> list[tuple[str, ClassFacts, Entity]]:
        """Every relationship: the name of the attribute, its class, and the class that it leads to."""
        return [
            (attribute, facts, target)
            for every in self._classes.values()
            for file, facts in every
            for attribute, relation in facts.relations.items()
            if (target := self.target(relation, self.scope(file))) is not None
        ]

    @cached_property
    def _backrefs(self) -> dict[tuple[ClassFacts, str], Entity]:
        """Attributes that a relationship gives to the class it leads to."""
        found: dict[tuple[ClassFacts, str], Entity] = {}
        for every in self._classes.values():
            for file, facts in every:
                for relation in facts.relations.values():
                    target = self.target(relation, self.scope(file)) if relation.backref is not None else None
                    if target is not None and target.facts is not None and relation.backref is not None:
                        found[target.facts, relation.backref] = self.entity(facts, self.scope(file))
        return found
