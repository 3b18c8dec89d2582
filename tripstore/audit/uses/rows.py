"""What is done to objects of models: an attribute is set, one is saved, a session is given it or fetches it again."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tripstore.audit.findings import Access, UseKind
from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.meaning.heads import REFRESHES, SAVES
from tripstore.audit.meaning.orm import Orm
from tripstore.audit.meaning.values import ModelRows, Value
from tripstore.audit.names import words

#: A session is known by its name: `add` is a method of sets, too.
_SESSION = re.compile(r"(?i)session|^_?db$|_db$|^db_")
_TAKES = words("delete merge setattr bulk_save_objects")
_STATEMENTS = {"update": UseKind.UPDATE, "delete": UseKind.DELETE}

Denoted = Callable[[ast.expr], Value | None]


class RowUse(NamedTuple):
    """Objects, and what a call does to them."""

    rows: ModelRows
    kind: UseKind
    access: Access


def row_uses(call: ast.Call, denoted: Denoted) -> Iterator[RowUse]:
    """`session.delete(trip)`, `session.add(trip)`, `setattr(trip, …)`, `trip.save()`, `query.update(…)`"""
    name = last_name(call.func)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_added = name in ("add", "add_all") and owner is not None and _is_session(owner)
    if call.args and (name in _TAKES or (is_added and not _is_made(call.args[0]))):
        rows = denoted(call.args[0])
        if isinstance(rows, ModelRows) and not rows.is_statement:
            kind = UseKind.BULK if name == "bulk_save_objects" else UseKind.INSTANCE
            yield RowUse(rows, kind, Access.WRITE)
    if name == "refresh" and owner is not None and call.args:
        rows = denoted(call.args[0])
        if isinstance(rows, ModelRows) and not rows.is_statement:
            yield RowUse(rows, UseKind.INSTANCE, Access.READ)
    if owner is not None:
        yield from _of_itself(name, owner, denoted)


def _of_itself(name: str, owner: ast.expr, denoted: Denoted) -> Iterator[RowUse]:
    """A method of the object, or of a query that was begun earlier."""
    if name not in SAVES and name not in REFRESHES and name not in _STATEMENTS and name != "sqlmodel_update":
        return
    rows = denoted(owner)
    if not isinstance(rows, ModelRows):
        return
    if rows.is_statement:
        if name in _STATEMENTS and _begins_with_rows(owner, denoted):
            yield RowUse(rows, _STATEMENTS[name], Access.WRITE)
    elif name == "sqlmodel_update" or (name in SAVES and _saves_itself(rows)):
        yield RowUse(rows, UseKind.INSTANCE, Access.WRITE)
    elif name in REFRESHES and _saves_itself(rows):
        yield RowUse(rows, UseKind.INSTANCE, Access.READ)


def is_column(rows: ModelRows, attribute: str) -> bool:
    """Whether an attribute may be a column of these objects: not if it is a property, which has a setter of its own."""
    return not all(entity.facts is not None and entity.facts.is_property(attribute) for entity in rows.entities)


def _is_session(owner: ast.expr) -> bool:
    return _SESSION.search(last_name(owner.func if isinstance(owner, ast.Call) else owner)) is not None


def _is_made(node: ast.expr) -> bool:
    """`session.add(Trip(…))` is one use: the object is made there."""
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    return all(isinstance(part, ast.Call) for part in parts)


def _begins_with_rows(node: ast.expr, denoted: Denoted) -> bool:
    """Whether a chain begins with a variable that is a query; one that begins with a model is judged there."""
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Attribute) and isinstance(denoted(node), ModelRows) and _is_of_object(node, denoted):
            return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(denoted(node), ModelRows)


def _is_of_object(node: ast.Attribute, denoted: Denoted) -> bool:
    """`self.rows` of an object that is no model itself."""
    owner = denoted(node.value)
    return isinstance(owner, ModelRows) and not any(entity.tables for entity in owner.entities)


def _saves_itself(rows: ModelRows) -> bool:
    return any(entity.orm in (Orm.DJANGO, Orm.PEEWEE) for entity in rows.entities)
