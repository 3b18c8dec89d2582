"""Which keys a dict has that code makes: `{"n": 1} | fiction.note(1)`. All of them are known, or it is `NotCertain`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from tripstore.audit.meaning.bindings import Assigned
from tripstore.audit.meaning.denoting import Denoting
from tripstore.audit.meaning.values import AuditedFunction, Scope
from tripstore.audit.rewrite.called import called, is_builtin
from tripstore.audit.rewrite.verdicts import NotCertain

_STEPS_MAX = 8


def _unknown(node: ast.expr) -> NotCertain:
    return NotCertain(
        f"which columns `{ast.unparse(node)[:40]}` has is known at run time only", "name them where they are written"
    )


@dataclass(frozen=True)
class DictKeys:
    """Reads expressions in one scope of a function."""

    denoting: Denoting
    defined: Callable[[str], int]  #: How many functions of a name the code base has.
    scope: Scope
    function: ast.AST
    steps: int = 0

    def of(self, node: ast.expr) -> frozenset[str]:
        """The keys of the dict that an expression is."""
        if self.steps > _STEPS_MAX:
            raise _unknown(node)
        match node:
            case ast.Dict(keys=keys, values=values):
                every = [self._of_pair(key, value) for key, value in zip(keys, values, strict=True)]
                return frozenset[str]().union(*every)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self.of(left) | self.of(right)
            case ast.Call(func=ast.Name(id="dict"), args=[]) if is_builtin("dict", self.scope):
                return self.of_keywords(node)
            case ast.Call():
                return self._of_call(node)
            case ast.Name(id=name):
                return self._of_name(name, node)
        raise _unknown(node)

    def of_keywords(self, call: ast.Call) -> frozenset[str]:
        """`Note(n=1, **row)`"""
        every = [frozenset({word.arg}) if word.arg is not None else self.of(word.value) for word in call.keywords]
        return frozenset[str]().union(*every)

    def _of_pair(self, key: ast.expr | None, value: ast.expr) -> frozenset[str]:
        if key is None:
            return self.of(value)
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return frozenset({key.value})
        raise _unknown(key)

    def _of_call(self, node: ast.Call) -> frozenset[str]:
        """Of a function of the code base: each of its answers has the same keys, and no other class has its name."""
        is_name = isinstance(node.func, ast.Name)
        found = called(node, self.denoting, self.scope) if is_name else self.denoting.value(node.func, self.scope)
        answers = found.answers if isinstance(found, AuditedFunction) else []
        if not isinstance(found, AuditedFunction) or not answers or not self._is_alone(found):
            raise _unknown(node)
        inside = DictKeys(self.denoting, self.defined, found.inner(), found.function, self.steps + 1)
        every = {inside.of(each) for each in answers}
        if len(every) != 1:
            raise _unknown(node)
        return every.pop()

    def _is_alone(self, found: AuditedFunction) -> bool:
        """Whether nothing else may be called there: no wrapper, and no other function of this name anywhere."""
        function = found.function
        inner = [each for each in ast.walk(function) if isinstance(each, ast.Yield | ast.YieldFrom)]
        bare = [each for each in ast.walk(function) if isinstance(each, ast.Return) and each.value is None]
        is_plain = isinstance(function, ast.FunctionDef) and not function.decorator_list
        ends = isinstance(function.body[-1], ast.Return)
        return is_plain and ends and not inner and not bare and self.defined(function.name) == 1

    def _of_name(self, name: str, node: ast.expr) -> frozenset[str]:
        """A name that is given once, and used here alone: nothing has changed it since."""
        bound = self.scope.bindings.names.get(name, [])
        named = [each for each in ast.walk(self.function) if isinstance(each, ast.Name) and each.id == name]
        is_plain = sorted(type(each.ctx).__name__ for each in named) == ["Load", "Store"]
        match bound:
            case [Assigned(value=value, is_element=False, is_annotation=False)] if (
                is_plain and name not in self.scope.bindings.outer
            ):
                return self.of(value)
        raise _unknown(node)
