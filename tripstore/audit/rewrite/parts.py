"""`RegionParts`: what the looks at a part of a function share: expressions, what stands there instead, writes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from tripstore.audit.meaning.values import Entity, Scope
from tripstore.audit.places import Lines
from tripstore.audit.rewrite.models.attributes import ColumnRole
from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.questions.asked import AskedReader
from tripstore.audit.rewrite.questions.calls import CallWriter, StoreCall
from tripstore.audit.rewrite.questions.questions import ChangedValue
from tripstore.audit.rewrite.regions import Function, FunctionEdits, Region, RewriteContext, regions
from tripstore.audit.rewrite.rendering import Rendering
from tripstore.audit.rewrite.rows import RowName
from tripstore.audit.rewrite.statements.fetches import kept_statement
from tripstore.audit.rewrite.writes.children import ChildWriter
from tripstore.audit.rewrite.writes.writes import RegionWrites
from tripstore.audit.uses.uses import Uses


class RegionParts:
    """Notes what becomes of a part of a function."""

    def __init__(self, context: RewriteContext, uses: Uses, lines: Lines, function: Function, region: Region) -> None:
        self._context = context
        self._uses = uses
        self._function = function
        self._region = region
        self._others = set(regions(function)) - {region, function}
        self._denoting = context.models.denoting
        self._scope: Scope = uses.scopes[function]
        self._reader = AskedReader(context.models.denoting, self._scope, self._kept_statement)
        self._rendering = Rendering(lines, uses.parent)
        self._source = self._rendering.source
        self._writer = CallWriter(
            context.store, self._source, self._rendering.check_order, context.indexes, context.referenced
        )
        self._children = ChildWriter(context, self._scope, function, self._source)
        self._writes = RegionWrites()
        self._fetches: dict[tuple[ast.stmt, ...], str] = {}
        self._kept: list[ast.Assign] = []  #: statements that are executed by their name
        self._handles: list[ast.expr | None] = []
        self._rows: list[RowName] = []
        self._found = FunctionEdits()

    def _own(self) -> Iterator[ast.expr]:
        """The expressions of the function, outer ones first; what is replaced is not entered."""
        return self._below([self._region] if self._region is not self._function else self._function.body)

    def _below(self, roots: Iterable[ast.AST]) -> Iterator[ast.expr]:
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.expr):
                yield node
            if node not in self._rendering.replaced and node not in self._others:
                waiting.extend(reversed(list(ast.iter_child_nodes(node))))

    def _look_at_all(self, nodes: Iterable[ast.expr]) -> None:
        for node in nodes:
            self._look(node)

    def _look_at_values(self, values: Iterable[ast.expr]) -> None:
        """What is asked within the values of a call is replaced before the call is written."""
        values = list(values)
        self._look_at_all(self._below(values))
        self._rendering.check_order(values)

    def _model(self, entity: Entity) -> RewriteModel:
        if entity.facts is not None:
            return self._context.rewrite_models.of_entity(entity)
        return self._of_table(entity.tables[0].schema, entity.tables[0].name)

    def _of_table(self, schema: str | None, name: str) -> RewriteModel:
        return self._context.rewrite_models.of_table(schema, name, self._context.entities)

    def _kept_statement(self, name: ast.Name) -> ast.Assign | None:
        return kept_statement(name, self._function, self._uses.parent)

    def _handle(self, handle: ast.expr | None) -> str | None:
        return None if handle is None else self._source(handle)

    def _take(self, node: ast.Call, call: StoreCall, handle: ast.expr | None) -> None:
        self._rendering.replace(node, call.text)
        self._handles.append(handle)
        self._found.assumes |= call.assumes
        self._found.needs += [call.need] if call.need is not None else []

    def _written(
        self,
        keys: dict[ColumnRole, str],
        changes: Sequence[ChangedValue],
        model: RewriteModel,
        handle: ast.expr | None,
    ) -> StoreCall:
        """A change of a row; without any values, its deletion."""
        if changes:
            return self._writer.changed(keys, changes, model, self._handle(handle))
        return self._writer.deleted(keys, model)

    def _look(self, node: ast.expr) -> None:
        """Note what stands in the place of an expression, if it asks or writes."""
        raise NotImplementedError
