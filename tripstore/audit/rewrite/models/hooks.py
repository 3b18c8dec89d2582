"""What happens besides when objects of a model are loaded or changed: mappers, validators, events."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.rewrite.models.attributes import callee

#: Of mappers that read or write more than the columns that are assigned.
_MAPPER_ARGUMENTS = frozenset(
    {
        "polymorphic_on",
        "polymorphic_identity",
        "version_id_col",
        "eager_defaults",
        "include_properties",
        "exclude_properties",
    }
)
#: Whose events may be those of every model.
_LISTENED = (
    "session",
    "mapper",
    "base",
    "scoped_session",
    "sessionmaker",
    "query_class",
    "with_loader_criteria",
    "query",
)
#: Events that reads do not cause.
_WRITE_EVENTS = (
    "before_flush",
    "before_insert",
    "before_update",
    "before_delete",
    "before_commit",
    "before_attach",
    "after_flush",
    "after_insert",
    "after_update",
    "after_delete",
    "after_commit",
    "after_bulk",
    "after_soft",
    "after_rollback",
    "after_begin",
    "after_transaction",
    "after_attach",
    "set",
    "append",
    "remove",
    "pending_",
    "persistent_",
    "deleted_",
    "connect",
    "checkout",
    "modified",
    "bulk_replace",
    "transient_",
    "after_configured",
    "after_create",
)
#: Methods that make an object more than its columns.
_READ_METHODS = frozenset({"__bool__", "__len__", "__getattribute__"})
_WRITE_METHODS = frozenset({"__setattr__"})
_READ_HOOKS = frozenset({"reconstructor", "listens_for"})
_WRITE_HOOKS = frozenset({"validates"})


@dataclass(frozen=True, slots=True)
class Listening:
    """`event.listens_for(Trip, "load")`; an option that changes all queries has no event."""

    target: str
    event: str | None


def hooks(node: ast.ClassDef, *, of_writes: bool) -> tuple[str, ...]:
    """What the class does besides when its objects are loaded, or when they are changed."""
    methods = _WRITE_METHODS if of_writes else _READ_METHODS
    found = [each.name for each in node.body if isinstance(each, ast.FunctionDef) and each.name in methods]
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef) and of_writes:
            found += [name for part in each.decorator_list if (name := last_name(callee(part))) in _WRITE_HOOKS]
        elif isinstance(each, ast.FunctionDef):
            found += [name for part in each.decorator_list if (name := last_name(callee(part))) in _READ_HOOKS]
        elif isinstance(each, ast.Constant) and each.value in _MAPPER_ARGUMENTS and not of_writes:
            found.append(str(each.value))
        elif isinstance(each, ast.keyword) and of_writes and each.arg in ("onupdate", "server_onupdate"):
            found.append(str(each.arg))
        elif isinstance(each, ast.Name) and each.id == "query_class" and not of_writes:
            found.append(each.id)
    return tuple(dict.fromkeys(found))


def heard(listens: Iterable[Listening], name: str, *, of_writes: bool) -> Iterator[str]:
    """Events that code hears when objects of a model are loaded, or changed."""
    for each in listens:
        last = each.target.rpartition(".")[2].lower()
        is_write = each.event is not None and each.event.startswith(_WRITE_EVENTS)
        if is_write is of_writes and last in (name.lower(), *_LISTENED):
            yield f"events of {each.target}"
