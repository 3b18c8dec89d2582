"""`row = cursor.fetchone()` right below `cursor.execute("SELECT …")`: one row as a tuple."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tripstore.audit.names import words
from tripstore.audit.rewrite.verdicts import NotCertain

Fetch = ast.Assign | ast.Return
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
#: What a cursor is asked of the statement before.
_OF_BEFORE = words("fetchone fetchall fetchmany rowcount description statusmessage lastrowid scroll query")


def fetch_of(
    call: ast.Call, function: ast.AST, parents: Callable[[ast.AST], ast.AST | None]
) -> tuple[ast.Expr, Fetch, ast.Call]:
    """The statement of a call, the next one, and the call in it that fetches the row. Nothing else asks the cursor."""
    statement = parents(call)
    handle = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(statement, ast.Expr) or handle is None:
        raise NotCertain("what the statement answers is used", "execute it in a statement of its own, then fetch")
    following = _next(statement, parents)
    fetch = following.value if isinstance(following, Fetch) else None
    if not (isinstance(following, Fetch) and isinstance(fetch, ast.Call) and _asks(fetch.func, handle) == "fetchone"):
        raise NotCertain("its rows come as tuples of a cursor", "fetch one row in the next statement")
    for node in ast.walk(function):
        if node is not fetch.func and _asks(node, handle) in _OF_BEFORE:
            raise NotCertain(f"{ast.unparse(handle)} is asked for rows elsewhere as well", "a cursor for each question")
    return statement, following, fetch


def kept_statement(
    name: ast.Name, function: ast.AST, parents: Callable[[ast.AST], ast.AST | None]
) -> ast.Assign | None:
    """`statement = select(Trip)` right above the one statement that executes it, once: nothing happens in between."""
    outer = [each.names for each in ast.walk(function) if isinstance(each, ast.Global | ast.Nonlocal)]
    if any(name.id in names for names in outer):
        return None
    named = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name.id]
    stored = [each for each in named if not isinstance(each.ctx, ast.Load)]
    above = parents(stored[0]) if len(stored) == 1 and len(named) == 2 else None
    if not isinstance(above, ast.Assign) or above.targets != stored or not isinstance(above.value, ast.Call):
        return None
    user: ast.AST | None = name
    while user is not None and not isinstance(user, ast.stmt):
        inner, user = user, parents(user)
        is_first = isinstance(user, ast.comprehension) and user.iter is inner
        is_first = is_first or (
            isinstance(inner, ast.comprehension) and getattr(user, "generators", [None])[0] is inner
        )
        if isinstance(user, ast.Lambda | ast.IfExp | ast.BoolOp | ast.comprehension | _COMPREHENSIONS) and not is_first:
            return None  # it may be executed more than once, or not at all, or later than other values are made
    is_once = isinstance(user, ast.Expr | ast.Assign | ast.AnnAssign | ast.Return | ast.If | ast.For)
    return above if is_once and _next(above, parents) is user else None


def _asks(node: ast.AST, handle: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) and ast.dump(node.value) == ast.dump(handle) else ""


def _next(statement: ast.stmt, parents: Callable[[ast.AST], ast.AST | None]) -> ast.stmt | None:
    for body in _bodies(parents(statement)):
        if statement in body[:-1]:
            return body[body.index(statement) + 1]
    return None


def _bodies(node: ast.AST | None) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if isinstance(body := getattr(node, name, None), list):
            yield body
