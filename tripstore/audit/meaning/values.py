"""What expressions of the audited code stand for, and the scopes that their names are looked up in. Values only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tripstore.audit.meaning.bindings import Bindings, ClassFacts, Method, bindings, last_name, parameters
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.names import LegacyTable


@dataclass(frozen=True, slots=True)
class Entity:
    """A class or a table object, and the legacy tables that it stands for: none of most classes."""

    file: str
    line: int
    name: str
    tables: tuple[LegacyTable, ...]
    facts: ClassFacts | None = None
    orm: Orm | None = None


@dataclass(frozen=True, slots=True)
class OrmRoot:
    """What models derive from, made by a call: `db.Model` of `db = SQLAlchemy()`; and the class that it is made of."""

    orm: Orm
    base: Entity | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """A module, or anything else with a dotted name; of code that is not looked at there is no file."""

    dotted: str
    importer: str
    file: str | None

    @property
    def last(self) -> str:
        return self.dotted.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is known."""

    text: str


@dataclass(frozen=True, slots=True)
class AuditedFunction:
    """A function of the audited code, and where it stands; of a method, what its first parameter is."""

    function: Method
    scope: Scope
    first: tuple[str, Value] | None = None

    @property
    def returns(self) -> ast.expr | None:
        return self.function.returns

    @property
    def answers(self) -> list[ast.expr]:
        """What it returns, if it is no generator and nothing is wrapped around it."""
        if any(last_name(each) not in _PLAIN for each in self.function.decorator_list):
            return []
        return [each.value for each in _own(self.function) if isinstance(each, ast.Return) and each.value is not None]

    def inner(self) -> Scope:
        """What its body sees."""
        bound = bindings(self.function.body)
        parameters(self.function.args, bound)
        return Scope(self.scope.file, bound, self.scope, first=self.first)


@dataclass(frozen=True, slots=True)
class ModelRows:
    """Objects of models, one or many; or a statement that will bring some."""

    entities: frozenset[Entity]
    is_statement: bool


_PLAIN = frozenset({"classmethod", "staticmethod", "property", "cached_property", "user_loader"})


def _own(function: Method) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


Value = Entity | OrmRoot | Module | Text | AuditedFunction | ModelRows


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Where names are looked up: a module, a function, a class or a comprehension."""

    file: str
    bindings: Bindings
    parent: Scope | None = None
    is_class: bool = False
    #: What the first parameter of a method stands for: the class, or an object of it.
    first: tuple[str, Value] | None = None

    def outwards(self) -> Iterator[Scope]:
        """This scope and those around it; a class is seen from its own body only."""
        yield self
        scope = self.parent
        while scope is not None:
            if not scope.is_class:
                yield scope
            scope = scope.parent
