"""A function of the same file that does no more than to ask for a row: `_trip(session, 7)` is what it returns.

def _trip(session, trip_id):
    return present(session.get(Trip, trip_id))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tripstore.audit.meaning.denoting import Denoting
from tripstore.audit.meaning.values import Scope
from tripstore.audit.rewrite.called import called
from tripstore.audit.rewrite.questions.asking import is_passing


@dataclass(frozen=True)
class InlinedCall:
    """The question in it, with the values of the call in place of the parameters, and what passes its answer on."""

    question: ast.Call
    passing: tuple[str, ...]  #: The outermost first.

    def around(self, text: str) -> str:
        return "".join(f"{name}(" for name in self.passing) + text + ")" * len(self.passing)


def inlined(node: ast.Call, denoting: Denoting, scope: Scope) -> InlinedCall | None:
    """What a call is, if its function can stand for it in any place; None of all others."""
    found = called(node, denoting, scope)
    if found is None or found.scope.file != scope.file or found.scope.parent is not None:
        return None
    returned, given = _returned(found.function), _given(node, found.function)
    if returned is None or given is None:
        return None
    passing: list[str] = []
    while (name := _passing(returned, denoting, found.scope)) is not None:
        passing.append(name)
        inner = returned.args[0]
        if not isinstance(inner, ast.Call):
            return None
        returned = inner
    return _substituted(returned, given, passing, scope)


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.Call | None:
    """The call that a function returns, if it does nothing else."""
    body = [each for each in function.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    if isinstance(function, ast.AsyncFunctionDef) or function.decorator_list or len(body) != 1:
        return None
    value = body[0].value if isinstance(body[0], ast.Return) else None
    return value if isinstance(value, ast.Call) else None


def _given(node: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr] | None:
    """Values by parameter, each given by its place."""
    said = function.args
    names = [each.arg for each in (*said.posonlyargs, *said.args)]
    is_plain = not (said.kwonlyargs or said.vararg or said.kwarg or said.defaults or node.keywords)
    if not is_plain or len(names) != len(node.args) or any(isinstance(each, ast.Starred) for each in node.args):
        return None
    return dict(zip(names, node.args, strict=True))


def _passing(node: ast.Call, denoting: Denoting, scope: Scope) -> str | None:
    """The name of a function that returns what it is given, or raises."""
    if not isinstance(node.func, ast.Name) or len(node.args) != 1 or node.keywords:
        return None
    found = called(node, denoting, scope)
    return node.func.id if found is not None and is_passing(found.function) else None


def _substituted(
    question: ast.Call, given: dict[str, ast.expr], passing: list[str], scope: Scope
) -> InlinedCall | None:
    """`session.get(Trip, trip_id)`: a session and the values of a key are parameters, the model is no other here."""
    match question:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=session), attr="get"), args=[ast.Name() as model, key]) if (
            session in given and not question.keywords
        ):
            keys = list(key.elts) if isinstance(key, ast.Tuple) else [key]
            used = [session, *(each.id for each in keys if isinstance(each, ast.Name))]
            is_known = len(used) == 1 + len(keys) and all(name in given for name in used)
            hidden = [name for name in (model.id, *passing) if name in given or name in _own_names(scope)]
            if not is_known or hidden or len(set(used)) != len(used) or not _keeps_order(given, used):
                return None
            values = [given[name] for name in used[1:]]
            value = values[0] if not isinstance(key, ast.Tuple) else ast.Tuple(values, ast.Load())
            asked = ast.Call(ast.Attribute(given[session], "get", ast.Load()), [model, value], [])
            return InlinedCall(ast.copy_location(asked, question), tuple(passing))
    return None


def _own_names(scope: Scope) -> Iterator[str]:
    """The names that a function has for itself."""
    if scope.parent is not None:
        yield from scope.bindings.names


def _keeps_order(given: dict[str, ast.expr], used: list[str]) -> bool:
    """What is computed at all is computed once, and in the order of the call."""
    computed = [name for name, value in given.items() if not isinstance(value, ast.Name | ast.Constant)]
    return all(name in used for name in computed) and computed == [name for name in used if name in computed]
