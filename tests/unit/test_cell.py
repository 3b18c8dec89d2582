"""Cells as values, and what no key or body may be."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellKey, InvalidCell, Json
from schemaless_core.cell.cell import check_column_name, check_key, check_ref_key, check_row_key, checked_bytes
from tests.factories import make_cell

#: Python refuses to write it in digits.
HUGE = pytest.param(10**5_000, id="huge")


class Name(str):
    """A subclass that looks like its parent."""


def test_cells_are_equal_when_key_and_canonical_bytes_are() -> None:
    row_key = uuid4()

    assert Cell(row_key, "BASE", 1, {"a": 1, "b": 2}) == Cell(row_key, "BASE", 1, {"b": 2, "a": 1})
    assert Cell(row_key, "BASE", 1, "x") == Cell(row_key, "BASE", 1, "x", 7, datetime.now(UTC))


@pytest.mark.parametrize(("a", "b"), [(1, True), (1, 1.0), (0.0, -0.0), (None, False), ([1], [True])])
def test_cells_differ_where_python_calls_their_bodies_equal(a: Json, b: Json) -> None:
    row_key = uuid4()

    assert Cell(row_key, "BASE", 1, a) != Cell(row_key, "BASE", 1, b)


def test_cells_with_other_keys_differ() -> None:
    cell = make_cell()

    assert cell != Cell(uuid4(), cell.column_name, cell.ref_key, cell.body)
    assert cell != Cell(cell.row_key, "OTHER", cell.ref_key, cell.body)
    assert cell != Cell(cell.row_key, cell.column_name, 2, cell.body)


def test_a_cell_is_no_tuple_of_its_key() -> None:
    cell = make_cell()

    assert cell != cell.key
    assert cell.__eq__(cell.key) is NotImplemented


def test_equal_cells_have_equal_hashes_even_with_bodies_that_cannot_be_hashed() -> None:
    row_key = uuid4()
    cells = {Cell(row_key, "BASE", 1, {"a": [1]}), Cell(row_key, "BASE", 1, {"a": [1]}, 3)}

    assert len(cells) == 1


def test_a_cell_cannot_be_changed() -> None:
    cell = make_cell()

    with pytest.raises(AttributeError, match="immutable"):
        cell.ref_key = 2  # type: ignore[misc]  # that it is refused is the point


def test_a_cell_knows_its_key_and_whether_it_is_a_tombstone() -> None:
    cell = make_cell(body=None)

    assert cell.key == CellKey(cell.row_key, "BASE", 1)
    assert cell.is_tombstone
    assert not make_cell(body=False).is_tombstone


@pytest.mark.parametrize("row_key", [str(UUID(int=1)), UUID(int=1).bytes, 1, None, b"", HUGE])
def test_a_row_key_that_is_no_uuid_is_refused(row_key: Any) -> None:
    with pytest.raises(InvalidCell, match="row key") as refused:
        check_row_key(row_key)

    assert refused.value.hint


@pytest.mark.parametrize("ref_key", [True, False, 1.0, "1", None, 2**63, -(2**63) - 1, HUGE])
def test_a_ref_key_that_is_no_int64_is_refused(ref_key: Any) -> None:
    with pytest.raises(InvalidCell, match="ref key") as refused:
        check_ref_key(ref_key)

    assert refused.value.hint


@pytest.mark.parametrize("ref_key", [-(2**63), -1, 0, 2**63 - 1])
def test_every_int64_is_a_ref_key(ref_key: int) -> None:
    check_key(UUID(int=0), "BASE", ref_key)

    assert checked_bytes(make_cell(ref_key=ref_key), 100)


@pytest.mark.parametrize(
    "name",
    ["", "x" * 65, "ø" * 33, "a\nb", "a\tb", "\0", "a\x7f", "\u200b", "\ud800", "a\u2028", b"BASE", None, 1, Name("N")],
)
def test_a_column_name_that_is_empty_long_or_unprintable_is_refused(name: Any) -> None:
    with pytest.raises(InvalidCell, match="column name") as refused:
        check_column_name(name)

    assert refused.value.hint
    assert str(refused.value).encode()


@pytest.mark.parametrize("name", ["B", "x" * 64, "ø" * 32, "FARE ADJUSTMENT", "a'b\"c`d"])
def test_a_column_name_of_up_to_64_printable_bytes_is_fine(name: str) -> None:
    assert checked_bytes(make_cell(column_name=name, body=1), 1) == b"1"


def test_a_body_may_have_max_body_bytes_and_not_one_more() -> None:
    fits, over = make_cell(body="x" * 98), make_cell(body="x" * 99)

    assert len(checked_bytes(fits, 100)) == 100
    with pytest.raises(InvalidCell, match="101 bytes, 100 are allowed") as refused:
        checked_bytes(over, 100)

    assert refused.value.hint
    assert "max_body_bytes" in refused.value.hint


def test_bytes_are_counted_and_not_characters() -> None:
    with pytest.raises(InvalidCell, match="102 bytes"):
        checked_bytes(make_cell(body="ø" * 50), 100)


def test_what_is_no_cell_is_refused() -> None:
    with pytest.raises(InvalidCell, match="tuple"):
        checked_bytes((uuid4(), "BASE", 1, "body"), 100)  # type: ignore[arg-type]  # the wrong type is the point


def test_unequal_is_the_opposite_of_equal() -> None:
    cell = make_cell(body={"a": 1})
    equal = Cell(*cell.key, {"a": 1}, added_id=9)

    assert not cell != equal  # noqa: SIM202  # the operator is what is tested
    assert cell != Cell(*cell.key, {"a": 1.0})
