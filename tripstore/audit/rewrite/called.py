"""The functions of a code base that a rewrite may look through."""

from __future__ import annotations

import ast

from tripstore.audit.meaning.denoting import Denoting
from tripstore.audit.meaning.values import AuditedFunction, Scope


def called(node: ast.Call, denoting: Denoting, scope: Scope) -> AuditedFunction | None:
    """The function of the code base that a call is of, if its name is given once, here and where it is defined."""
    found = denoting.value(node.func, scope) if isinstance(node.func, ast.Name) else None
    if not isinstance(found, AuditedFunction) or not isinstance(node.func, ast.Name):
        return None
    named = [each.bindings.names.get(node.func.id, []) for each in scope.outwards()]
    defined = found.scope.bindings.names.get(found.function.name, [])
    return found if len(defined) == 1 and next((len(each) for each in named if each), 0) == 1 else None


def is_builtin(name: str, scope: Scope) -> bool:
    """Whether nothing in the code gives this name to something else."""
    return not any(name in each.bindings.names for each in scope.outwards())
