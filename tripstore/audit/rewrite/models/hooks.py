"""What happens besides when objects of a model are loaded or changed: mappers, validators, events."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.names import words
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
        "order_by",
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
    "after_attach",
    "set",
    "append",
    "remove",
    "pending_",
    "persistent_",
    "deleted_",
    "modified",
    "bulk_replace",
    "transient_",
    "after_configured",
    "before_configured",
    "mapper_configured",
    "before_mapper_configured",
    "instrument_class",
)
#: Events of sessions and queries alone: those of all objects, whatever name the session has in the code.
_EVENTS_OF_ALL = (
    "do_orm_execute",
    "before_compile",
    "loaded_as_persistent",
    "before_flush",
    "after_flush",
    "before_commit",
    "after_bulk",
    "before_attach",
    "after_attach",
    "pending_",
    "persistent_",
    "transient_",
)
#: Events of engines, pools and DDL, which neither load nor change a row.
_OTHER_EVENTS = words(
    "connect first_connect do_connect engine_connect set_engine_execution_options checkout checkin invalidate "
    "soft_invalidate close close_detached detach reset handle_error begin commit rollback savepoint "
    "before_cursor_execute after_cursor_execute before_execute after_execute before_create after_create before_drop "
    "after_drop before_parent_attach after_parent_attach column_reflect after_transaction_create after_transaction_end"
)
#: Methods that make an object more than its columns.
_READ_METHODS = frozenset({"__bool__", "__len__", "__getattribute__", "query"})
_WRITE_METHODS = frozenset({"__setattr__"})
_READ_HOOKS = frozenset({"reconstructor", "listens_for"})
_WRITE_HOOKS = frozenset({"validates", "observes", "aggregated", "generates"})


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
        elif isinstance(each, ast.Name) and each.id == ("__versioned__" if of_writes else "query_class"):
            found.append(each.id)
    return tuple(dict.fromkeys(found))


def heard(listens: Iterable[Listening], names: Collection[str], *, of_writes: bool) -> Iterator[str]:
    """Events that code hears when objects of a model are loaded, or changed. `names` are the model's and its bases'."""
    folded = {name.lower() for name in names}
    for each in listens:
        if each.event in _OTHER_EVENTS:
            continue
        parts = each.target.lower().split(".")
        is_write = each.event is not None and each.event.startswith(_WRITE_EVENTS)
        is_of_all = each.event is not None and each.event.startswith(_EVENTS_OF_ALL)
        is_mine = is_of_all or folded & set(parts) or parts[-1] in _LISTENED or _is_any(each.target)
        if is_write is of_writes and is_mine:
            yield f"events of {each.target}"


def _is_any(target: str) -> bool:
    """Whether a target may be any model: `cls`, `*arguments`, a name that a loop gives; classes have capitals."""
    return not any(part[:1].isupper() for part in target.split(".")) and "engine" not in target.lower()
