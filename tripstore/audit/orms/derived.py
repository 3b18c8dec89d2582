"""`DerivedTables`: the tables of classes that do not name theirs, by the rules of their ORMs.

Where the rule cannot be read, a table that resembles the name of the class is taken for its own: a use too many is seen
and corrected, one too few is not. Either way the class is unclear, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from tripstore.audit.meaning.bindings import ClassFacts
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.meaning.values import Entity, Scope, Text
from tripstore.audit.names import LegacyTable
from tripstore.audit.orms.computed import computed_name, constants
from tripstore.audit.orms.django import DjangoApps
from tripstore.audit.orms.known import KnownModels
from tripstore.audit.orms.lineage import Lineage, Lineages
from tripstore.audit.orms.metas import Metas
from tripstore.audit.orms.naming import django_name, flask_names, peewee_names, peewee_snake, resembles

_COMPUTED = "its name is computed, and what computes it cannot be followed"


class Derived(NamedTuple):
    """The legacy tables of a class, and why that is not certain."""

    tables: tuple[LegacyTable, ...] = ()
    unclear: str | None = None


_NONE = Derived()


class DerivedTables:
    """Finds them out, one class at a time."""

    def __init__(self, models: KnownModels, lineages: Lineages, apps: DjangoApps) -> None:
        self._models = models
        self._lineages = lineages
        self._apps = apps
        self._metas = Metas(models, lineages)

    def of(self, facts: ClassFacts, scope: Scope) -> Derived:
        """Of a class without a table of its own that its text names."""
        lineage = self._lineages.of(facts, scope)
        if facts.is_abstract:
            return _NONE
        if facts.table_name is not None:
            return self._said(facts.table_name, scope, facts.name)
        match lineage.orm:
            case Orm.DJANGO:
                return self._of_django(facts, scope)
            case Orm.PEEWEE:
                return self._of_peewee(facts, scope)
        rule = self._rule(facts, scope)
        if rule is not None:
            return self._said(*rule, facts.name) if self._is_mapped(facts, scope, lineage) else _NONE
        return self._of_sqlalchemy(facts, scope, lineage)

    def is_unmapped(self, facts: ClassFacts, scope: Scope) -> bool:
        """Whether Django gives the class no table: abstract ones, and proxies, which use that of their base."""
        return self._metas.is_true(facts, scope, "abstract") or self._metas.is_true(facts, scope, "proxy")

    # ------------------------------------------------------------------------------------------- SQLAlchemy

    def _of_sqlalchemy(self, facts: ClassFacts, scope: Scope, lineage: Lineage) -> Derived:
        if facts.is_sqlmodel:
            return self._found([facts.name.lower()])
        if lineage.orm is Orm.FLASK:
            is_child = any(self._has_table(parent) for parent in self._lineages.parents(facts, scope))
            return self._found(flask_names(facts.name)) if facts.has_primary_key or not is_child else _NONE
        if lineage.orm is Orm.OTHER:
            return self._resembling(facts.name, "its ORM names it by rules that are not known here")
        if lineage.orm is None and lineage.outside and self._lineages.has_columns(facts, scope):
            return self._resembling(facts.name, f"its base {lineage.outside[0]} is not in the code that was looked at")
        return _NONE

    def _has_table(self, parent: Entity) -> bool:
        """Whether a base is a model, whose table a class without a primary key shares."""
        if parent.facts is None or parent.facts.is_abstract:
            return False
        return self._lineages.of(parent.facts, self._models.scope(parent.file)).orm is Orm.FLASK

    def _is_mapped(self, facts: ClassFacts, scope: Scope, lineage: Lineage) -> bool:
        """Neither a declarative base nor a mixin."""
        if lineage.is_root and not facts.columns:
            return False
        if lineage.orm is Orm.SQLMODEL:
            return facts.is_sqlmodel
        return lineage.orm is not None or bool(lineage.outside and self._lineages.has_columns(facts, scope))

    def _rule(
        self, facts: ClassFacts, scope: Scope, seen: frozenset[ClassFacts] = frozenset()
    ) -> tuple[ast.expr, Scope] | None:
        """What `__tablename__` of the class, or of the nearest of its bases, answers."""
        if facts.computed is not None:
            return facts.computed, scope
        for parent in self._lineages.parents(facts, scope):
            above = parent.facts
            if above is not None and above not in seen and above.table_name is None:
                found = self._rule(above, self._models.scope(parent.file), seen | {facts})
                if found is not None:
                    return found
        return None

    # ----------------------------------------------------------------------------------- Django and Peewee

    def _of_django(self, facts: ClassFacts, scope: Scope) -> Derived:
        if self.is_unmapped(facts, scope):
            return _NONE
        named = self._metas.option(facts, scope, "db_table")
        if named is not None:
            return self._said(named.node, named.scope, facts.name)
        label = self._metas.text(facts, scope, "app_label")
        labels = (label,) if label is not None else self._apps.labels(scope.file)
        return self._found(django_name(each, facts.name) for each in labels)

    def _of_peewee(self, facts: ClassFacts, scope: Scope) -> Derived:
        own = facts.meta.options if facts.meta is not None else {}
        for key in ("table_name", "db_table"):
            if key in own:
                return self._said(own[key], scope, facts.name)
        if self._metas.inherited(facts, scope, "table_function") is not None:
            return self._resembling(facts.name, _COMPUTED)
        legacy = self._metas.inherited(facts, scope, "legacy_table_names")
        is_snake = legacy is not None and isinstance(legacy.node, ast.Constant) and legacy.node.value is False
        return self._found((peewee_snake(facts.name),) if is_snake else peewee_names(facts.name))

    # ----------------------------------------------------------------------------------------------- names

    def _said(self, node: ast.expr, scope: Scope, name: str) -> Derived:
        """The table of an expression, as far as it can be computed here."""
        text = computed_name(node, name, lambda each: self._text(each, scope))
        if text is not None:
            return self._found([text])
        parts = [name, *constants(node)]
        return self._resembling(name, _COMPUTED, [part.strip("_") for part in parts])

    def _text(self, node: ast.expr, scope: Scope) -> str | None:
        found = self._models.denoting.value(node, scope)
        return found.text if isinstance(found, Text) else None

    def _found(self, names: Iterable[str]) -> Derived:
        tables = (self._find(name) for name in names)
        return Derived(tuple(dict.fromkeys(table for table in tables if table is not None)))

    def _find(self, name: str) -> LegacyTable | None:
        """By `name`, `schema.name` and, as Django's users write it, `schema"."name`."""
        schema, _, last = name.replace('"', "").rpartition(".")
        return self._models.tables.find(schema or None, last)

    def _resembling(self, name: str, reason: str, parts: Iterable[str] = ()) -> Derived:
        names = (name, *parts)
        tables = tuple(each for each in self._models.tables.tables if any(resembles(each.name, one) for one in names))
        return Derived(tables, reason)
