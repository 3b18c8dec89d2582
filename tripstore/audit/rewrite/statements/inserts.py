"""`INSERT INTO notes (trip_id, n, text) VALUES (…)` as data: one row, and what becomes of one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tripstore.audit.preflight.grammar import TreeNode
from tripstore.audit.rewrite.statements.sqltext import SqlValue, reason_of_insert, statement_of, value_of
from tripstore.audit.rewrite.verdicts import NotCertain

_OTHERS = ("returningList", "withClause")


@dataclass(frozen=True, slots=True)
class SqlInsert:
    """One row by column; of SQL that a function makes of a dict, the columns alone."""

    schema: str | None
    table: str
    columns: Mapping[str, SqlValue | None]
    unless_there: bool = False  #: ON CONFLICT DO NOTHING.
    changes: tuple[str, ...] = ()  #: Columns that a row that is there gets of the new one: ON CONFLICT DO UPDATE.
    conflicting: frozenset[str] = field(default_factory=frozenset)  #: The key that a row must have to be there.


def sql_insert(text: str) -> SqlInsert | None:
    """What a text inserts; None: it is no INSERT. `NotCertain` of one that does more."""
    node, names = statement_of(text)
    if node.kind != "InsertStmt":
        return None
    relation, source = node.find("relation"), node.find("selectStmt")
    rows = source.every("valuesLists") if source is not None else []
    columns = [each.text("name") for each in node.every("cols")]
    is_more = any(node.has(each) for each in _OTHERS) or node.text("override") != "OVERRIDING_NOT_SET"
    if relation is None or is_more or len(rows) != 1 or not columns:
        raise NotCertain(*reason_of_insert())
    values = rows[0].every("items")
    if len(values) != len(columns) or len(set(columns)) != len(columns):
        raise NotCertain(*reason_of_insert())
    said = {name: value_of(value, names) for name, value in zip(columns, values, strict=True)}
    name = relation.relation
    return _with_conflict(node.find("onConflictClause"), SqlInsert(name.schema, name.name, said))


def _with_conflict(clause: TreeNode | None, found: SqlInsert) -> SqlInsert:
    if clause is None:
        return found
    target = clause.find("infer")
    elements = target.every("indexElems") if target is not None else []
    key = frozenset(each.text("name") for each in elements)
    if target is None or target.has("whereClause") or clause.has("whereClause") or "" in key or not key:
        raise NotCertain("when a row is there already, Postgres decides", "name the columns of its key")
    changes = tuple(_changed(each) for each in clause.every("targetList"))
    if clause.text("action") == "ONCONFLICT_NOTHING":
        return SqlInsert(found.schema, found.table, found.columns, unless_there=True, conflicting=key)
    return SqlInsert(found.schema, found.table, found.columns, changes=changes, conflicting=key)


def _changed(target: TreeNode) -> str:
    """`amount = EXCLUDED.amount`"""
    value, name = target.find("val"), target.text("name")
    if value is None or value.kind != "ColumnRef" or value.strings("fields") != ["excluded", name]:
        raise NotCertain("Postgres computes a value", "read first, compute in Python, then change by the key")
    return name
