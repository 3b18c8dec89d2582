"""Writes of SQLAlchemy as the SQL that they send, as far as the code says which columns change.

An attribute is taken for the column of its name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tripstore.audit.findings import UseKind
from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.names import LegacyTable
from tripstore.backends.postgres.layout.layout import quoted

_CHANGES = frozenset({"values", "update"})


def written(
    kind: UseKind, node: ast.expr, unit: object, table: LegacyTable, parents: Mapping[ast.AST, ast.AST]
) -> str | None:
    """The statement of a use; None where the columns are known at run time only, and of what changes no row."""
    name = ".".join(quoted(part) for part in table if part is not None)
    if kind is UseKind.DELETE or (kind is UseKind.INSTANCE and _deletes(node)):
        return f"DELETE FROM {name}"
    columns: list[str | None] = []
    if kind is UseKind.INSTANCE and isinstance(unit, ast.stmt):
        columns = [part.attr for part in _targets(unit)]
    elif kind is UseKind.UPDATE and isinstance(unit, ast.expr):
        columns = list(_changed(unit, parents))
    if not columns or None in columns:
        return None
    return f"UPDATE {name} SET " + ", ".join(f"{quoted(column)} = DEFAULT" for column in columns if column)


def _deletes(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "delete"


def _targets(statement: ast.stmt) -> Iterator[ast.Attribute]:
    """`trip.status = …`, `trip.id, trip.status = …`, `del trip.note`"""
    for target in getattr(statement, "targets", None) or [getattr(statement, "target", None)]:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        yield from (part for part in parts if isinstance(part, ast.Attribute))


def _changed(head: ast.expr, parents: Mapping[ast.AST, ast.AST]) -> Iterator[str | None]:
    """What the calls that are chained to the head name: `update(Trip).values(status=…)`, `query.update({…})`."""
    node: ast.AST = head
    while True:
        if isinstance(node, ast.Call) and last_name(node.func) in _CHANGES:
            yield from (word.arg for word in node.keywords if word.arg != "synchronize_session")
            for argument in node.args:
                if isinstance(argument, ast.Dict):
                    yield from (_column(key) for key in argument.keys)
                elif node is not head:  # the model of `update(Trip)`
                    yield None
        parent = parents.get(node)
        is_chained = isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node)
        if parent is None or not is_chained:
            return
        node = parent


def _column(key: ast.expr | None) -> str | None:
    if isinstance(key, ast.Constant):
        return str(key.value)
    return key.attr if isinstance(key, ast.Attribute) else None
