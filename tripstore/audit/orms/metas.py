"""`Metas`: the options of `class Meta`, with those that it inherits."""

from __future__ import annotations

import ast
from typing import NamedTuple

from tripstore.audit.meaning.bindings import ClassFacts, ClassMeta
from tripstore.audit.meaning.values import Entity, Scope, Text
from tripstore.audit.orms.known import KnownModels
from tripstore.audit.orms.lineage import Lineages

_DEPTH_MAX = 20


class Option(NamedTuple):
    """An option's value, and where its names are looked up."""

    node: ast.expr
    scope: Scope


class Metas:
    """Reads them as Django does; `inherited` is Peewee's way."""

    def __init__(self, models: KnownModels, lineages: Lineages) -> None:
        self._models = models
        self._lineages = lineages

    def option(self, facts: ClassFacts, scope: Scope, name: str, depth: int = 0) -> Option | None:
        """Django's: a class without a Meta has that of its abstract base; a Meta may derive from another."""
        if depth > _DEPTH_MAX:
            return None
        if facts.meta is not None:
            return self._of_meta(facts.meta, scope, name, depth)
        for parent in self._lineages.parents(facts, scope):
            above = self._models.scope(parent.file)
            if parent.facts is not None and self.is_true(parent.facts, above, "abstract"):
                found = self.option(parent.facts, above, name, depth + 1)
                if found is not None:
                    return found
        return None

    def _of_meta(self, meta: ClassMeta, scope: Scope, name: str, depth: int) -> Option | None:
        if name in meta.options:
            return Option(meta.options[name], scope)
        for base in meta.bases:  # class Meta(AbstractTrip.Meta)
            owner = self._models.denoting.value(base.value, scope) if isinstance(base, ast.Attribute) else None
            if isinstance(owner, Entity) and owner.facts is not None:
                found = self.option(owner.facts, self._models.scope(owner.file), name, depth + 1)
                if found is not None:
                    return found
        return None

    def is_true(self, facts: ClassFacts, scope: Scope, name: str) -> bool:
        """Whether its own Meta says so: neither `abstract` nor `proxy` is inherited."""
        value = facts.meta.options.get(name) if facts.meta is not None else None
        return isinstance(value, ast.Constant) and value.value is True

    def text(self, facts: ClassFacts, scope: Scope, name: str) -> str | None:
        option = self.option(facts, scope, name)
        found = self._models.denoting.value(option.node, option.scope) if option is not None else None
        return found.text if isinstance(found, Text) else None

    def inherited(self, facts: ClassFacts, scope: Scope, name: str, depth: int = 0) -> Option | None:
        """Peewee's: from any base."""
        if facts.meta is not None and name in facts.meta.options:
            return Option(facts.meta.options[name], scope)
        if depth > _DEPTH_MAX:
            return None
        for parent in self._lineages.parents(facts, scope):
            if parent.facts is not None:
                found = self.inherited(parent.facts, self._models.scope(parent.file), name, depth + 1)
                if found is not None:
                    return found
        return None
