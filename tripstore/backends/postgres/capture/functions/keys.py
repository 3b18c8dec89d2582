"""What must not happen to a row: another key, and where the layout says so, its deletion."""

from __future__ import annotations

from tripstore.backends.postgres.capture.functions.changes import Changes
from tripstore.backends.postgres.capture.functions.function import PINNED, SEEING, Function, plain, refuse
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger
from tripstore.backends.postgres.sqlstates import DELETE_REFUSED, KEY_CHANGED


def refuse_new_keys(changes: Changes) -> str:
    """Row keys are for ever, and so are the ids, parents and numbers that lead to them: no other table would follow."""
    names = ", ".join(changes.keys)
    refused = refuse(
        KEY_CHANGED,
        f"A row of {plain(str(changes.column.table))} may not change {plain(names)}: row keys are for ever.",
        "Delete the row and insert another.",
    )
    return f"  IF {changes.keys_moved} THEN\n    {refused}\n  END IF;\n"


def forbidden(changes: Changes, moved: str = "") -> tuple[Function, RowTrigger]:
    """`on_delete: forbid`."""
    refused = refuse(
        DELETE_REFUSED,
        f"Rows of {plain(str(changes.column.table))} are not deleted.",
        f"The layout says on_delete: forbid of {changes.column.name}.",
    )
    body = f"\nBEGIN\n{moved}  {refused}\nEND\n"
    return changes.function("deleted", body, SEEING if moved else PINNED), changes.after("deleted", "DELETE")
