"""The calls that a use of a model begins with, such as `session.query(…)` or `insert(…)`, and what they do to rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tripstore.audit.findings import Kind
from tripstore.audit.names import words

#: Calls that take models or columns, and begin a statement.
STATEMENTS = {
    "query": Kind.QUERY,
    "select": Kind.SELECT,
    "exists": Kind.SELECT,
    "from_statement": Kind.SELECT,
    "insert": Kind.INSERT,
    "update": Kind.UPDATE,
    "delete": Kind.DELETE,
}
#: Calls that bring objects at once.
GETS = frozenset({"get", "get_one"})
BULKS = frozenset({"bulk_insert_mappings", "bulk_update_mappings", "bulk_save_objects", "bulk_insert", "bulk_create"})
WRITES = {"insert": Kind.INSERT, "update": Kind.UPDATE, "delete": Kind.DELETE}
#: Methods that turn a statement into what it brings.
RESULTS = words(
    "all first one one_or_none scalar scalars scalar_one scalar_one_or_none get get_one fetchall fetchone "
    "fetchmany unique partitions mappings yield_per stream tuples first_or_404 get_or_404 one_or_404 "
    "paginate"
)
EXECUTES = words("execute scalars scalar stream stream_scalars exec first all")
#: Functions whose answer holds the objects of their argument.
HOLDERS = words("list sorted next iter set tuple reversed enumerate zip filter frozenset max min cast")
COLLECTION_WRITES = words("append remove extend clear add insert pop discard")


def receivers(call: ast.Call) -> Iterator[ast.Call]:
    """A call and those that it is chained to, from the last back to the first: `select(…).where(…).limit(…)`."""
    node: ast.expr = call
    while isinstance(node, ast.Call):
        yield node
        node = node.func.value if isinstance(node.func, ast.Attribute) else ast.Constant(None)
