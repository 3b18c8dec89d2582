"""Which cells may go before one that Postgres refuses."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellKey, Json
from tests.legacy import layout
from tripstore.migration.mirror.overtaking import Overtaking

KEY = uuid4()
ROW = 1 << 20


def cell(column: str, ref_key: int, body: Json = "a body", row_key: UUID = KEY) -> Cell:
    return Cell(row_key, column, ref_key, body)


BASE_2, BASE_3, BASE_4 = cell("BASE", 2), cell("BASE", 3), cell("BASE", 4)
NOTE, NOTE_AGAIN, NOTE_GONE = cell("NOTES", ROW), cell("NOTES", ROW + 1), cell("NOTES", ROW + 2, None)
OTHER_NOTE, OTHER_GONE = cell("NOTES", 2 * ROW), cell("NOTES", 2 * ROW + 1, None)
BASE_GONE, FACT, FACT_GONE, FREE = cell("BASE", 3, None), cell("STATUS", 1), cell("STATUS", 2, None), cell("FREE", 1)


@pytest.mark.parametrize(
    ("failed", "behind", "expected"),
    [
        # A later version of the same row, and no other.
        (BASE_2, [NOTE, BASE_3, BASE_4], [BASE_3]),
        (BASE_3, [cell("BASE", 1), NOTE], []),
        (NOTE, [OTHER_NOTE, OTHER_GONE, BASE_3], []),
        (NOTE, [OTHER_NOTE, NOTE_AGAIN, NOTE_GONE], [NOTE_AGAIN]),
        (NOTE_AGAIN, [NOTE, NOTE_GONE], [NOTE_GONE]),
        # A deletion of the parent comes after all that was put before it.
        (BASE_2, [NOTE, NOTE_AGAIN, NOTE_GONE, BASE_GONE, BASE_4], [NOTE, NOTE_AGAIN, NOTE_GONE, BASE_GONE]),
        # A deletion that is refused goes after the children that are in its way, and before the row's next life.
        (BASE_GONE, [FREE, NOTE, NOTE_GONE, OTHER_GONE, FACT_GONE, BASE_4], [NOTE_GONE, OTHER_GONE]),
        (BASE_GONE, [BASE_4, NOTE, FACT_GONE], []),
        # A child goes with its parent, or before it; its next life begins after that of its parent.
        (NOTE, [BASE_GONE, NOTE_GONE], [NOTE_GONE]),
        (NOTE, [BASE_GONE, NOTE_AGAIN], []),
        # Facts do not replace each other, and what is in no table has no versions.
        (FACT, [cell("STATUS", 3), FACT_GONE], []),
        (FREE, [cell("FREE", 2)], []),
    ],
)
def test_only_what_replaces_a_refused_cell_or_clears_its_way_goes_before_it(
    failed: Cell, behind: list[Cell], expected: list[Cell]
) -> None:
    bodies = {cell.key: cell.body for cell in [failed, *behind]}

    def tombstones(keys: Sequence[CellKey]) -> set[CellKey]:
        return {key for key in keys if bodies[key] is None}

    found = Overtaking(layout()).of(failed.key, [cell.key for cell in behind], tombstones)

    assert list(found) == [cell.key for cell in expected]


@pytest.mark.parametrize(
    ("failed", "behind", "asked"),
    [
        (BASE_2, [NOTE, FACT, BASE_3, NOTE_GONE, BASE_4], [BASE_2, BASE_3]),
        (BASE_2, [NOTE, FACT, FREE], [BASE_2]),
        (BASE_GONE, [FREE, NOTE, FACT_GONE, OTHER_GONE, BASE_4], [BASE_GONE, NOTE, OTHER_GONE]),
        (NOTE, [OTHER_NOTE, FREE, BASE_3], []),
        (NOTE, [OTHER_NOTE, BASE_GONE, NOTE_AGAIN], [NOTE_AGAIN, BASE_GONE]),
        (FACT, [cell("STATUS", 3), FACT_GONE], []),
        (FREE, [cell("FREE", 2)], []),
    ],
)
def test_only_those_are_read_whose_keys_do_not_tell(failed: Cell, behind: list[Cell], asked: list[Cell]) -> None:
    found: list[CellKey] = []

    def tombstones(keys: Sequence[CellKey]) -> set[CellKey]:
        found.extend(keys)
        return {cell.key for cell in [failed, *behind] if cell.body is None and cell.key in keys}

    Overtaking(layout()).of(failed.key, [cell.key for cell in behind], tombstones)

    assert found == [cell.key for cell in asked]
