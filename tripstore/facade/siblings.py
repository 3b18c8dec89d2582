"""`Siblings`: whether a parent has another child row with what a constraint allows once for each parent.

All of them stand in the row of the cell, so no index is asked. Equal values are equal in Postgres too; of those that
only Postgres takes for equal nothing is said. Two puts at the same time both find nothing: the later one is parked.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from schemaless_core.store import CellStore
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn
from tripstore.backends.postgres.rules.column_rules import OncePerParent

#: What a parent has beyond these is left to Postgres: the newest versions, of so many rows.
VERSIONS_MAX, ROWS_MAX = 1_000, 200


class Siblings:
    """Of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def find_taken(
        self, store: CellStore, cell: Cell, constraints: Sequence[OncePerParent], before: Sequence[Cell]
    ) -> OncePerParent | None:
        """A constraint that a row beside this one would break. `before`: cells of its row that are put before it."""
        asked = [each for each in constraints if all(_value(cell, field) is not None for field in each.fields)]
        if not asked:
            return None
        assert isinstance(store, Datastore)
        column, primaries = self._layout.columns[cell.column_name], store.using(read="primary")
        try:
            previous = _previous(primaries, column, cell, before)
            asked = [each for each in asked if previous is None or not _meets(cell, previous, each.fields)]
            others = _others(primaries, column, cell, before) if asked else []
        except SchemalessError:  # the put itself asks the same server
            return None
        return next((each for each in asked if any(_meets(cell, other, each.fields) for other in others)), None)


def _previous(store: Datastore, column: MappedColumn, cell: Cell, before: Sequence[Cell]) -> Cell | None:
    """The version of the same row that this one follows: what it had already, it may keep."""
    if column.is_first(cell.ref_key):
        return None
    found = [*before, *store.get_history(cell.row_key, cell.column_name, before=cell.ref_key, limit=1)]
    own, _version = column.split(cell.ref_key)
    versions = [each for each in found if each.ref_key < cell.ref_key and column.split(each.ref_key)[0] == own]
    return max(versions, key=lambda each: each.ref_key, default=None)


def _others(store: Datastore, column: MappedColumn, cell: Cell, before: Sequence[Cell]) -> list[Cell]:
    """The latest of each row beside it."""
    latest: dict[int, CellKey] = {}
    stored = store.get_ref_keys(cell.row_key, cell.column_name, limit=VERSIONS_MAX)
    mine = {each.ref_key: each for each in before}
    own, _version = column.split(cell.ref_key)
    for ref_key in sorted({*stored, *mine}, reverse=True):
        number, _version = column.split(ref_key)
        if number != own and len(latest) < ROWS_MAX:
            latest.setdefault(number, CellKey(cell.row_key, cell.column_name, ref_key))
    keys = [key for key in latest.values() if key.ref_key not in mine]
    found = store.get_cells(keys) if keys else []
    return [mine[key.ref_key] for key in latest.values() if key.ref_key in mine] + [each for each in found if each]


def _meets(cell: Cell, other: Cell, fields: Sequence[str]) -> bool:
    """Whether a row that is there has the same in all of these."""
    return other.body is not None and all(
        type(_value(other, field)) is type(_value(cell, field)) and _value(other, field) == _value(cell, field)
        for field in fields
    )


def _value(cell: Cell, field: str) -> str | int | float | None:
    """None also of a list or a mapping: Postgres compares what is in them in its own way."""
    value = cell.body.get(field) if isinstance(cell.body, dict) else None
    return value if isinstance(value, str | int | float) else None
