"""`RegionLook`: the questions and the writes of a part of a function, by SQLAlchemy or by SQL."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from tripstore.audit.meaning.values import AuditedFunction
from tripstore.audit.rewrite.called import called, is_builtin
from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.questions.asking import (
    is_asked_only,
    is_counted,
    is_gone_through,
    is_passing,
    is_setting,
)
from tripstore.audit.rewrite.questions.calls import StoreCall
from tripstore.audit.rewrite.questions.inlined import InlinedCall, inlined
from tripstore.audit.rewrite.questions.questions import AskedQuestion, ChangedValue
from tripstore.audit.rewrite.regions import BlamedUse
from tripstore.audit.rewrite.rows import RowName
from tripstore.audit.rewrite.sql_looking import SqlLook
from tripstore.audit.rewrite.verdicts import NotCertain
from tripstore.audit.rewrite.writes.writes import RegionWrite

_BY_HAND = "rewrite it by hand"


class RegionLook(SqlLook):
    """Finds what a part of a function asks and writes, and notes what stands there instead, or raises `BlamedUse`."""

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

    def _look(self, node: ast.expr) -> None:
        if not isinstance(node, ast.Call):
            return
        try:
            if self._look_at_sql(node) or self._look_at_composed(node) or self._look_at_value(node):
                return
            if self._look_at_added(node):
                return
            inner = inlined(node, self._denoting, self._scope)
            asked = self._reader.asked(node if inner is None else inner.question)
            if asked is None:
                return
            model = self._model(asked.entity)
            self._rendering.check_text(node)
            self._keep(asked.kept)
            if asked.is_update or asked.is_delete:
                self._look_at_update(node, asked, model)
            else:
                self._look_at_read(node, asked, model, inner)
        except NotCertain as why:
            raise BlamedUse(node, why) from None

    def _keep(self, kept: ast.Assign | None) -> None:
        """A statement that has a name goes with the call that executes it."""
        if kept is not None and kept not in self._kept:
            self._rendering.check_text(kept)
            self._kept.append(kept)

    def _look_at_read(
        self, node: ast.Call, asked: AskedQuestion, model: RewriteModel, inner: InlinedCall | None = None
    ) -> None:
        limit = [asked.limit] if asked.limit is not None else []
        self._look_at_values([*asked.keys, *(each for found in asked.conditions for each in found.values), *limit])
        call = self._writer.read(asked, model, self._handle(asked.handle))
        if asked.columns and asked.end == "" and not is_gone_through(self._uses.parent(node), node):
            raise NotCertain("its rows are handed on before they are read", "ask with all()")
        if not call.is_value:
            self._bind(self._passed_on(node), model, is_list=asked.end in ("", "all"), is_loop=asked.end == "")
        call.text = call.text if inner is None else inner.around(call.text)
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
            self._name(parent.targets[0].id, model, is_list=is_list)
        elif (
            is_list
            and isinstance(parent, ast.For | ast.comprehension)
            and parent.iter is node
            and isinstance(parent.target, ast.Name)
        ):
            self._name(parent.target.id, model, is_list=False)
        elif is_list and not is_loop and is_counted(parent, node):
            pass  # len(session.query(Trip).all())
        elif is_list or not is_asked_only(parent, node):
            raise NotCertain(
                "what it brings is handed on as objects of a model", "hand on what is needed of them, or their ids"
            )

    def _look_at_added(self, node: ast.Call) -> bool:
        """`session.add(TripNote(trip_id=7, n=1))`: whether it is a session, its commit says."""
        made = node.args[0] if len(node.args) == 1 and not node.keywords else None
        is_add = isinstance(node.func, ast.Attribute) and node.func.attr == "add"
        entity = self._children.made(made) if is_add and isinstance(made, ast.Call) else None
        if entity is None or not isinstance(made, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        statement, handle, model = self._uses.parent(node), node.func.value, self._model(entity)
        if not isinstance(statement, ast.Expr):
            raise NotCertain("what the statement answers is used", "ask for the row first")
        self._look_at_values(word.value for word in made.keywords)
        self._take(node, StoreCall(self._children.added(made, model, self._handle(handle))), handle)
        self._writes.add(RegionWrite((statement,), handle, model))
        return True

    def _name(self, name: str, model: RewriteModel, *, is_list: bool) -> None:
        """A name holds what a question brings; the same name may hold that of several."""
        known = next((each for each in self._rows if each.name == name), None)
        if known is not None and (known.model, known.is_list) == (model, is_list):
            known.stores += 1
        else:
            self._rows.append(self._row(name, model, is_list=is_list))

    def _row(self, name: str, model: RewriteModel, *, is_list: bool) -> RowName:
        return RowName(name, model, is_list, self._context.child_list, self._is_setting, self._context.store)

    def _is_setting(self, call: ast.Call) -> bool:
        function = called(call, self._denoting, self._scope)
        is_plain = function is not None and is_builtin("setattr", function.scope)
        return is_plain and function is not None and is_setting(function.function)

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


@contextmanager
def blaming(node: ast.AST) -> Iterator[None]:
    try:
        yield
    except NotCertain as why:
        raise BlamedUse(node, why) from None
