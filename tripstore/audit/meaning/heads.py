"""The calls that a use of a model begins with, such as `session.query(…)` or `insert(…)`, and what they do to rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tripstore.audit.findings import UseKind
from tripstore.audit.names import words

#: Calls that take models or columns, and begin a statement.
STATEMENTS = {
    "query": UseKind.QUERY,
    "select": UseKind.SELECT,
    "exists": UseKind.SELECT,
    "from_statement": UseKind.SELECT,
    "insert": UseKind.INSERT,
    "update": UseKind.UPDATE,
    "delete": UseKind.DELETE,
}
#: Calls that bring objects at once.
GETS = frozenset({"get", "get_one", "get_object_or_404", "aget_object_or_404", "get_list_or_404", "aget_list_or_404"})
BULKS = frozenset({"bulk_insert_mappings", "bulk_update_mappings", "bulk_save_objects", "bulk_insert", "bulk_create"})
WRITES = {"insert": UseKind.INSERT, "update": UseKind.UPDATE, "delete": UseKind.DELETE}
#: Methods that turn a statement into what it brings.
RESULTS = words(
    "all first one one_or_none scalar scalars scalar_one scalar_one_or_none get get_one fetchall fetchone "
    "fetchmany unique partitions mappings yield_per stream tuples first_or_404 get_or_404 one_or_404 "
    "paginate"
)
EXECUTES = words("execute scalars scalar stream stream_scalars exec first all")
#: Functions whose answer holds the objects of their argument.
HOLDERS = words(
    "list sorted next iter set tuple reversed enumerate zip filter frozenset max min cast get_object_or_404 "
    "aget_object_or_404 get_list_or_404 aget_list_or_404 aiter anext"
)
COLLECTION_WRITES = words(
    "append remove extend clear add insert pop discard set create get_or_create update_or_create bulk_create "
    "aadd aremove aclear aset acreate"
)
#: What models of Django and Peewee, or their managers, are asked for; everything else of a manager is a query.
ACTIVE_VERBS = {
    **dict.fromkeys(
        words("create acreate get_or_create aget_or_create update_or_create aupdate_or_create"), UseKind.NEW
    ),
    **dict.fromkeys(
        words("bulk_create abulk_create bulk_update abulk_update insert_many insert_from replace_many"), UseKind.BULK
    ),
    **dict.fromkeys(words("insert replace"), UseKind.INSERT),
    **dict.fromkeys(words("update aupdate set_by_id"), UseKind.UPDATE),
    **dict.fromkeys(words("delete adelete delete_by_id"), UseKind.DELETE),
    **dict.fromkeys(words("get aget get_or_none get_by_id in_bulk ain_bulk"), UseKind.GET),
    **dict.fromkeys(words("select filter raw noop"), UseKind.QUERY),
}
ACTIVE_WRITES = frozenset({UseKind.NEW, UseKind.BULK, UseKind.INSERT, UseKind.UPDATE, UseKind.DELETE})
#: Of a query of Django or Peewee, what brings objects.
ACTIVE_RESULTS = words(
    "get aget first afirst last alast create acreate get_or_create aget_or_create update_or_create earliest latest "
    "aearliest alatest iterator aiterator in_bulk get_or_none get_by_id bulk_create peek execute objects"
)
#: Methods by which an object of Django or Peewee writes itself.
SAVES = words("save asave save_base delete adelete delete_instance")
REFRESHES = words("refresh_from_db arefresh_from_db")
MANAGERS = frozenset({"objects", "_default_manager", "_base_manager"})


def receivers(call: ast.Call) -> Iterator[ast.Call]:
    """A call and those that it is chained to, from the last back to the first: `select(…).where(…).limit(…)`."""
    node: ast.expr = call
    while isinstance(node, ast.Call):
        yield node
        node = node.func.value if isinstance(node.func, ast.Attribute) else ast.Constant(None)
