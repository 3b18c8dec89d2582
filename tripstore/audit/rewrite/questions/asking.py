"""Expressions that only ask whether there is a row, and functions that pass it on."""

from __future__ import annotations

import ast

from tripstore.audit.meaning.bindings import Method
from tripstore.audit.names import words

_COLLECTING = words("list set tuple sorted frozenset sum max min any all")


def is_asked_only(parent: ast.AST | None, node: ast.expr) -> bool:
    """`if session.get(Trip, 7) is None`; or `….one()` alone, which raises where there is none."""
    if isinstance(parent, ast.Expr):
        return True
    if isinstance(parent, ast.Compare) and parent.left is node and len(parent.ops) == 1:
        other = parent.comparators[0]
        return isinstance(parent.ops[0], ast.Is | ast.IsNot) and isinstance(other, ast.Constant) and other.value is None
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.Not)
    return isinstance(parent, ast.If | ast.While | ast.Assert) and parent.test is node


def is_counted(parent: ast.AST | None, node: ast.expr) -> bool:
    """`len(…)`"""
    return (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id == "len"
        and parent.args == [node]
    )


def is_gone_through(parent: ast.AST | None, node: ast.expr) -> bool:
    """`for fare in …`, `list(…)`: all that it brings is read at once, and nothing else is asked of it."""
    if isinstance(parent, ast.For | ast.comprehension):
        return parent.iter is node
    is_call = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.args == [node]
    return is_call and isinstance(parent, ast.Call) and ast.unparse(parent.func) in _COLLECTING


def is_passing(function: Method) -> bool:
    """Whether a function returns the one thing that it is given, and asks nothing of it but whether it is None."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    if (
        len(arguments) != 1
        or function.args.kwonlyargs
        or function.decorator_list
        or function.args.vararg
        or function.args.kwarg
    ):
        return False
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == arguments[0].arg]
    returned = [node for node in names if isinstance(parents[node], ast.Return)]
    rest = [node for node in names if node not in returned]
    answers = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    is_async = isinstance(function, ast.AsyncFunctionDef)
    return (
        not is_async and len(answers) == len(returned) > 0 and all(is_asked_only(parents[node], node) for node in rest)
    )


def is_setting(function: Method) -> bool:
    """Whether a function sets what a dict says, and does nothing else: `for name, value in row.items(): setattr(…)`."""
    body = [each for each in function.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    others = (function.args.kwonlyargs, function.args.vararg, function.args.kwarg, function.decorator_list)
    if isinstance(function, ast.AsyncFunctionDef) or len(names) != 2 or len(body) != 1 or any(others):
        return False
    loop = body[0]
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=key), ast.Name(id=value)]),
            body=[ast.Expr(value=ast.Call(func=ast.Name(id="setattr")) as call)],
            orelse=[],
        ):
            is_items = ast.unparse(loop.iter) == f"{names[1]}.items()"
            return is_items and ast.unparse(call) == f"setattr({names[0]}, {key}, {value})" and key != value
    return False


#: A function that answers the first value of the first row that a statement brings, or None.
_FETCHING = """
{cursor}.execute({statement}, {values})
{row} = {cursor}.fetchone()
return {row}[0] if {row} else None
"""


def is_fetching(function: Method) -> bool:
    """`fetch_value(cursor, "SELECT …", (…))`"""
    body = [each for each in function.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    others = (function.args.kwonlyargs, function.args.vararg, function.args.kwarg, function.decorator_list)
    if isinstance(function, ast.AsyncFunctionDef) or len(names) != 3 or len(body) != 3 or any(others):
        return False
    row = body[1].targets[0] if isinstance(body[1], ast.Assign) else None
    parts = dict(zip(("cursor", "statement", "values"), names, strict=True))
    said = _FETCHING.format(row=row.id if isinstance(row, ast.Name) else "row", **parts).strip()
    return "\n".join(map(ast.unparse, body)) == said
