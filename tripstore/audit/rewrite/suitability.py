"""Whether a function is one whose parts may be rewritten at all."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.meaning.denoting import Denoting
from tripstore.audit.meaning.values import Module, Scope
from tripstore.audit.rewrite.regions import BlamedUse, Function
from tripstore.audit.rewrite.verdicts import NotCertain

_BY_HAND = "rewrite it by hand"


def check_suitable(function: Function, denoting: Denoting, scope: Scope) -> None:
    """Raise `BlamedUse` for what no part of a function may have."""
    if isinstance(function, ast.AsyncFunctionDef):
        raise BlamedUse(
            function,
            NotCertain("the function is asynchronous, and tripstore's calls block", "call it in a thread"),
        )
    ours = {part for node in ast.walk(function) if _is_ours(node, denoting, scope) for part in ast.walk(node)}
    for node in ast.walk(function):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
            and node is not function
            and node not in ours
        ):
            raise BlamedUse(node, NotCertain("there is a function inside of this one", "take it out"))
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            raise BlamedUse(node, NotCertain("the function stops in the middle and goes on later", _BY_HAND))
        if any(_is_of_driver(each, denoting, scope) for each in _caught(node)):
            raise BlamedUse(
                node,
                NotCertain(
                    "it catches errors of the driver, which tripstore does not raise",
                    "catch CellConflict and Unavailable",
                ),
            )


def _is_ours(node: ast.AST, denoting: Denoting, scope: Scope) -> bool:
    """Whether a former run wrote a call: what it says of fields may be functions."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    found = denoting.value(node.func.value, scope)
    return isinstance(found, Module) and found.dotted == "tripstore.rewritten"


def _caught(node: ast.AST) -> Sequence[ast.expr]:
    """What names errors that are caught: `except E`, `with suppress(E)`, `@retry(E)`."""
    match node:
        case ast.ExceptHandler(type=ast.expr() as caught):
            return [caught]
        case ast.Call(args=errors) if last_name(node.func) == "suppress":
            return errors
        case ast.FunctionDef(decorator_list=decorators):
            return decorators
    return ()


#: Errors that rewritten calls raise as well.
_RAISED = frozenset({"NoResultFound", "MultipleResultsFound"})


def _is_of_driver(node: ast.expr, denoting: Denoting, scope: Scope) -> bool:
    if last_name(node) in _RAISED:
        return False
    for part in ast.walk(node):
        value = denoting.value(part, scope) if isinstance(part, ast.Name | ast.Attribute) else None
        if isinstance(value, Module) and value.dotted.partition(".")[0] in (
            "sqlalchemy",
            "psycopg2",
            "psycopg",
            "asyncpg",
        ):
            return True
    return False
