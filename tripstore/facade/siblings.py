"""`Siblings`: whether a parent has another child row with what a constraint allows once for each parent.

All of them stand in the row of the cell, so no index is asked. Equal values are equal in Postgres too; of those that
only Postgres takes for equal nothing is said. Two puts at the same time both find nothing: the later one is parked.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemaless_core.cell import Cell
from schemaless_core.errors import SchemalessError
from schemaless_core.store import CellStore
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.rules.column_rules import OncePerParent

#: What a parent has beyond these is left to Postgres.
VERSIONS_MAX = 1_000


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
        try:
            found = store.using(read="primary").get_history(cell.row_key, cell.column_name, limit=VERSIONS_MAX)
        except SchemalessError:  # the put itself asks the same server
            return None
        others = self._rows([*before, *found], cell)
        return next((each for each in asked if any(_meets(cell, other, each.fields) for other in others)), None)

    def _rows(self, cells: Sequence[Cell], cell: Cell) -> list[Cell]:
        """The latest of each number but its own."""
        column = self._layout.columns[cell.column_name]
        own, _version = column.split(cell.ref_key)
        latest: dict[int, Cell] = {}
        for each in cells:
            number, _version = column.split(each.ref_key)
            if number != own and (number not in latest or latest[number].ref_key < each.ref_key):
                latest[number] = each
        return list(latest.values())


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
