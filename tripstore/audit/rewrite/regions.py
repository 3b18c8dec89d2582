"""The parts of a function that are rewritten whole or not at all, and what becomes of one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from schemaless_core.definitions.index import IndexDefinition
from tripstore.audit.meaning.values import Entity
from tripstore.audit.orms.models import Models
from tripstore.audit.rewrite.models.models import RewriteModel, RewriteModels
from tripstore.audit.rewrite.models.relations import ChildList, child_list
from tripstore.audit.rewrite.verdicts import Edit, IndexNeed, NotCertain, RewriteAssumption

Function = ast.FunctionDef | ast.AsyncFunctionDef
Region = ast.With | Function


def regions(function: Function) -> list[Region]:
    """Each `with` that opens something under a name, the outermost only; then what is left of the function."""
    found: list[Region] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.With) and any(isinstance(item.optional_vars, ast.Name) for item in node.items):
            found.append(node)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))
    return [*found, function]


@dataclass(frozen=True)
class RewriteContext:
    """What all functions of a code base share."""

    models: Models
    rewrite_models: RewriteModels
    entities: list[Entity]
    indexes: Sequence[IndexDefinition]
    store: str
    units: Sequence[str] = ()
    referenced: Collection[str] = ()  #: Tables that foreign keys of models point to.
    has_forms: bool = False  #: Whether any of it asks a driver for rows or values of other forms.
    is_stricter: bool = False  #: Whether any of it names an isolation level above READ COMMITTED.
    defined: Callable[[str], int] = lambda _name: 0  #: How many functions of a name there are.

    def child_list(self, model: RewriteModel, name: str) -> ChildList | None:
        """The child rows that an attribute of a model leads to; None: it is no relationship."""
        entity = model.entity
        target = self.models.relation(entity, name) if entity is not None else None
        if target is None or not target.tables:
            return None
        return child_list(model, name, self.rewrite_models.of_entity(target), self.rewrite_models.listens)


@dataclass
class FunctionEdits:
    """What a part becomes."""

    edits: list[Edit] = field(default_factory=list)
    assumes: set[RewriteAssumption] = field(default_factory=set)
    needs: list[IndexNeed] = field(default_factory=list)
    texts: set[ast.AST] = field(default_factory=set)  #: Names of SQL that are no longer used here.


class BlamedUse(Exception):
    """A use that cannot be rewritten, and so none of its part can."""

    def __init__(self, node: ast.AST, why: NotCertain) -> None:
        super().__init__(why.reason)
        self.node = node
        self.why = why
