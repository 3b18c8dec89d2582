"""Answers that differ by what was purged, of every kind that a read has (I12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from schemaless_core import Cell, CellKey, IndexEntry, IndexPage
from schemaless_core.cell.answers import Row, RowPage
from schemaless_core.errors import Unavailable
from tripstore.engines.validation.purged import PurgedAnswers
from tripstore.engines.validation.reads import Failed, Read

GONE, KEPT, OTHER = (UUID(int=n) for n in (1, 2, 3))


def cell(row_key: UUID, ref_key: int = 1, body: str = "x", column: str = "BASE") -> Cell:
    return Cell(row_key, column, ref_key, body)


def find(keys: Sequence[CellKey]) -> Mapping[CellKey, int]:
    """GONE as a whole, of KEPT versions up to 2."""
    return {
        key: 2
        for key in keys
        if key.row_key == GONE or (key.row_key == KEPT and key.column_name == "BASE" and key.ref_key <= 2)
    }


def page(*rows: UUID, cursor: str | None = None) -> IndexPage:
    return IndexPage([IndexEntry(row, {"driver": "d"}) for row in rows], cursor)


def rows(*keys: UUID, after: UUID | None = None) -> RowPage:
    return RowPage([Row(key, {"BASE": cell(key, 3)}) for key in keys], after)


CASES: list[tuple[str, Any, Any]] = [
    ("get_cell_latest", Cell(GONE, "BASE", 4, None), None),
    ("get_cell", cell(KEPT, 2), None),
    ("get_cells", [cell(KEPT, 3), cell(GONE)], [cell(KEPT, 3), None]),
    ("get_row", {"BASE": cell(GONE), "NOTE": cell(GONE, column="NOTE")}, {}),
    ("get_history", [cell(KEPT, 3), cell(KEPT, 2)], [cell(KEPT, 3)]),
    ("scan_rows", rows(GONE, KEPT, after=KEPT), rows(KEPT, OTHER, after=OTHER)),
    ("query_index", page(GONE, KEPT, cursor="a"), page(KEPT, OTHER, cursor="b")),
    ("resolve_ids", {7: GONE, 8: KEPT}, {8: KEPT}),
    ("legacy_ids", {GONE: 7, KEPT: 8}, {KEPT: 8}),
]


@pytest.mark.parametrize("is_mirror", [False, True], ids=["of the authority", "of the mirror"])
@pytest.mark.parametrize(("operation", "one", "other"), CASES, ids=[case[0] for case in CASES])
def test_i12_what_was_purged_explains_what_one_side_lacks(
    operation: str, one: Any, other: Any, is_mirror: bool
) -> None:
    wanted, given = (other, one) if is_mirror else (one, other)
    assert PurgedAnswers(find).explain(Read(operation, {}), wanted, given)
    assert not PurgedAnswers(lambda _keys: {}).explain(Read(operation, {}), wanted, given), "the control"


@pytest.mark.parametrize(
    ("operation", "wanted", "given"),
    [
        ("get_cell", cell(KEPT, 3), None),
        ("get_cells", [cell(KEPT, 3), cell(GONE)], [cell(KEPT, 3, "y"), None]),
        ("get_history", [cell(KEPT, 4), cell(KEPT, 2)], [cell(KEPT, 3)]),
        ("query_index", page(GONE, KEPT), page(OTHER)),
        ("resolve_ids", {7: GONE, 8: KEPT}, {8: OTHER}),
        ("get_cell", cell(GONE), Failed("Unavailable", "silent")),
        ("checksum", 1, 2),
    ],
)
def test_i12_what_differs_beside_it_is_not_explained(operation: str, wanted: Any, given: Any) -> None:
    assert not PurgedAnswers(find).explain(Read(operation, {}), wanted, given)


def test_keys_that_cannot_be_looked_up_explain_nothing() -> None:
    def silent(_keys: Sequence[CellKey]) -> Mapping[CellKey, int]:
        raise Unavailable("silent", hint="")

    assert not PurgedAnswers(silent).explain(Read("get_cell", {}), cell(GONE), None)
