"""What must not happen to a row: another key, and where the layout says so, its deletion."""

from __future__ import annotations

from tripstore.backends.postgres.capture.functions.changes import Changes
from tripstore.backends.postgres.capture.functions.function import PINNED, SEEING, Function, plain, refuse
from tripstore.backends.postgres.capture.functions.triggers import RowTrigger
from tripstore.backends.postgres.sqlstates import DELETE_REFUSED, KEY_CHANGED


def refuse_new_keys(changes: Changes, unless: str = "") -> str:
    """Row keys are for ever, and so are the ids that lead to them: no other table would follow. `unless`: before it."""
    return f"  IF {changes.keys_moved} THEN\n{unless}    {refused_new_keys(changes)}\n  END IF;\n"


def refused_new_keys(changes: Changes) -> str:
    """The statement that refuses."""
    names = ", ".join(changes.keys)
    return refuse(
        KEY_CHANGED,
        f"A row of {plain(str(changes.column.table))} may not change {plain(names)}: row keys are for ever.",
        "Delete the row and insert another.",
    )


def forbidden(changes: Changes, moved: str = "") -> tuple[Function, RowTrigger]:
    """`on_delete: forbid`."""
    refused = refuse(
        DELETE_REFUSED,
        f"Rows of {plain(str(changes.column.table))} are not deleted.",
        f"The layout says on_delete: forbid of {changes.column.name}.",
    )
    body = f"\nBEGIN\n{moved}  {refused}\nEND\n"
    return changes.function("deleted", body, SEEING if moved else PINNED), changes.after("deleted", "DELETE")
