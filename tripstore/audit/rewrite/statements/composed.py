"""SQL that a function of the company's makes of a table's name and a dict, by psycopg's `sql`:

INSERT = sql.SQL("INSERT INTO public.{table} ({columns}) VALUES ({values}) {tail}")

def insert_row(cursor, table, row, tail=""):
    statement = INSERT.format(
        table=sql.Identifier(table),
        columns=sql.SQL(", ").join(map(sql.Identifier, row)),
        values=sql.SQL(", ").join(sql.Placeholder() * len(row)),
        tail=sql.SQL(tail),
    )
    cursor.execute(statement, list(row.values()))
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from tripstore.audit.meaning.bindings import Assigned
from tripstore.audit.meaning.denoting import Denoting
from tripstore.audit.meaning.values import AuditedFunction, Module, Scope, Text
from tripstore.audit.rewrite.called import called, is_builtin

#: As `ast.unparse` writes them.
_COLUMNS = "sql.SQL(', ').join(map(sql.Identifier, {row}))"
_VALUES = "sql.SQL(', ').join(sql.Placeholder() * len({row}))"
_PLAIN = ("list({row}.values())", "tuple({row}.values())")
_BUILTINS = ("map", "len", "list", "tuple", "isinstance", "dict")
#: Where dicts are values of columns, they are json.
_WRAPPED = "[Json(value) if isinstance(value, dict) else value for value in {row}.values()]"


@dataclass(frozen=True)
class ComposedInsert:
    """A call of such a function."""

    handle: ast.expr
    row: ast.expr
    table: ast.expr
    template: str  #: With `{columns}` and `{values}`.
    tail: tuple[ast.expr, ...]  #: What else of the SQL the call names.
    has_documents: bool  #: Whether dicts are written as json.

    def text(self, columns: Iterable[str]) -> str:
        """The SQL for a row of these columns."""
        names = [f'"{each}"' for each in columns]
        said = self.template.replace("{columns}", ", ".join(names))
        return said.replace("{values}", ", ".join("%s" for _ in names))


def composed_insert(node: ast.Call, denoting: Denoting, scope: Scope) -> ComposedInsert | None:
    """What a call inserts, if its function is as above and nothing else; None of all others."""
    found = called(node, denoting, scope)
    if found is None or node.keywords or not all(is_builtin(name, found.scope) for name in _BUILTINS):
        return None
    given = _given(node, found.function)
    body = [each for each in found.function.body if not _is_docstring(each)]
    match body:
        case [
            ast.Assign(
                targets=[ast.Name(id=statement)],
                value=ast.Call(func=ast.Attribute(value=template, attr="format"), args=[], keywords=parts),
            ),
            ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=handle), attr="execute"),
                    args=[ast.Name(id=executed), values],
                    keywords=[],
                )
            ),
        ] if given is not None and executed == statement:
            made = _Parts(denoting, found.scope, scope, given)
            row = made.row(parts, values)
            text = made.template(template)
            if row is None or text is None or handle not in given or row not in given or handle == row:
                return None
            table, filled = made.filled(text, parts, row)
            if filled is None or table is None:
                return None
            tail = tuple(each for each in given.values() if each not in (given[handle], given[row], table))
            has_documents = ast.unparse(values) not in {each.format(row=row) for each in _PLAIN}
            return ComposedInsert(given[handle], given[row], table, filled, tail, has_documents)
    return None


def _given(node: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr] | None:
    """Values by parameter; of those that are not given, their defaults."""
    said = function.args
    names = [each.arg for each in (*said.posonlyargs, *said.args)]
    is_plain = isinstance(function, ast.FunctionDef) and not function.decorator_list
    is_plain = is_plain and not (said.kwonlyargs or said.vararg or said.kwarg)
    missing = len(names) - len(node.args)
    if not is_plain or not 0 <= missing <= len(said.defaults) or any(isinstance(e, ast.Starred) for e in node.args):
        return None
    defaults = said.defaults[len(said.defaults) - missing :] if missing else []
    is_known = all(isinstance(each, ast.Constant) for each in defaults)
    return dict(zip(names, [*node.args, *defaults], strict=True)) if is_known else None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@dataclass(frozen=True)
class _Parts:
    denoting: Denoting
    inside: Scope
    outside: Scope
    given: dict[str, ast.expr]

    def row(self, parts: list[ast.keyword], values: ast.expr) -> str | None:
        """The parameter whose keys are the columns, and whose values are executed with it."""
        for name in self.given:
            said = {ast.unparse(each.value) for each in parts}
            if {_COLUMNS.format(row=name), _VALUES.format(row=name)} <= said and self._is_values(values, name):
                return name
        return None

    def _is_values(self, node: ast.expr, row: str, is_inner: bool = False) -> bool:
        said = ast.unparse(node)
        if said == _WRAPPED.format(row=row) or said in {each.format(row=row) for each in _PLAIN}:
            return said != _WRAPPED.format(row=row) or is_inner or self._is_of_driver("Json")
        match node:
            case ast.Call(func=ast.Name() as callee, args=[ast.Name(id=name)], keywords=[]) if (
                name == row and not is_inner
            ):
                found = self.denoting.value(callee, self.inside)
                body = [] if not isinstance(found, AuditedFunction) else found.function.body
                rest = [each for each in body if not _is_docstring(each)]
                if isinstance(found, AuditedFunction) and len(found.function.args.args) == 1 and len(rest) == 1:
                    own = _Parts(self.denoting, found.scope, self.outside, {})
                    returned = rest[0].value if isinstance(rest[0], ast.Return) else None
                    inner = found.function.args.args[0].arg
                    return returned is not None and own._is_of_driver("Json") and own._is_values(returned, inner, True)
        return False

    def _is_of_driver(self, name: str) -> bool:
        found = self.denoting.named(name, self.inside)
        return isinstance(found, Module) and found.dotted.partition(".")[0] in ("psycopg2", "psycopg")

    def template(self, node: ast.expr) -> str | None:
        """The text of `sql.SQL("…")`, which a name may stand for."""
        if isinstance(node, ast.Name):
            bound = [each for scope in self.inside.outwards() for each in scope.bindings.names.get(node.id, [])]
            value = bound[0].value if len(bound) == 1 and isinstance(bound[0], Assigned) else None
            return None if value is None or isinstance(value, ast.Name) else self.template(value)
        is_sql = isinstance(node, ast.Call) and ast.unparse(node.func) == "sql.SQL" and self._is_of_driver("sql")
        text = node.args[0] if is_sql and isinstance(node, ast.Call) and len(node.args) == 1 else None
        return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else None

    def filled(self, text: str, parts: list[ast.keyword], row: str) -> tuple[ast.expr | None, str | None]:
        """The argument that names the table, and the template with what is known."""
        table: ast.expr | None = None
        for part in parts:
            said, hole = ast.unparse(part.value), f"{{{part.arg}}}"
            new = {_COLUMNS.format(row=row): "{columns}", _VALUES.format(row=row): "{values}"}.get(said)
            argument = _argument(part.value)
            known = self.denoting.value(self.given[argument], self.outside) if argument in self.given else None
            if new is None and (not isinstance(known, Text) or argument is None):
                return None, None
            if new is None and isinstance(known, Text) and argument is not None:
                is_name = said == f"sql.Identifier({argument})"
                table = self.given[argument] if is_name else table
                new = '"' + known.text.replace('"', '""') + '"' if is_name else known.text
            if text.count(hole) != 1 or new is None:
                return None, None
            text = text.replace(hole, new)
        return table, text


def _argument(node: ast.expr) -> str | None:
    """The parameter in `sql.Identifier(table)` or `sql.SQL(tail)`."""
    match node:
        case ast.Call(func=func, args=[ast.Name(id=name)], keywords=[]) if ast.unparse(func) in (
            "sql.Identifier",
            "sql.SQL",
        ):
            return name
    return None
