"""`RegionLook`: the questions and the writes of a part of a function, by SQLAlchemy or by SQL."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tripstore.audit.meaning.values import AuditedFunction, Entity, Scope, Text
from tripstore.audit.places import Lines
from tripstore.audit.rewrite.models.attributes import ColumnRole
from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.questions.asked import AskedReader
from tripstore.audit.rewrite.questions.asking import is_asked_only, is_counted, is_gone_through, is_passing
from tripstore.audit.rewrite.questions.calls import CallWriter, StoreCall
from tripstore.audit.rewrite.questions.questions import AskedQuestion, ChangedValue
from tripstore.audit.rewrite.regions import BlamedUse, Function, FunctionEdits, Region, RewriteContext, regions
from tripstore.audit.rewrite.rendering import Rendering
from tripstore.audit.rewrite.rows import RowName
from tripstore.audit.rewrite.statements.fetches import fetch_of
from tripstore.audit.rewrite.statements.parameters import SqlParameters
from tripstore.audit.rewrite.statements.sqltext import SqlSelect, SqlValue, sql_change, sql_select
from tripstore.audit.rewrite.verdicts import NotCertain
from tripstore.audit.rewrite.writes.writes import RegionWrite, RegionWrites
from tripstore.audit.uses.uses import Uses

_BY_HAND = "rewrite it by hand"


class RegionLook:
    """Finds what a part of a function asks and writes, and notes what stands there instead, or raises `BlamedUse`."""

    def __init__(self, context: RewriteContext, uses: Uses, lines: Lines, function: Function, region: Region) -> None:
        self._context = context
        self._uses = uses
        self._function = function
        self._region = region
        self._others = set(regions(function)) - {region, function}
        self._denoting = context.models.denoting
        self._scope: Scope = uses.scopes[function]
        self._reader = AskedReader(context.models.denoting, self._scope)
        self._rendering = Rendering(lines, uses.parent)
        self._source = self._rendering.source
        self._writer = CallWriter(context.store, self._source, context.indexes, context.referenced)
        self._writes = RegionWrites()
        self._fetches: dict[tuple[ast.stmt, ...], str] = {}
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

    def _look_again(self) -> None:
        """Calls are made anew where their values are those of rows: what these become is known only now."""
        reads = [attribute for row in self._rows for attribute, _ in row.reads]
        calls = self._rendering.replaced.keys() - set(reads)
        if not any(self._rendering.is_below(attribute, calls) for attribute in reads):
            return
        rows, self._rows, self._handles = self._rows, [], []
        self._rendering.forget(calls)
        self._look_at_all(self._own())
        self._rows = rows

    def _look_at_values(self, values: Iterable[ast.expr]) -> None:
        """What is asked within the values of a call is replaced before the call is written."""
        values = list(values)
        self._look_at_all(self._below(values))
        self._rendering.check_order(values)

    def _look(self, node: ast.expr) -> None:
        if not isinstance(node, ast.Call):
            return
        try:
            if self._look_at_sql(node):
                return
            asked = self._reader.asked(node)
            if asked is None:
                return
            model = self._model(asked.entity)
            self._rendering.check_text(node)
            if asked.is_update or asked.is_delete:
                self._look_at_update(node, asked, model)
            else:
                self._look_at_read(node, asked, model)
        except NotCertain as why:
            raise BlamedUse(node, why) from None

    def _model(self, entity: Entity) -> RewriteModel:
        if entity.facts is not None:
            return self._context.rewrite_models.of_entity(entity)
        return self._of_table(entity.tables[0].schema, entity.tables[0].name)

    def _of_table(self, schema: str | None, name: str) -> RewriteModel:
        return self._context.rewrite_models.of_table(schema, name, self._context.entities)

    def _look_at_read(self, node: ast.Call, asked: AskedQuestion, model: RewriteModel) -> None:
        limit = [asked.limit] if asked.limit is not None else []
        self._look_at_values([*asked.keys, *(each for found in asked.conditions for each in found.values), *limit])
        call = self._writer.read(asked, model, self._handle(asked.handle))
        if asked.columns and asked.end == "" and not is_gone_through(self._uses.parent(node), node):
            raise NotCertain("its rows are handed on before they are read", "ask with all()")
        if not call.is_value:
            self._bind(self._passed_on(node), model, is_list=asked.end in ("", "all"), is_loop=asked.end == "")
        self._take(node, call, asked.handle)

    def _passed_on(self, node: ast.Call) -> ast.Call:
        """What comes out of functions that return what they are given, or raise: `present(session.get(Trip, 7))`."""
        parent = self._uses.parent(node)
        if isinstance(parent, ast.Call) and parent.args == [node] and not parent.keywords:
            function = self._denoting.value(parent.func, self._scope)
            if isinstance(function, AuditedFunction) and is_passing(function.function):
                return self._passed_on(parent)
        return node

    def _bind(self, node: ast.Call, model: RewriteModel, *, is_list: bool, is_loop: bool) -> None:
        """Where the rows go: a name, a loop, or only a look whether there is one."""
        parent = self._uses.parent(node)
        if (
            isinstance(parent, ast.Assign)
            and len(parent.targets) == 1
            and isinstance(parent.targets[0], ast.Name)
            and not is_loop
        ):
            self._rows.append(RowName(parent.targets[0].id, model, is_list))
        elif (
            is_list
            and isinstance(parent, ast.For | ast.comprehension)
            and parent.iter is node
            and isinstance(parent.target, ast.Name)
        ):
            self._rows.append(RowName(parent.target.id, model, False))
        elif is_list and not is_loop and is_counted(parent, node):
            pass  # len(session.query(Trip).all())
        elif is_list or not is_asked_only(parent, node):
            raise NotCertain(
                "what it brings is handed on as objects of a model", "hand on what is needed of them, or their ids"
            )

    def _look_at_update(self, node: ast.Call, asked: AskedQuestion, model: RewriteModel) -> None:
        statement = self._uses.parent(node)
        if not isinstance(statement, ast.Expr):
            raise NotCertain("what the statement answers is used", "ask for the row first")
        if asked.order or asked.limit is not None or bool(asked.changes) is asked.is_delete:
            raise NotCertain("it has an order or a limit, or no values", _BY_HAND)
        self._look_at_values(
            [
                *asked.keys,
                *(each for found in asked.conditions for each in found.values),
                *(each.value for each in asked.changes),
            ]
        )
        changes = [ChangedValue(each.name, self._source(each.value), each.operator) for each in asked.changes]
        keys = self._writer.keys(asked, model)
        self._take(node, self._written(keys, changes, model, asked.handle), asked.handle)
        self._writes.add(RegionWrite((statement,), asked.handle, model))

    def _look_at_sql(self, node: ast.Call) -> bool:
        """`cursor.execute("UPDATE …", (…))`"""
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "execute" and node.args):
            return False
        said = node.args[0]
        if isinstance(said, ast.Call) and self._denoting.callee(said, self._scope) == "text" and len(said.args) == 1:
            said = said.args[0]
        text = self._denoting.value(said, self._scope)
        if not isinstance(text, Text) or self._context.models.tables.word.search(text.text) is None:
            return False
        if (select := sql_select(text.text)) is not None:
            self._look_at_fetch(node, select)
            return True
        change = sql_change(text.text)
        model = self._of_table(change.schema, change.table)
        statement = self._uses.parent(node)
        if not isinstance(statement, ast.Expr) or node.keywords or len(node.args) > 2:
            raise NotCertain("what the statement answers is used", "ask for the row first")
        values = SqlParameters.of(node.args[1] if len(node.args) == 2 else None, self._source)
        self._look_at_values(values.nodes(value for _, value in (*change.keys, *change.changes)))
        keys = self._sql_keys(change.keys, values, model)
        changes = [
            ChangedValue(model.physical(column).name, values.text(value), value.operator)
            for column, value in change.changes
        ]
        self._rendering.check_text(node)
        self._take(node, self._written(keys, changes, model, node.func.value), node.func.value)
        self._found.texts |= {part for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)}
        self._writes.add(RegionWrite((statement,), node.func.value, model))
        return True

    def _sql_keys(
        self, said: Sequence[tuple[str, SqlValue]], values: SqlParameters, model: RewriteModel
    ) -> dict[ColumnRole, str]:
        """The key of one row, if the conditions of SQL are that and no more."""
        keys = {model.physical(column).role: values.text(value) for column, value in said}
        is_row = set(keys) in ({ColumnRole.ID}, {ColumnRole.ROW_KEY}) and not model.column.is_child
        is_child = set(keys) == {ColumnRole.PARENT, ColumnRole.NUMBER} and model.has_versions
        if len(keys) != len(said) or not (is_row or is_child):
            raise NotCertain("it is not by the key of one row", "find the rows by an index, and change each")
        return keys

    def _look_at_fetch(self, node: ast.Call, select: SqlSelect) -> None:
        """`cursor.execute("SELECT …", (…))`, and in the next statement `cursor.fetchone()`."""
        statement, following, fetch = fetch_of(node, self._function, self._uses.parent)
        if self._context.has_forms:
            raise NotCertain("this code asks drivers for rows or values of other forms", _BY_HAND)
        if node.keywords or len(node.args) > 2 or not isinstance(node.func, ast.Attribute):
            raise NotCertain("its values are known at run time only", _BY_HAND)
        model = self._of_table(select.schema, select.table)
        values = SqlParameters.of(node.args[1] if len(node.args) == 2 else None, self._source)
        self._look_at_values(values.nodes(value for _, value in select.keys))
        self._rendering.check_text(node)
        keys = self._sql_keys(select.keys, values, model)
        call = self._writer.fetched(keys, select.columns, model)
        self._take(fetch, call, node.func.value)
        self._rendering.replace(node, "")
        self._found.texts |= {part for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)}
        self._fetches[statement, following] = self._rendering.source_of_statement(following)

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

    def _handle(self, handle: ast.expr | None) -> str | None:
        return None if handle is None else self._source(handle)

    def _take(self, node: ast.Call, call: StoreCall, handle: ast.expr | None) -> None:
        self._rendering.replace(node, call.text)
        self._handles.append(handle)
        self._found.assumes |= call.assumes
        self._found.needs += [call.need] if call.need is not None else []


@contextmanager
def blaming(node: ast.AST) -> Iterator[None]:
    try:
        yield
    except NotCertain as why:
        raise BlamedUse(node, why) from None
