"""`ForeignFields`: where fields of Django's and Peewee's models lead, there and back, and how lookups name them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tripstore.audit.meaning.bindings import ClassFacts, keyword, last_name
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.meaning.values import Entity, OrmRoot, Scope, Text
from tripstore.audit.names import LegacyTable
from tripstore.audit.orms.django import DjangoApps
from tripstore.audit.orms.known import KnownModels
from tripstore.audit.orms.lineage import Lineages
from tripstore.audit.orms.naming import django_name, django_through_name

_FOREIGN = re.compile(r"(?:ForeignKey|ForeignKeyField|OneToOneField|ManyToManyField|ParentalKey|GenericRelation)$")

Attribute = tuple[ClassFacts, str]


@dataclass
class ForeignFields:
    """Relations by class and attribute. `joined` are names in lookups: `filter(trip__city=…)`."""

    forward: dict[Attribute, Entity] = field(default_factory=dict)
    reverse: dict[Attribute, Entity] = field(default_factory=dict)
    joined: dict[Attribute, Entity] = field(default_factory=dict)
    many: set[Attribute] = field(default_factory=set)

    def names(self) -> Iterator[tuple[Attribute, Entity]]:
        yield from self.forward.items()
        yield from self.reverse.items()


def is_foreign(call: ast.Call) -> bool:
    return _FOREIGN.search(last_name(call.func)) is not None


class ForeignReader:
    """Reads the fields of all classes."""

    def __init__(self, models: KnownModels, lineages: Lineages, apps: DjangoApps) -> None:
        self._models = models
        self._lineages = lineages
        self._apps = apps
        self._found = ForeignFields()

    def read(self, classes: list[tuple[str, ClassFacts]]) -> ForeignFields:
        for file, facts in classes:
            scope = self._models.scope(file)
            orm = self._lineages.of(facts, scope).orm
            if orm in (Orm.DJANGO, Orm.PEEWEE):
                for name, call, owner in self._fields(facts, scope):
                    self._field(facts, scope, name, call, owner)
        return self._found

    def _fields(
        self, facts: ClassFacts, scope: Scope, seen: frozenset[ClassFacts] = frozenset()
    ) -> Iterator[tuple[str, ast.Call, Scope]]:
        """Its own, and those of bases that have no table of their own."""
        yield from ((name, call, scope) for name, call in facts.calls.items() if is_foreign(call))
        for parent in self._lineages.parents(facts, scope):
            above = parent.facts
            if above is not None and above not in seen and (not parent.tables or parent.orm is Orm.PEEWEE):
                yield from self._fields(above, self._models.scope(parent.file), seen | {facts})

    def _field(self, facts: ClassFacts, scope: Scope, name: str, call: ast.Call, owner: Scope) -> None:
        me = self._models.entity(facts, scope)
        target = self.target(call, owner, me)
        if target is None:
            return
        kind = last_name(call.func)
        between = self._between(call, owner, me, name) if kind.endswith("ManyToManyField") else ()
        self._found.forward.setdefault((facts, name), _beside(target, between))
        if "Many" in kind or kind == "GenericRelation":
            self._found.many.add((facts, name))
        if target.facts is None or kind == "GenericRelation":
            return
        accessor, joined = self._back(facts, scope, call, owner)
        if accessor is not None:
            self._found.reverse.setdefault((target.facts, accessor), _beside(me, between))
            if not kind.endswith("OneToOneField"):
                self._found.many.add((target.facts, accessor))
        if joined is not None:
            self._found.joined.setdefault((target.facts, joined), _beside(me, between))

    def target(self, call: ast.Call, scope: Scope, me: Entity | None) -> Entity | None:
        """The model that a field leads to: itself, by its name, by app and name, or as the settings say."""
        node = call.args[0] if call.args else keyword(call, "to") or keyword(call, "model")
        if node is None:
            return None
        if last_name(node) == "AUTH_USER_MODEL":
            return self._apps.user_model
        found = self._models.denoting.value(node, scope)
        if isinstance(found, Text):
            return self._by_text(found.text, scope, me)
        return found if isinstance(found, Entity) and not isinstance(found, OrmRoot) else None

    def _by_text(self, text: str, scope: Scope, me: Entity | None) -> Entity | None:
        if text in ("self", "this"):
            return me
        label, _, name = text.rpartition(".")
        return self._apps.model(label or None, name, scope.file)

    def _between(self, call: ast.Call, owner: Scope, me: Entity, name: str) -> tuple[LegacyTable, ...]:
        """The table that holds the pairs, if it is looked for."""
        through = keyword(call, "through")
        if through is not None:
            found = self._models.denoting.value(through, owner)
            entity = self._by_text(found.text, owner, me) if isinstance(found, Text) else found
            return entity.tables if isinstance(entity, Entity) else ()
        said = keyword(call, "db_table")
        text = self._models.denoting.value(said, owner) if said is not None else None
        own = [table.name for table in me.tables] or [django_name(each, me.name) for each in self._apps.labels(me.file)]
        names = [text.text] if isinstance(text, Text) else [django_through_name(table, name) for table in own]
        tables = (self._models.tables.find(None, each) for each in names)
        return tuple(table for table in tables if table is not None)

    def _back(self, facts: ClassFacts, scope: Scope, call: ast.Call, owner: Scope) -> tuple[str | None, str | None]:
        """The attribute that a field gives to the model it leads to, and the name of that in lookups."""
        lower = facts.name.lower()
        said = self._said(call, owner, facts, scope, "related_name", "backref")
        if said is not None and said.endswith("+"):
            return None, None
        is_one = last_name(call.func).endswith("OneToOneField")
        joined = self._said(call, owner, facts, scope, "related_query_name") or said or lower
        return said or (lower if is_one else f"{lower}_set"), joined

    def _said(self, call: ast.Call, owner: Scope, facts: ClassFacts, scope: Scope, *keywords: str) -> str | None:
        for name in keywords:
            node = keyword(call, name)
            found = self._models.denoting.value(node, owner) if node is not None else None
            if isinstance(found, Text):
                lower = facts.name.lower()
                text = found.text.replace("%(class)s", lower).replace("%(model_name)s", lower)
                return text.replace("%(app_label)s", self._apps.labels(scope.file)[0])
        return None


def _beside(entity: Entity, tables: tuple[LegacyTable, ...]) -> Entity:
    return replace(entity, tables=tuple(dict.fromkeys((*entity.tables, *tables)))) if tables else entity
