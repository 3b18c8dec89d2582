"""Objects of a session that are loaded anew: after a commit, and by an UPDATE. A body stays as it was."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from tripstore.audit.names import words
from tripstore.audit.rewrite.regions import BlamedUse
from tripstore.audit.rewrite.rows import RowName
from tripstore.audit.rewrite.verdicts import NotCertain
from tripstore.backends.postgres.layout.layout import FieldType

#: Calls after which a session loads its objects again.
_RENEWING = words("commit rollback expire expire_all refresh")
Parents = Callable[[ast.AST], ast.AST | None]


def check_renewed(rows: Iterable[RowName], renewing: Sequence[ast.AST], parents: Parents) -> None:
    """No attribute of a row is read after what renews it, or in one loop with it."""
    for row in rows:
        for read, _text in row.reads:
            for node in renewing:
                if ends_before(node, read) or is_in_loop_of(node, read, parents):
                    why = f"after `{ast.unparse(node)[:40]}` {row.name} is loaded anew"
                    raise BlamedUse(read, NotCertain(why, "take what you need of it into names before"))


def check_read_once(row: RowName, read: ast.Attribute, parents: Parents) -> None:
    """A list of values is read once: what is changed in it, an object of a model would show the next time."""
    known = row.model.attributes.get(read.attr)
    if known is None or known.field is None or known.field.kind is not FieldType.ARRAY:
        return
    reads = [each for each, _text in row.reads if each.attr == read.attr]
    loops = [each for each in _around(read, parents) if isinstance(each, ast.For | ast.While | ast.comprehension)]
    inner = [each for each in loops if isinstance(each, ast.While) or ast.unparse(each.target) != row.name]
    if len(reads) > 1 or inner:
        raise NotCertain(f"{row.name}.{read.attr} is a list, and read more than once", "give it a name, and read that")


def renews(node: ast.expr) -> bool:
    """`session.commit()`"""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _RENEWING


def ends_before(statement: ast.AST, node: ast.expr) -> bool:
    end = getattr(statement, "end_lineno", 0), getattr(statement, "end_col_offset", 0)
    return end <= (node.lineno, node.col_offset)


def is_in_loop_of(node: ast.AST, other: ast.AST, parents: Parents) -> bool:
    loops = {each for each in _around(node, parents) if isinstance(each, ast.For | ast.While)}
    return any(each in loops for each in _around(other, parents))


def _around(node: ast.AST, parents: Parents) -> list[ast.AST]:
    found = []
    above = parents(node)
    while above is not None and not isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
        found.append(above)
        above = parents(above)
    return found
