"""Why a use stays, and what to do, by what it is, or by the call that no form has."""

from __future__ import annotations

from tripstore.audit.findings import Use, UseKind
from tripstore.audit.rewrite.statements.sqltext import sql_change
from tripstore.audit.rewrite.verdicts import NotCertain

#: SQL that could be rewritten where it is executed.
HANDED_ON = ("this SQL is handed to a function of yours", "let that function call tripstore")


def reason_of(use: Use) -> tuple[str, str]:
    """Of a use that no form fits."""
    if use.statement is not None and use.kind.value.startswith("sql."):
        return reason_of_text(use.statement)
    return _OF_KIND.get(use.kind, ("this form is not known", "rewrite it by hand"))


def reason_of_text(text: str) -> tuple[str, str]:
    """Of SQL that is not executed where it stands."""
    try:
        sql_change(text)
    except NotCertain as why:
        return why.reason, why.advice
    return HANDED_ON


_OF_KIND = {
    UseKind.NEW: ("the id and the defaults of a new row come from Postgres", "put a whole body under a new UUID"),
    UseKind.BULK: (
        "the ids and the defaults of new rows come from Postgres",
        "put_cells with whole bodies under new UUIDs",
    ),
    UseKind.INSERT: ("the id and the defaults of a new row come from Postgres", "put a whole body under a new UUID"),
    UseKind.DELETE: (
        "what else goes with a deleted row only Postgres' foreign keys say",
        "put a tombstone, and see on_tombstone in the layout",
    ),
    UseKind.INSTANCE: (
        "an object that comes from elsewhere is written",
        "change the row by its id: change_of_id(store, id, column, {…})",
    ),
    UseKind.RELATIONSHIP: ("it leads from one object to others", "ask for the others by their key, or by an index"),
    UseKind.REFERENCE: (
        "the model, or a condition, is kept under a name or handed to a function",
        "write the statement where it is executed",
    ),
    **dict.fromkeys(
        (UseKind.SELECT, UseKind.UPDATE, UseKind.QUERY),
        ("the statement is not executed where it is written", "write it where it is executed"),
    ),
    UseKind.NAME: ("the name of the table is handed to a function of yours", "let that function call tripstore"),
    UseKind.SQL_DELETE: (
        "what else goes with a deleted row only Postgres' foreign keys say",
        "put a tombstone, and see on_tombstone in the layout",
    ),
    UseKind.SQL_INSERT: (
        "the id and the defaults of a new row come from Postgres",
        "put a whole body under a new UUID",
    ),
    UseKind.SQL_MERGE: ("MERGE decides row by row in Postgres", "read first, then put each"),
    UseKind.SQL_COPY: ("COPY writes rows past every store", "put_cells, in batches"),
}

#: By the verb of a chain, and by its other links.
OF_VERB = {
    "delete": (
        "what else goes with a deleted row only Postgres' foreign keys say",
        "put a tombstone: store.put_cell(row_key, column, ref_key, None), and see on_tombstone in the layout",
    ),
    "insert": ("the id and the defaults of a new row come from Postgres", "put a whole body under a new UUID"),
}
OF_LINK = {
    "join": ("it joins another table", "denormalise the field into the body, or ask for both"),
    "outerjoin": ("it joins another table", "denormalise the field into the body, or ask for both"),
    "with_for_update": ("it locks the row; no call of tripstore does", "put with expect_latest"),
    "options": ("it loads other objects with it", "ask for each by its own call"),
    "offset": ("an index has no OFFSET", "go on with the cursor of the page before"),
    "group_by": ("it is an aggregate", "keep the sum in a cell, by a trigger"),
    "distinct": ("it is an aggregate", "collect them in Python"),
    "count": ("it is an aggregate", "keep the count in a cell, by a trigger"),
    "returning": ("what the statement answers is used", "ask for the row first"),
}
