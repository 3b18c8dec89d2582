"""`Models`: finds what stands for a legacy table: mapped classes, table objects, and classes that lead to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from tripstore.audit.findings import Definition, Remark
from tripstore.audit.meaning.bindings import ClassFacts, Imported, Relationship, Returning, keyword, last_name
from tripstore.audit.meaning.denoting import Denoting
from tripstore.audit.meaning.heads import MANAGERS
from tripstore.audit.meaning.modules import Modules
from tripstore.audit.meaning.orm import Orm, is_manager
from tripstore.audit.meaning.values import AuditedFunction, Entity, ModelRows, OrmRoot, Scope, Text, Value
from tripstore.audit.names import LegacyTable, LegacyTables
from tripstore.audit.orms.derived import Derived, DerivedTables
from tripstore.audit.orms.django import DjangoApps
from tripstore.audit.orms.foreign import ForeignFields, ForeignReader
from tripstore.audit.orms.lineage import Lineages

_MANAGER = re.compile(r"Manager\b|QuerySet\b|as_manager$|from_queryset")


class Models:
    """Everything in a code base that stands for a legacy table; classes are read, never imported."""

    def __init__(self, modules: Modules, tables: LegacyTables) -> None:
        self.modules = modules
        self.tables = tables
        self.denoting = Denoting(self)
        self.lineages = Lineages(self)
        self.apps = DjangoApps(self)
        self._derived = DerivedTables(self, self.lineages, self.apps)
        self._unclear: dict[ClassFacts, Remark] = {}
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
            orm = self.lineages.of(facts, scope).orm
            self._entities[facts] = replace(self._entities[facts], orm=orm)
            inherited = () if orm is Orm.PEEWEE else self._inherited(facts, scope)
            found = (*self._own(facts, scope), *self._mapped.get(facts, ()), *inherited)
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
            self.lineages.forget()
            self.apps.forget()

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
        found = self.foreign.forward.get((facts, attribute)) or self.foreign.reverse.get((facts, attribute))
        if found is not None:
            return found
        return next(filter(None, (self.relation(parent, attribute) for parent in self.parents(entity))), None)

    def parents(self, entity: Entity) -> list[Entity]:
        """The bases of a class that the code base defines; none that lead back to it."""
        if entity.facts is None or not entity.line:
            return []
        found = self.lineages.parents(entity.facts, self.scope(entity.file))
        return [parent for parent in found if not self.lineages.is_below(parent, entity.facts)]

    def made(self, call: ast.Call, callee: str, scope: Scope) -> Entity | OrmRoot | None:
        """What a call of an ORM makes or finds: what models derive from, or a model by its name."""
        match callee:
            case "get_user_model":
                return self.apps.user_model
            case "get_model" | "get_registered_model":
                return self._model_by_name(call, scope)
            case "declarative_base" | "generate_base" | "automap_base":
                return OrmRoot(Orm.SQLALCHEMY, self._given(call, scope, "cls", "declarative_base"))
            case "SQLAlchemy" | "SQLA":
                return OrmRoot(Orm.FLASK, self._given(call, scope, "model_class"))
        target = self.denoting.value(call.func, scope)
        if isinstance(target, Entity) and target.facts is not None:
            above = self.lineages.of(target.facts, self.scope(target.file))
            if any(dotted.endswith(".SQLAlchemy") for dotted in above.outside):
                return OrmRoot(Orm.FLASK, self._given(call, scope, "model_class"))
        return None

    def _given(self, call: ast.Call, scope: Scope, *names: str) -> Entity | None:
        nodes = [node for name in names if (node := keyword(call, name)) is not None]
        found = self.denoting.value(nodes[0], scope) if nodes else None
        return found if isinstance(found, Entity) else None

    def _model_by_name(self, call: ast.Call, scope: Scope) -> Entity | None:
        """`apps.get_model("trips", "Trip")`, `get_model("trips.Trip")`"""
        named = [*call.args, *filter(None, (keyword(call, "app_label"), keyword(call, "model_name")))]
        texts = [self._text(each, scope) for each in named[:2]]
        if not texts or texts[0] is None:
            return None
        if len(texts) == 1:
            label, _, name = texts[0].rpartition(".")
        else:
            label, name = texts[0], texts[1] or ""
        return self.apps.model(label, name) if label and name else None

    def imported(self, dotted: str) -> Entity | ModelRows | None:
        """A model of a library whose table is looked for; `current_user` of Flask-Login, an object of ours."""
        if dotted == "flask_login.current_user":
            found = (self.denoting.answered(loader) for loader in self._user_loaders)
            return next((rows for rows in found if rows is not None), None)
        return self.apps.imported(dotted)

    @cached_property
    def _user_loaders(self) -> list[AuditedFunction]:
        """The functions that Flask-Login asks for the user: `@login.user_loader`."""
        return [
            AuditedFunction(binding.function, self.scope(file))
            for file, bound in self.modules.loaded()
            for every in bound.names.values()
            for binding in every
            if isinstance(binding, Returning) and "user_loader" in map(last_name, binding.function.decorator_list)
        ]

    def is_manager(self, entity: Entity, attribute: str) -> bool:
        """Whether an attribute of a model, or of a base of it, is a manager."""
        if attribute in MANAGERS:
            return True
        if entity.facts is None:
            return False
        call = entity.facts.calls.get(attribute)
        if call is not None:
            return _MANAGER.search(ast.unparse(call.func)) is not None or self._makes_manager(call, entity)
        return any(self.is_manager(parent, attribute) for parent in self.parents(entity))

    def _makes_manager(self, call: ast.Call, entity: Entity) -> bool:
        """Whether a class of whatever name, which is called in a model, derives from a manager."""
        made = self.denoting.value(call.func, self.scope(entity.file)) if entity.line else None
        if not isinstance(made, Entity) or made.facts is None:
            return False
        return any(map(is_manager, self.lineages.of(made.facts, self.scope(made.file)).outside))

    def produced(self, entity: Entity) -> Entity | None:
        """The model of `class Meta: model = Trip` in a factory of factory_boy, or in a base of it."""
        facts = entity.facts
        if facts is None or not entity.line or not self._is_factory(entity, facts):
            return None
        said = facts.meta.options.get("model") if facts.meta is not None else None
        found = self.denoting.value(said, self.scope(entity.file)) if said is not None else None
        if isinstance(found, Entity):
            return found
        return next(filter(None, map(self.produced, self.parents(entity))), None)

    def _is_factory(self, entity: Entity, facts: ClassFacts) -> bool:
        outside = self.lineages.of(facts, self.scope(entity.file)).outside
        return any(dotted.partition(".")[0] == "factory" for dotted in outside)

    def is_queried(self, entity: Entity, attribute: str) -> bool:
        """Whether a relation of Django's leads to many, by a manager."""
        return entity.orm is Orm.DJANGO and (entity.facts, attribute) in self.foreign.many

    def classes(self, name: str) -> list[tuple[str, ClassFacts]]:
        """The classes of a name, whatever its case."""
        return self._by_lower_name.get(name.lower(), [])

    @cached_property
    def _by_lower_name(self) -> dict[str, list[tuple[str, ClassFacts]]]:
        found: dict[str, list[tuple[str, ClassFacts]]] = {}
        for name, every in self._classes.items():
            found.setdefault(name.lower(), []).extend(every)
        return found

    @cached_property
    def foreign(self) -> ForeignFields:
        """Where the fields of Django's and Peewee's models lead."""
        every = [each for found in self._classes.values() for each in found]
        return ForeignReader(self, self.lineages, self.apps).read(every)

    @cached_property
    def joined_names(self) -> frozenset[str]:
        """The names in lookups of Django that lead to a legacy table."""
        found = {name for (_facts, name), target in self.foreign.joined.items() if target.tables}
        return frozenset(found | {name for (_facts, name), target in self.foreign.forward.items() if target.tables})

    def foreign_target(self, call: ast.Call, scope: Scope) -> Entity | None:
        """The model that Django's `ForeignKey("trips.Trip")` names; SQLAlchemy's names a column."""
        return ForeignReader(self, self.lineages, self.apps).target(call, scope, None)

    def reverse_tables(self, name: str) -> list[LegacyTable]:
        """All legacy tables that an attribute of this name leads back to."""
        relations = self.foreign.reverse.items()
        found = {table for (_facts, each), target in relations if each == name for table in target.tables}
        return sorted(found, key=str)

    def joined_tables(self, name: str) -> list[LegacyTable]:
        """All legacy tables that a name in a lookup leads to, from whichever model."""
        relations = (*self.foreign.joined.items(), *self.foreign.forward.items())
        found = {table for (_facts, each), target in relations if each == name for table in target.tables}
        return sorted(found, key=str)

    def joined_from(self, name: str) -> list[Entity]:
        """All models that have a relation of this name, or are reached back by it."""
        return self._joined_from.get(name, [])

    @cached_property
    def _joined_from(self) -> dict[str, list[Entity]]:
        of = {facts: self.entity(facts, self.scope(file)) for every in self._classes.values() for file, facts in every}
        found: dict[str, dict[ClassFacts, Entity]] = {}
        for facts, name in (*self.foreign.forward, *self.foreign.joined):
            if facts in of:
                found.setdefault(name, {})[facts] = of[facts]
        return {name: list(every.values()) for name, every in found.items()}

    def joined(self, entity: Entity, name: str) -> Entity | None:
        """Where a part of a lookup leads, from a class or one of its bases."""
        facts = entity.facts
        if facts is None:
            return None
        found = self.foreign.forward.get((facts, name)) or self.foreign.joined.get((facts, name))
        if found is not None:
            return found
        return next(filter(None, (self.joined(parent, name) for parent in self.parents(entity))), None)

    def target(self, relation: Relationship, scope: Scope) -> Entity | None:
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
            attribute
            for (_facts, attribute), target in (*self._backrefs.items(), *self.foreign.names())
            if target.tables
        )

    @cached_property
    def words(self) -> frozenset[str]:
        """All names under which modules know something that leads to a legacy table."""
        leading = {source for _name, source, target in self._relations if target.tables}
        leading |= {facts for (facts, _attribute), target in self._backrefs.items() if target.tables}
        leading |= {facts for (facts, _attribute), target in self.foreign.names() if target.tables}
        leading |= {facts for every in self._classes.values() for file, facts in every if self._keeps(facts, file)}
        found = set(self.tables.names) | {name for name in self.relation_names if name.endswith("_set")}
        found |= self.joined_names
        if self.apps.user_model is not None and self.apps.user_model.tables:
            found |= {"get_user_model", "AUTH_USER_MODEL"}
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

    def mapped(self) -> list[Entity]:
        """All classes whose objects are rows of legacy tables."""
        every = [self.entity(facts, self.scope(file)) for found in self._classes.values() for file, facts in found]
        return [entity for entity in every if entity.tables]

    def unclear(self) -> Iterator[Remark]:
        """Classes of an ORM whose tables cannot be told, or are told by a guess."""
        for every in self._classes.values():
            for file, facts in every:
                self.entity(facts, self.scope(file))
        yield from self._unclear.values()

    def _own(self, facts: ClassFacts, scope: Scope) -> tuple[LegacyTable, ...]:
        name = self._text(facts.table_name, scope)
        if name is not None:
            table = self.tables.find(self._text(facts.schema, scope), name)
            return () if table is None else (table,)
        if facts.table is not None:
            mapped = self.denoting.value(facts.table, scope)
            return mapped.tables if isinstance(mapped, Entity) else ()
        derived = self._derived.of(facts, scope)
        if derived.unclear is not None:
            self._unclear[facts] = _unclear(facts, scope.file, derived)
        return derived.tables

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
        if isinstance(found, AuditedFunction):
            rows = self.denoting.answered(found)
            return rows is not None and any(self._leads(entity, leading) for entity in rows.entities)
        return isinstance(found, ModelRows) and any(self._leads(entity, leading) for entity in found.entities)

    def _keeps(self, facts: ClassFacts, file: str) -> bool:
        """Whether objects of a class, or of a base of it, keep rows of a legacy table: `self.trip = Trip()`."""
        kept = self.denoting.kept(self.entity(facts, self.scope(file)))
        return any(entity.tables for rows in kept for entity in rows.entities)

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


def _unclear(facts: ClassFacts, file: str, derived: Derived) -> Remark:
    named = " and ".join(map(str, derived.tables))
    said = f"it is taken for {named}, which resembles its name" if named else "give it a table name that can be read"
    return Remark(file, facts.line, f"the table of class {facts.name} cannot be told: {derived.unclear}; {said}", True)
