"""SQL in a text as data: an UPDATE, a DELETE or a SELECT of one row by its key, or why it is none."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tripstore.audit.preflight.grammar import TreeNode, UnreadableStatement, parsed
from tripstore.audit.rewrite.verdicts import NotCertain

_COMPUTED = ("Postgres computes a value", "read first, compute in Python, then change by the key")
_PLACEHOLDER = re.compile(r"%s|%\((\w+)\)s|(?<!:):([A-Za-z_]\w*)")
#: What a SELECT says where it says nothing.
_PLAIN = ("_DEFAULT", "SETOP_NONE")
_LITERAL = re.compile(r"'(?:[^']|'')*'")


@dataclass(frozen=True, slots=True)
class SqlValue:
    """A placeholder, by its number or name, or a constant as Python writes it."""

    placeholder: int | str | None
    constant: str = ""
    operator: str = ""  #: With which it is added to the value that the column has: `reads + 1`, `text || '!'`.


@dataclass(frozen=True, slots=True)
class SqlChange:
    """UPDATE table SET column = value … WHERE column = value AND …; or DELETE FROM table WHERE …"""

    schema: str | None
    table: str
    changes: tuple[tuple[str, SqlValue], ...]
    keys: tuple[tuple[str, SqlValue], ...]
    is_delete: bool = False


@dataclass(frozen=True, slots=True)
class SqlSelect:
    """SELECT column, … FROM table WHERE column = value AND …"""

    schema: str | None
    table: str
    columns: tuple[str, ...]
    keys: tuple[tuple[str, SqlValue], ...]


@dataclass(frozen=True, slots=True)
class SqlLast:
    """SELECT max(column) FROM table WHERE column = value; with coalesce, a number where there is no row."""

    schema: str | None
    table: str
    column: str
    default: int | None
    keys: tuple[tuple[str, SqlValue], ...]


def sql_last(text: str) -> SqlLast | None:
    """The last number that a text asks for; None: it asks for something else."""
    node, names = statement_of(text)
    tables, where, values = node.every("fromClause"), node.find("whereClause"), node.every("targetList")
    if not _is_plain_select(node) or where is None or len(values) != 1 or len(tables) != 1:
        return None
    value, default = values[0].find("val"), None
    if value is not None and value.kind == "CoalesceExpr" and len(value.every("args")) == 2:
        value, other = value.every("args")
        number = other.find("ival") if other.kind == "A_Const" and not other.has("isnull") else None
        if number is None:
            return None
        default = number.number("ival")
    column = _maximum(value)
    if column is None or tables[0].kind != "RangeVar":
        return None
    name = tables[0].relation
    return SqlLast(name.schema, name.name, column, default, tuple(_keys(where, names)))


def _is_plain_select(node: TreeNode) -> bool:
    asked = {name for name, value in node.fields.items() if value and not str(value).endswith(_PLAIN)}
    return node.kind == "SelectStmt" and asked == {"targetList", "fromClause", "whereClause"}


def _maximum(node: TreeNode | None) -> str | None:
    """The column of `max(n)`."""
    if node is None or node.kind != "FuncCall" or node.strings("funcname") not in (["max"], ["pg_catalog", "max"]):
        return None
    arguments = node.every("args")
    is_more = any(node.has(name) for name in ("agg_filter", "over", "agg_order", "agg_distinct"))
    if is_more or len(arguments) != 1 or arguments[0].kind != "ColumnRef":
        return None
    return next(iter(arguments[0].strings("fields")[-1:]), None)


def sql_change(text: str) -> SqlChange:
    """The change that a text makes, or `NotCertain`."""
    return _change(*statement_of(text))


def sql_select(text: str) -> SqlSelect | None:
    """Columns of one table by conditions that are equal; None: it is no SELECT, or asks for more."""
    node, names = statement_of(text)
    tables, where = node.every("fromClause"), node.find("whereClause")
    if not _is_plain_select(node) or where is None:
        return None
    values = [each.find("val") for each in node.every("targetList")]
    columns = [each.strings("fields")[-1:] for each in values if each is not None and each.kind == "ColumnRef"]
    if len(tables) != 1 or tables[0].kind != "RangeVar" or len(columns) != len(values) or not all(columns):
        return None
    name = tables[0].relation
    return SqlSelect(name.schema, name.name, tuple(each[0] for each in columns), tuple(_keys(where, names)))


def statement_of(text: str) -> tuple[TreeNode, list[int | str]]:
    plain, names = _numbered(text)
    try:
        statements = parsed(plain)
    except UnreadableStatement as error:
        raise NotCertain(f"this SQL does not parse: {error}", "rewrite it by hand") from None
    if len(statements) != 1:
        raise NotCertain("there is more than one statement in it", "rewrite each by hand")
    return statements[0], names


def _numbered(text: str) -> tuple[str, list[int | str]]:
    """Placeholders as Postgres numbers them, and what the driver calls each."""
    if any(_PLACEHOLDER.search(each) for each in _LITERAL.findall(text)):
        raise NotCertain("there is a placeholder in a text", "rewrite it by hand")
    names: list[int | str] = []

    def numbered(found: re.Match[str]) -> str:
        names.append(found[1] or found[2] or sum(isinstance(each, int) for each in names))
        return f"${len(names)}"

    return _PLACEHOLDER.sub(numbered, text).replace("%%", "%"), names


def _change(node: TreeNode, names: list[int | str]) -> SqlChange:
    if node.kind not in ("UpdateStmt", "DeleteStmt"):
        raise NotCertain(*(_REASONS.get(node.kind) or _reason_of_select(node)))
    others = node.every("fromClause") or node.every("usingClause") or node.every("returningList")
    if others or node.find("withClause") is not None:
        raise NotCertain("it takes values from other tables, or answers rows", "read first, then change by the key")
    relation = node.find("relation")
    where = node.find("whereClause")
    if relation is None or where is None:
        raise NotCertain("it changes every row", "a job that goes through store.scan_rows")
    changes = tuple((each.text("name"), _changed(each, names)) for each in node.every("targetList"))
    if any(each.every("indirection") for each in node.every("targetList")):
        raise NotCertain("it changes a part of a value", "read first, then change by the key")
    name, is_delete = relation.relation, node.kind == "DeleteStmt"
    return SqlChange(name.schema, name.name, changes, tuple(_keys(where, names)), is_delete)


def _changed(target: TreeNode, names: list[int | str]) -> SqlValue:
    """What a column gets; `reads + 1` and `text || '!'` if it is the same column."""
    value = target.find("val")
    if value is None or value.kind != "A_Expr" or value.text("kind") != "AEXPR_OP":
        return value_of(value, names)
    left, operator = value.find("lexpr"), value.strings("name")
    is_own = left is not None and left.kind == "ColumnRef" and left.strings("fields")[-1:] == [target.text("name")]
    if not is_own or operator not in (["+"], ["||"]):
        raise NotCertain(*_COMPUTED)
    return replace(value_of(value.find("rexpr"), names), operator=operator[0])


def _keys(node: TreeNode, names: list[int | str]) -> list[tuple[str, SqlValue]]:
    if node.kind == "BoolExpr" and node.text("boolop") == "AND_EXPR":
        return [pair for each in node.every("args") for pair in _keys(each, names)]
    left, right = node.find("lexpr"), node.find("rexpr")
    is_equal = node.kind == "A_Expr" and node.text("kind") == "AEXPR_OP" and node.strings("name") == ["="]
    if not is_equal or left is None or right is None or left.kind != "ColumnRef":
        raise NotCertain("it is not by the key of one row", "find the rows by an index, and change each")
    return [(left.strings("fields")[-1], value_of(right, names))]


def value_of(node: TreeNode | None, names: list[int | str]) -> SqlValue:
    if node is not None and node.kind == "ParamRef":
        place = node.number("number")
        if not 1 <= place <= len(names):  # `?` and `$1`, which psycopg does not know
            raise NotCertain("its placeholders are none of psycopg's", "say %s, or rewrite it by hand")
        return SqlValue(names[place - 1])
    if node is not None and node.kind == "A_Const":
        if node.has("isnull"):
            return SqlValue(None, "None")
        if (text := node.find("sval")) is not None:
            return SqlValue(None, _quoted(text.text("sval")))
        if (number := node.find("ival")) is not None:
            return SqlValue(None, str(number.number("ival")))
        if (flag := node.find("boolval")) is not None:
            return SqlValue(None, str(flag.has("boolval")))
    raise NotCertain(*_COMPUTED)


def _quoted(text: str) -> str:
    said = repr(text)
    return said if "'" in text or '"' in text else f'"{said[1:-1]}"'


def reason_of_select(text: str) -> tuple[str, str]:
    """Why one that asks for more stays."""
    return _reason_of_select(statement_of(text)[0])


def reason_of_insert() -> tuple[str, str]:
    return _REASONS["InsertStmt"]


_REASONS = {
    "InsertStmt": ("the id and the defaults of a new row come from Postgres", "put a whole body under a new UUID"),
    "MergeStmt": ("MERGE decides row by row in Postgres", "read first, then put each"),
    "CopyStmt": ("COPY writes rows past every store", "put_cells, in batches"),
    "DoStmt": ("a block of PL/pgSQL runs in Postgres", "do it in Python"),
    "PrepareStmt": ("a prepared statement is kept in a session of Postgres", "change by the key"),
    "LockStmt": ("it locks the table; no call of tripstore does", "put with expect_latest"),
}


def _reason_of_select(node: TreeNode) -> tuple[str, str]:
    if node.every("lockingClause"):
        return "it locks rows; no call of tripstore does", "put with expect_latest"
    if any(each.kind == "FuncCall" for each in node.walk()) or node.every("groupClause"):
        return "it is an aggregate or calls functions of Postgres", "keep what it computes in a cell, by a trigger"
    if len(node.every("fromClause")) != 1 or any(each.kind == "JoinExpr" for each in node.every("fromClause")):
        return "it joins tables", "denormalise the field into the body, or ask for each"
    return "its rows come as tuples of a cursor", "ask by the key: latest_of_id(store, id, column)"
