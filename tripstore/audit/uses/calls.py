"""Calls that take the name of a table as a text: foreign keys, schema changes by alembic, COPY by drivers, pandas."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tripstore.audit.findings import Access, UseKind
from tripstore.audit.meaning.bindings import keyword, last_name
from tripstore.audit.names import LegacyTable, LegacyTables, words


class TableCall(NamedTuple):
    """A use by such a call, and the argument that names the table."""

    node: ast.expr
    table: LegacyTable
    kind: UseKind
    access: Access


class _Form(NamedTuple):
    """Where a call takes the name, and what it is without a list of columns and with one."""

    position: int
    names: tuple[str, ...]
    without: UseKind
    with_columns: UseKind
    access: Access


_COPY = (UseKind.SQL_COPY_WITHOUT_COLUMNS, UseKind.SQL_COPY)
_FORMS = {
    "copy_from": _Form(1, ("table",), *_COPY, Access.WRITE),
    "copy_to": _Form(1, ("table",), *_COPY, Access.READ),
    "copy_records_to_table": _Form(0, ("table_name",), *_COPY, Access.WRITE),
    "copy_to_table": _Form(0, ("table_name",), *_COPY, Access.WRITE),
    "copy_from_table": _Form(0, ("table_name",), *_COPY, Access.READ),
    "read_sql_table": _Form(0, ("table_name",), UseKind.SQL_SELECT_STAR, UseKind.SQL_SELECT, Access.READ),
    "to_sql": _Form(0, ("name",), UseKind.SQL_INSERT, UseKind.SQL_INSERT, Access.WRITE),
}
_ALEMBIC = frozenset({"op", "batch_op"})
#: Texts of these are SQL, which is read as such.
_ALEMBIC_SQL = frozenset({"execute", "f", "get_bind"})
#: Calls whose texts are SQL, whatever they look like.
EXECUTE = words(
    "execute executemany exec_driver_sql execute_values execute_batch mogrify copy_expert fetch fetchrow "
    "fetchval raw RawSQL execute_sql read_sql read_sql_query prepare callproc text SQL DDL scalar scalars"
)


def table_calls(call: ast.Call, tables: LegacyTables, known: Callable[[ast.expr], str | None]) -> Iterator[TableCall]:
    """Yield what a call says by names of tables; `known` is the text of an argument, if it can be known."""
    name = last_name(call.func)
    if name in ("ForeignKey", "ForeignKeyConstraint"):
        yield from _foreign_keys(call, tables, known)
    elif name == "Field" and (foreign := keyword(call, "foreign_key")) is not None:
        yield from _foreign_key(foreign, tables, known)  # SQLModel
    elif name in _FORMS:
        yield from _form(call, _FORMS[name], tables, known)
    elif isinstance(call.func, ast.Attribute) and last_name(call.func.value) in _ALEMBIC and name not in _ALEMBIC_SQL:
        for argument in (*call.args, *(word.value for word in call.keywords)):
            text = known(argument)
            schema = keyword(call, "schema")
            table = tables.find(known(schema) if schema is not None else None, text) if text else None
            if table is not None:
                yield TableCall(argument, table, UseKind.SCHEMA, Access.WRITE)


def _foreign_keys(call: ast.Call, tables: LegacyTables, known: Callable[[ast.expr], str | None]) -> Iterator[TableCall]:
    for argument in call.args:
        for part in argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]:
            yield from _foreign_key(part, tables, known)


def _foreign_key(node: ast.expr, tables: LegacyTables, known: Callable[[ast.expr], str | None]) -> Iterator[TableCall]:
    names = (known(node) or "").split(".")
    schema = names[-3] if len(names) > 2 else None
    table = tables.find(schema, names[-2]) if len(names) > 1 else None
    if table is not None:
        yield TableCall(node, table, UseKind.FOREIGN_KEY, Access.READ)


def _form(
    call: ast.Call, form: _Form, tables: LegacyTables, known: Callable[[ast.expr], str | None]
) -> Iterator[TableCall]:
    named = next(filter(None, (keyword(call, name) for name in form.names)), None)
    argument = call.args[form.position] if len(call.args) > form.position else named
    text = known(argument) if argument is not None else None
    if argument is None or text is None:
        return
    schema = keyword(call, "schema_name") or keyword(call, "schema")
    given = known(schema) if schema is not None else None
    first, _, last = text.rpartition(".")
    table = tables.find(given or first or None, last)
    if table is not None:
        kind = form.with_columns if keyword(call, "columns") is not None else form.without
        yield TableCall(argument, table, kind, form.access)
