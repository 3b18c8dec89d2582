"""`SqlLook`: the questions and the writes of a part of a function that are SQL in a text."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from tripstore.audit.meaning.values import Text
from tripstore.audit.rewrite.called import called
from tripstore.audit.rewrite.models.attributes import ColumnRole
from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.parts import RegionParts
from tripstore.audit.rewrite.questions.asking import (
    is_fetching,
)
from tripstore.audit.rewrite.questions.calls import StoreCall
from tripstore.audit.rewrite.questions.questions import ChangedValue
from tripstore.audit.rewrite.statements.composed import composed_insert
from tripstore.audit.rewrite.statements.fetches import fetch_of
from tripstore.audit.rewrite.statements.inserts import SqlInsert, sql_insert
from tripstore.audit.rewrite.statements.parameters import SqlParameters
from tripstore.audit.rewrite.statements.sqltext import (
    SqlLast,
    SqlSelect,
    SqlValue,
    reason_of_insert,
    reason_of_select,
    sql_change,
    sql_last,
    sql_select,
)
from tripstore.audit.rewrite.verdicts import NotCertain
from tripstore.audit.rewrite.writes.children import check_plain, inserted_by_sql
from tripstore.audit.rewrite.writes.keys import DictKeys
from tripstore.audit.rewrite.writes.writes import RegionWrite

_BY_HAND = "rewrite it by hand"


class SqlLook(RegionParts):
    """By `execute`, or by functions of the company's that do no more."""

    def _look_at_sql(self, node: ast.Call) -> bool:
        """`cursor.execute("UPDATE …", (…))`"""
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "execute" and node.args):
            return False
        said = node.args[0]
        if isinstance(said, ast.Call) and self._denoting.callee(said, self._scope) == "text" and len(said.args) == 1:
            said = said.args[0]
        text = self._text(said)
        if text is None:
            return False
        if (select := sql_select(text)) is not None:
            self._look_at_fetch(node, select)
            return True
        if (insert := sql_insert(text)) is not None:
            self._look_at_insert(node, insert)
            return True
        change = sql_change(text)
        model = self._of_table(change.schema, change.table)
        statement = self._uses.parent(node)
        if not isinstance(statement, ast.Expr) or node.keywords or len(node.args) > 2:
            raise NotCertain("what the statement answers is used", "ask for the row first")
        values = SqlParameters.of(node.args[1] if len(node.args) == 2 else None, self._source)
        self._look_at_values(values.nodes(value for _, value in (*change.keys, *change.changes)))
        keys = self._sql_keys(change.keys, values, model)
        for column, _value in change.changes:
            check_plain(model.physical(column))
        changes = [
            ChangedValue(model.physical(column).name, values.text(value), value.operator)
            for column, value in change.changes
        ]
        self._rendering.check_text(node)
        self._take(node, self._written(keys, changes, model, node.func.value), node.func.value)
        self._found.texts |= {part for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)}
        self._writes.add(RegionWrite((statement,), node.func.value, model))
        return True

    def _text(self, node: ast.expr) -> str | None:
        """SQL that names a table of the layout."""
        text = self._denoting.value(node, self._scope)
        is_ours = isinstance(text, Text) and self._context.models.tables.word.search(text.text) is not None
        return text.text if is_ours and isinstance(text, Text) else None

    def _look_at_value(self, node: ast.Call) -> bool:
        """`fetch_value(cursor, "SELECT max(n) …", (…))`, a function of the company's: one value of one row."""
        text = self._text(node.args[1]) if len(node.args) == 3 and not node.keywords else None
        found = called(node, self._denoting, self._scope)
        if text is None or found is None or not is_fetching(found.function):
            return False
        if self._context.has_forms:
            raise NotCertain("this code asks drivers for rows or values of other forms", _BY_HAND)
        asked = sql_last(text) or sql_select(text)
        if asked is None or (isinstance(asked, SqlSelect) and len(asked.columns) != 1):
            raise NotCertain(*reason_of_select(text))
        model = self._of_table(asked.schema, asked.table)
        values = SqlParameters.of(node.args[2], self._source)
        self._look_at_values(values.nodes(value for _, value in asked.keys))
        self._rendering.check_text(node)
        self._take(node, self._fetched_value(asked, values, model), node.args[0])
        self._found.texts |= {part for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
        return True

    def _fetched_value(self, asked: SqlLast | SqlSelect, values: SqlParameters, model: RewriteModel) -> StoreCall:
        if isinstance(asked, SqlSelect):
            return self._writer.fetched_value(self._sql_keys(asked.keys, values, model), asked.columns[0], model)
        keys = {model.physical(column).role: values.text(value) for column, value in asked.keys}
        if set(keys) != {ColumnRole.PARENT} or model.physical(asked.column).role is not ColumnRole.NUMBER:
            raise NotCertain("it asks for the last of more than the numbers of a row's child rows", _BY_HAND)
        return self._writer.last(keys[ColumnRole.PARENT], asked.default, model)

    def _look_at_insert(self, node: ast.Call, insert: SqlInsert) -> None:
        """`cursor.execute("INSERT INTO notes (trip_id, n) VALUES (%s, %s)", (…))`"""
        if node.keywords or len(node.args) > 2 or not isinstance(node.func, ast.Attribute):
            raise NotCertain("its values are known at run time only", _BY_HAND)
        values = SqlParameters.of(node.args[1] if len(node.args) == 2 else None, self._source)
        said = [each for each in insert.columns.values() if each is not None]
        self._look_at_values(values.nodes(said))
        self._rendering.check_text(node)
        pairs = [f'"{name}": {values.text(value)}' for name, value in insert.columns.items() if value is not None]
        self._insert(node, insert, f"{{{', '.join(pairs)}}}", node.func.value, has_documents=False)
        self._found.texts |= {part for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)}

    def _look_at_composed(self, node: ast.Call) -> bool:
        """`insert_row(cursor, "notes", {…})`, a function of the company's."""
        composed = composed_insert(node, self._denoting, self._scope)
        if composed is None or self._context.models.tables.word.search(composed.template) is None:
            return False
        insert = sql_insert(composed.text(["any"]))
        if insert is None or not self._of_table(insert.schema, insert.table).column.is_child:
            raise NotCertain(*reason_of_insert())
        keys = DictKeys(self._denoting, self._context.defined, self._scope, self._function).of(composed.row)
        insert = replace(insert, columns=dict.fromkeys(sorted(keys)))
        self._look_at_values([composed.row])
        self._rendering.check_text(node)
        row = self._source(composed.row)
        self._insert(node, insert, row, composed.handle, has_documents=composed.has_documents)
        self._found.texts |= {part for each in (composed.table, *composed.tail) for part in ast.walk(each)}
        return True

    def _insert(self, node: ast.Call, insert: SqlInsert, row: str, handle: ast.expr, *, has_documents: bool) -> None:
        statement, model = self._uses.parent(node), self._of_table(insert.schema, insert.table)
        if not isinstance(statement, ast.Expr):
            raise NotCertain("what the statement answers is used", "ask for the row first")
        text = inserted_by_sql(self._context, model, insert, row, self._handle(handle), has_documents=has_documents)
        self._take(node, StoreCall(text), handle)
        self._writes.add(RegionWrite((statement,), handle, model))

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
