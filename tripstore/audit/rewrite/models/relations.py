"""`ChildList`: a relationship of a row to its child rows, `trip.notes`, if it is no more than these."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tripstore.audit.meaning.bindings import ClassFacts, keyword, last_name
from tripstore.audit.rewrite.models.attributes import ColumnRole
from tripstore.audit.rewrite.models.hooks import Listening
from tripstore.audit.rewrite.models.models import RewriteModel
from tripstore.audit.rewrite.verdicts import NotCertain
from tripstore.backends.postgres.layout.layout import VERSION_BITS

_BY_HAND = "rewrite it by hand"
#: What a relationship may say without being more than the child rows of a row.
_SAID = frozenset({"back_populates", "cascade", "passive_deletes", "order_by", "lazy", "doc", "info"})
_LISTS = ("select", "selectin", "joined", "subquery", "immediate", True)


@dataclass(frozen=True, slots=True)
class ChildList:
    """The child rows of a row, by number."""

    name: str
    child: RewriteModel
    cascades: frozenset[str]

    def found(self, store: str, row: str) -> str:
        """The call that answers them."""
        return f'rewritten.children_found({store}, {row}, "{self.child.column.name}", bits={VERSION_BITS})'

    def check_inserts(self) -> None:
        self.child.check_writes()
        if "save-update" not in self.cascades:
            raise NotCertain(f"{self.name} does not cascade what is put into it", _BY_HAND)

    def check_removals(self) -> None:
        if "delete-orphan" not in self.cascades:
            raise NotCertain(f"what is taken from {self.name} is not deleted, and has no row then", _BY_HAND)


def child_list(parent: RewriteModel, name: str, child: RewriteModel, listens: Iterable[Listening]) -> ChildList:
    """The relationship of this name, or `NotCertain`."""
    facts = parent.entity.facts if parent.entity is not None else None
    call = facts.calls.get(name) if facts is not None else None
    if facts is None or call is None or name not in facts.relations:
        raise NotCertain(f"what {name} leads to, another class says", _BY_HAND)
    said = facts.relations[name].annotation
    is_list = said is None or _is_list(said)
    if parent.column.is_child or not child.column.is_child or not child.has_versions or not is_list:
        raise NotCertain(f"{name} does not lead to child rows that have versions", "ask for each by its key")
    others = sorted({str(word.arg) for word in call.keywords} - _SAID - {"argument"})
    if others or len(call.args) > 1:
        raise NotCertain(f"the relationship {name} says {', '.join(others) or 'more than its class'}", _BY_HAND)
    _check_lazy(name, call)
    _check_order(name, keyword(call, "order_by"), child)
    _check_hooks(name, parent, child, listens)
    return ChildList(name, child, _cascades(name, call))


def _is_list(annotation: ast.expr) -> bool:
    """`Mapped[list[TripNote]]`"""
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else None
    return isinstance(inner, ast.Subscript) and last_name(inner.value) in ("list", "List")


def _check_lazy(name: str, call: ast.Call) -> None:
    lazy = keyword(call, "lazy")
    if lazy is not None and not (isinstance(lazy, ast.Constant) and lazy.value in _LISTS):
        raise NotCertain(f"{name} is no list: lazy={ast.unparse(lazy)}", _BY_HAND)


def _check_order(name: str, said: ast.expr | None, child: RewriteModel) -> None:
    """By the number of the child rows, or by nothing: then any order is as good."""
    if said is None:
        return
    text = said.value if isinstance(said, ast.Constant) and isinstance(said.value, str) else ast.unparse(said)
    owner, _, attribute = text.rpartition(".")
    known = child.attributes.get(attribute)
    is_own = child.entity is not None and owner in ("", child.entity.name)
    if not is_own or known is None or known.role is not ColumnRole.NUMBER:
        raise NotCertain(f"{name} has an order of its own", "sort in Python")


def _check_hooks(name: str, parent: RewriteModel, child: RewriteModel, listens: Iterable[Listening]) -> None:
    """No code hears what is put into the list, or taken from it, on either side."""
    names = {each.entity.name for each in (parent, child) if each.entity is not None}
    for each in listens:
        owner, _, _attribute = each.target.rpartition(".")
        if owner.rpartition(".")[2] in names:
            raise NotCertain(f"code hears events of {each.target}", _BY_HAND)


def _cascades(name: str, call: ast.Call) -> frozenset[str]:
    said = keyword(call, "cascade")
    if said is None:
        return frozenset({"save-update", "merge"})
    if not (isinstance(said, ast.Constant) and isinstance(said.value, str)):
        raise NotCertain(f"how {name} cascades cannot be told", "say it as a text")
    words = {word.strip() for word in said.value.split(",")}
    return frozenset(words | ({"save-update", "merge", "delete"} if "all" in words else set()))


def check_made(child: RewriteModel, facts: Iterable[ClassFacts]) -> None:
    """A constructor that does no more than to set columns, and no value of Python's that comes by itself."""
    for each in facts:
        strange = [method.name for method in each.methods if method.name in ("__init__", "__new__", "__post_init__")]
        strange += [last_name(base) for base in each.bases if last_name(base) == "MappedAsDataclass"]
        strange += [f"{name}'s default" for name in _with_defaults(each)]
        if strange:
            raise NotCertain(f"new objects of {each.name} have {strange[0]}", "put the whole body")
    child.check_writes()


def _with_defaults(facts: ClassFacts) -> Iterator[str]:
    for name in facts.columns:
        if any(
            word.arg in ("default", "insert_default", "default_factory", "init") for word in facts.calls[name].keywords
        ):
            yield name


def comes_by_itself(facts: ClassFacts, name: str) -> bool:
    """Whether Postgres gives a column a value that is not said: `server_default`, `Identity()`, `Computed(…)`."""
    call = facts.calls.get(name)
    parts = [] if call is None else [*call.args, *(word.value for word in call.keywords)]
    is_made = any(
        last_name(part.func) in ("Identity", "Computed", "Sequence") for part in parts if isinstance(part, ast.Call)
    )
    return is_made or (call is not None and any(word.arg == "server_default" for word in call.keywords))
