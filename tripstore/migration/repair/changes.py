"""What both directions do to cells of Schemaless where they stand, and to the entries of their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from schemaless_core.cell.cell import ColumnKey
from schemaless_core.errors import Conflict, Invalid, SchemalessError
from schemaless_core.mends import Mends
from tripstore.engines.validation.repair import RepairStep
from tripstore.migration.repair.sides import NoSuchCell


def outcome_of(act: Callable[[], None]) -> SchemalessError | None:
    """What becomes of one: a conflict says that something moved; a server that does not answer is raised."""
    try:
        act()
    except (Conflict, Invalid) as error:
        return error
    return None


def mend(mends: Mends, steps: Sequence[RepairStep]) -> list[SchemalessError | None]:
    found = zip(steps, mends.find_all([step.key for step in steps]), strict=True)
    wrong = {
        step.key: (raw, step.body)
        for step, raw in found
        if raw is not None and step.body is not None and raw.body != step.body
    }
    done = dict(zip(wrong, mends.mend_all(list(wrong.values())), strict=True))
    return [unless(done.pop(step.key, False), step) for step in steps]


def unless(is_done: bool, step: RepairStep) -> NoSuchCell | None:
    return None if is_done else NoSuchCell(f"{step.key} is another cell by now.")


def rebuild(mends: Mends, columns: Collection[ColumnKey], touched: Collection[UUID]) -> None:
    """The entries of rows that repair ever touched, after these columns."""
    if not touched:
        return
    names = defaultdict[UUID, set[str]](set)
    for column in columns:
        names[column.row_key].add(column.column_name)
    for row_key in touched:
        mends.rebuild(row_key, names[row_key])
