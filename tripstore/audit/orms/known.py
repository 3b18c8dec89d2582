"""`KnownModels`: what the parts that know ORMs ask of the models of a code base."""

from __future__ import annotations

import ast
from typing import Protocol

from tripstore.audit.meaning.bindings import ClassFacts
from tripstore.audit.meaning.modules import Modules
from tripstore.audit.meaning.values import Entity, Scope, Value
from tripstore.audit.names import LegacyTables


class DenotesModels(Protocol):
    """What expressions stand for."""

    def value(self, node: ast.expr, scope: Scope) -> Value | None: ...


class KnownModels(Protocol):
    """Classes by their names and files, and the tables of each."""

    modules: Modules
    tables: LegacyTables

    @property
    def denoting(self) -> DenotesModels: ...

    def scope(self, file: str) -> Scope: ...

    def entity(self, facts: ClassFacts, scope: Scope) -> Entity: ...

    def named(self, name: str) -> Entity | None: ...

    def classes(self, name: str) -> list[tuple[str, ClassFacts]]:
        """The classes of a name, whatever its case, and their files."""
        ...
