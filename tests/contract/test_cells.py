"""What callers may rely on for cells, whichever store stands behind it. A store earns its place by passing it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from fractions import Fraction
from uuid import UUID, uuid4

import pytest

from schemaless_core import (
    ANY,
    BatchFailed,
    Cell,
    CellConflict,
    CellKey,
    CellStore,
    ColumnKey,
    Datastore,
    InvalidCell,
    Json,
    MemoryStore,
    PutResult,
)
from tests.awaiting import below
from tests.factories import make_cell, make_trip
from tests.stores import EVERY_CELL_STORE

pytestmark = pytest.mark.parametrize("cell_store", EVERY_CELL_STORE, indirect=True)


def test_a_put_cell_is_read_back_equal(store: CellStore) -> None:
    cell = make_cell(body=make_trip(1))

    result = store.put_cell(cell.row_key, cell.column_name, cell.ref_key, cell.body)

    assert (result.status, result.readable, result.ref_key) == ("CREATED", True, 1)
    assert result.shard == store.shard_of(cell.row_key)
    assert store.get_cell(*cell.key) == cell


def test_a_cell_carries_where_and_when_it_was_stored(store: CellStore) -> None:
    cell = make_cell()

    result = store.put_cell(*cell.key, cell.body)

    found = store.get_cell(*cell.key)
    assert found is not None
    assert_same_ids(store, [result], [found])
    assert found.created_at is not None
    assert abs((found.created_at - datetime.now(UTC)).total_seconds()) < 120


def assert_same_ids(store: CellStore, results: Sequence[PutResult], found: Sequence[Cell | None]) -> None:
    """Postgres gives added ids only to readers of its log; a facade may write at one backend and read at the other."""
    told, seen = [result.added_id for result in results], [cell.added_id for cell in found if cell is not None]
    assert len(told) == len(seen)
    if not isinstance(below(store), Datastore | MemoryStore) and None in (*told, *seen):
        assert [None] * len(told) in (told, seen)
    else:
        assert told == seen


def test_what_was_never_put_is_not_there(store: CellStore) -> None:
    row_key = uuid4()

    assert store.get_cell(row_key, "BASE", 1) is None
    assert store.get_cell_latest(row_key, "BASE") is None
    assert store.get_row(row_key) == {}
    assert store.get_history(row_key, "BASE") == []


def test_the_same_cell_put_again_exists_under_its_first_added_id(store: CellStore) -> None:
    cell = make_cell(body={"b": 1, "a": [1, 2.5, None]})
    first = store.put_cell(*cell.key, cell.body)

    again = store.put_cell(*cell.key, {"a": [1, 2.5, None], "b": 1})

    assert (again.status, again.added_id, again.readable) == ("EXISTS", first.added_id, True)


@pytest.mark.parametrize(("first", "other"), [(1, 1.0), (True, 1), (0.0, -0.0), (None, False), ("1", 1), ([], {})])
def test_bodies_that_python_calls_equal_or_falsy_conflict(store: CellStore, first: Json, other: Json) -> None:
    cell = make_cell(body=first)
    store.put_cell(*cell.key, first)

    with pytest.raises(CellConflict) as raised:
        store.put_cell(*cell.key, other)

    assert raised.value.stored == cell
    assert raised.value.attempted == Cell(*cell.key, other)
    assert store.get_cell(*cell.key) == cell


def test_an_older_version_arriving_late_does_not_become_the_latest(store: CellStore) -> None:
    row_key = uuid4()
    completed, requested = make_cell(row_key, ref_key=2, body="done"), make_cell(row_key, body="requested")

    # A mirrored write overtakes the backfill: the order every migration meets.
    store.put_cells([completed])
    store.put_cells([requested])

    assert store.get_cell_latest(row_key, "BASE") == completed


def test_ref_keys_order_as_signed_numbers(store: CellStore) -> None:
    row_key = uuid4()
    refs = [-(2**63), -1, 0, 7, 2**63 - 1]
    store.put_cells([make_cell(row_key, ref_key=ref) for ref in (7, -1, 2**63 - 1, 0, -(2**63))])

    history = store.get_history(row_key, "BASE")

    assert [cell.ref_key for cell in history] == refs[::-1]
    latest = store.get_cell_latest(row_key, "BASE")
    assert latest is not None
    assert latest.ref_key == 2**63 - 1


def test_a_tombstone_is_a_cell_like_any_other(store: CellStore) -> None:
    row_key = uuid4()
    store.put_cells([make_cell(row_key), make_cell(row_key, ref_key=2, body=None), make_cell(row_key, "NOTES")])

    latest = store.get_cell_latest(row_key, "BASE")

    assert latest == make_cell(row_key, ref_key=2, body=None)
    assert set(store.get_row(row_key)) == {"BASE", "NOTES"}
    assert store.get_cell(row_key, "BASE", 2) == latest


@pytest.mark.parametrize(
    "body",
    [
        None, True, False, 0, -1, 2**64 - 1, -(2**63), 0.1, -0.0, 1e300, 5e-324, 1e16,
        "", "æøå 🚕 \u0000 \\ ' \" \n %s",
        [], {}, [None, [1, [2]]], {"": {"": []}}, {"b": 1, "a": 2, "ø": 3}, "x" * 100_000, {"k" * 500: "v"},
    ],
)  # fmt: skip
def test_any_json_value_is_a_body(store: CellStore, body: Json) -> None:
    cell = make_cell(body=body)

    store.put_cell(*cell.key, body)

    assert store.get_cell(*cell.key) == cell
    assert store.get_cell_latest(cell.row_key, cell.column_name) == cell
    assert store.put_cells([cell])[0].status == "EXISTS"


def test_a_body_of_three_mebibytes_is_stored_alone_and_in_a_batch(store: CellStore) -> None:
    row_key = uuid4()
    large = "\\'" * (1024 * 1024)  # three bytes each as JSON, and the worst to quote
    cells = [make_cell(row_key, ref_key=ref, body=f"{ref}{large}") for ref in (1, 2, 3)]

    store.put_cell(*cells[0].key, cells[0].body)
    store.put_cells(cells)

    assert store.get_cells([cell.key for cell in cells]) == cells


@pytest.mark.parametrize("name", ["B", "FARE ADJUSTMENT", "ø" * 32, "x" * 64, "a'b\"c`d\\e%s;--"])
def test_any_printable_name_is_a_column(store: CellStore, name: str) -> None:
    cell = make_cell(column_name=name)

    store.put_cell(*cell.key, cell.body)

    assert store.get_row(cell.row_key) == {name: cell}
    assert store.get_row(cell.row_key, [name, "OTHER"]) == {name: cell}
    assert store.get_history(cell.row_key, name) == [cell]


def test_column_names_differ_by_case(store: CellStore) -> None:
    row_key = uuid4()

    store.put_cells([make_cell(row_key, "base", body=1), make_cell(row_key, "BASE", body=2)])

    assert {name: cell.body for name, cell in store.get_row(row_key).items()} == {"base": 1, "BASE": 2}


@pytest.mark.parametrize(
    "row_key", [UUID(int=0), UUID(int=2**128 - 1), UUID(bytes=b"\\'%s`\0\n\r\x1a\"" + b"\xff" * 6)]
)
def test_any_uuid_is_a_row_key(fresh_store: CellStore, row_key: UUID) -> None:
    cell = make_cell(row_key)

    fresh_store.put_cells([cell])

    assert fresh_store.get_cell_latest(row_key, "BASE") == cell


# ---------------------------------------------------------------------------------------------- conditional puts


def test_expecting_no_cell_creates_the_first_one_only(store: CellStore) -> None:
    row_key = uuid4()

    assert store.put_cell(row_key, "BASE", 5, "first", expect_latest=None).status == "CREATED"
    with pytest.raises(CellConflict) as raised:
        store.put_cell(row_key, "BASE", 6, "second", expect_latest=None)

    assert raised.value.stored == Cell(row_key, "BASE", 5, "first")
    assert raised.value.expected is None
    assert store.get_cell(row_key, "BASE", 6) is None


def test_expecting_another_latest_conflicts(store: CellStore) -> None:
    row_key = uuid4()
    store.put_cell(row_key, "BASE", 3, "three")

    assert store.put_cell(row_key, "BASE", 4, "four", expect_latest=3).status == "CREATED"
    with pytest.raises(CellConflict) as raised:
        store.put_cell(row_key, "BASE", 5, "five", expect_latest=3)

    assert raised.value.stored is not None
    assert raised.value.stored.ref_key == 4


def test_expecting_a_cell_where_there_is_none_conflicts(store: CellStore) -> None:
    with pytest.raises(CellConflict) as raised:
        store.put_cell(uuid4(), "BASE", 1, "body", expect_latest=7)

    assert raised.value.stored is None
    assert str(raised.value.hint).startswith("The column is empty: expect None"), "there is no stored cell to read"


def test_a_conditional_put_may_be_repeated(store: CellStore) -> None:
    row_key = uuid4()
    store.put_cell(row_key, "BASE", 1, "one", expect_latest=None)
    store.put_cell(row_key, "BASE", 2, "two", expect_latest=1)

    # Its answer was lost; by now the expectation no longer holds, but the cell is there.
    assert store.put_cell(row_key, "BASE", 2, "two", expect_latest=1).status == "EXISTS"


def test_expecting_anything_is_the_default(store: CellStore) -> None:
    assert store.put_cell(uuid4(), "BASE", 1, "one", expect_latest=ANY).status == "CREATED"


# ------------------------------------------------------------------------------------------------------- append


def test_appended_cells_take_the_next_ref_keys_from_one_on(store: CellStore) -> None:
    row_key = uuid4()

    refs = [store.append_cell(row_key, "NOTES", {"event": n}).ref_key for n in range(3)]

    assert refs == [1, 2, 3]
    assert [cell.body for cell in store.get_history(row_key, "NOTES")] == [{"event": n} for n in (2, 1, 0)]


def test_an_append_follows_the_highest_ref_key(store: CellStore) -> None:
    row_key = uuid4()
    store.put_cell(row_key, "NOTES", 41, "by hand")

    result = store.append_cell(row_key, "NOTES", "appended")

    assert (result.ref_key, result.status) == (42, "CREATED")


def test_nothing_is_appended_after_the_last_ref_key(store: CellStore) -> None:
    row_key = uuid4()
    store.put_cell(row_key, "NOTES", 2**63 - 1, "last")

    with pytest.raises(InvalidCell, match="no free ref key"):
        store.append_cell(row_key, "NOTES", "one more")


# ------------------------------------------------------------------------------------------------------ batches


def test_a_batch_answers_one_result_per_cell_in_order(store: CellStore) -> None:
    cells = [make_cell(column_name=f"C{n % 3}", ref_key=n, body=make_trip(n)) for n in range(60)]

    results = store.put_cells(cells)

    assert [result.ref_key for result in results] == list(range(60))
    assert {result.status for result in results} == {"CREATED"}
    assert [result.shard for result in results] == [store.shard_of(cell.row_key) for cell in cells]
    found = store.get_cells([cell.key for cell in cells])
    assert found == cells
    assert_same_ids(store, results, found)


def test_an_empty_batch_is_nothing(store: CellStore) -> None:
    assert store.put_cells([]) == []
    assert store.get_cells([]) == []
    assert store.get_cells_latest([]) == []


def test_cells_of_one_shard_are_logged_in_the_order_of_the_batch(store: CellStore) -> None:
    row_key = uuid4()
    refs, shard = [5, 1, 9, 2, 7], store.shard_of(row_key)
    head = store.get_cells_for_shard(shard, 0, 1).head

    results = store.put_cells([make_cell(row_key, ref_key=ref) for ref in refs])

    logged = store.get_cells_for_shard(shard, head, 10).cells
    assert [cell.ref_key for cell in logged] == refs
    assert [cell.added_id for cell in logged] == list(range(head + 1, head + 6))
    # On Postgres ids are given when the log is read.
    assert [result.added_id for result in results] in ([cell.added_id for cell in logged], [None] * 5)


def test_a_batch_with_conflicts_writes_all_it_can(store: CellStore) -> None:
    there, new, conflicting = make_cell(body="there"), make_cell(body="new"), make_cell(body="mine")
    store.put_cells([there, Cell(*conflicting.key, "theirs")])

    with pytest.raises(BatchFailed) as raised:
        store.put_cells([conflicting, there, new])

    conflict, exists, created = raised.value.results
    assert isinstance(conflict, CellConflict)
    assert conflict.stored == Cell(*conflicting.key, "theirs")
    assert [getattr(result, "status", None) for result in (exists, created)] == ["EXISTS", "CREATED"]
    assert store.get_cell(*new.key) == new


def test_a_key_that_occurs_twice_in_a_batch_is_judged_like_any_other(store: CellStore) -> None:
    cell = make_cell(body="first")
    others = [make_cell() for _ in range(5)]

    with pytest.raises(BatchFailed) as raised:
        store.put_cells([cell, *others, Cell(*cell.key, "first"), Cell(*cell.key, "other"), Cell(*cell.key, "first")])

    results = raised.value.results
    assert [getattr(result, "status", None) for result in results] == ["CREATED"] * 6 + ["EXISTS", None, "EXISTS"]
    assert isinstance(results[7], CellConflict)
    assert results[7].stored == cell


def test_a_repeated_batch_exists(store: CellStore) -> None:
    cells = [make_cell(body=make_trip(n)) for n in range(30)]
    first = store.put_cells(cells)

    again = store.put_cells(cells[::-1])[::-1]

    assert {result.status for result in again} == {"EXISTS"}
    assert [result.added_id for result in again] == [result.added_id for result in first]


def test_a_batch_larger_than_a_packet_is_written_whole(store: CellStore) -> None:
    row_key = uuid4()
    cells = [make_cell(row_key, ref_key=n, body="x" * 2_000) for n in range(1_300)]

    results = store.put_cells(cells)

    assert {result.status for result in results} == {"CREATED"}
    assert len(store.get_history(row_key, "BASE", limit=2_000)) == 1_300


def test_an_invalid_cell_refuses_the_whole_batch_before_anything_is_written(store: CellStore) -> None:
    fine = make_cell()

    with pytest.raises(InvalidCell):
        store.put_cells([fine, make_cell(body=float("nan"))])

    assert store.get_cell(*fine.key) is None


@pytest.mark.parametrize("wrong", [5, None, "cell", (uuid4(), "BASE", 1, "body")])
def test_what_is_no_cell_refuses_the_whole_batch(store: CellStore, wrong: object) -> None:
    fine = make_cell()

    with pytest.raises(InvalidCell, match="Pass Cell"):
        store.put_cells([fine, wrong])  # type: ignore[list-item]  # the wrong type is the point

    assert store.get_cell(*fine.key) is None


# -------------------------------------------------------------------------------------------------- batch reads


def test_batch_reads_answer_per_key_in_order_with_none_for_what_is_missing(store: CellStore) -> None:
    cells = [make_cell(ref_key=3, body=n) for n in range(20)]
    store.put_cells(cells)
    missing = make_cell()

    keys = [cells[3].key, missing.key, cells[0].key, cells[3].key, CellKey(cells[1].row_key, "BASE", 4)]

    assert store.get_cells(keys) == [cells[3], None, cells[0], cells[3], None]


def test_latest_cells_of_many_columns(store: CellStore) -> None:
    row_key, other = uuid4(), uuid4()
    store.put_cells([make_cell(row_key, "A", ref) for ref in (1, 2)] + [make_cell(row_key, "B"), make_cell(other, "A")])

    columns = [ColumnKey(row_key, "A"), ColumnKey(other, "B"), ColumnKey(other, "A"), ColumnKey(row_key, "B")]

    found = store.get_cells_latest(columns)
    assert [cell and cell.key for cell in found] == [(row_key, "A", 2), None, (other, "A", 1), (row_key, "B", 1)]


def test_thousands_of_keys_in_one_call(store: CellStore) -> None:
    cells = [make_cell(body=n) for n in range(1_200)]
    store.put_cells(cells)

    assert store.get_cells([cell.key for cell in cells]) == cells
    assert store.get_cells_latest([ColumnKey(cell.row_key, "BASE") for cell in cells]) == cells


# ------------------------------------------------------------------------------------------------- rows, history


def test_a_row_is_the_latest_cell_of_each_column(store: CellStore) -> None:
    row_key = uuid4()
    store.put_cells([make_cell(row_key, name, ref, body=f"{name}{ref}") for name in ("A", "B") for ref in (1, 3, 2)])

    assert {name: cell.body for name, cell in store.get_row(row_key).items()} == {"A": "A3", "B": "B3"}
    assert {name: cell.body for name, cell in store.get_row(row_key, ["B"]).items()} == {"B": "B3"}
    assert store.get_row(row_key, []) == {}


def test_history_pages_from_the_newest_down(store: CellStore) -> None:
    row_key = uuid4()
    store.put_cells([make_cell(row_key, ref_key=ref) for ref in range(10)])

    first = store.get_history(row_key, "BASE", limit=4)
    second = store.get_history(row_key, "BASE", before=first[-1].ref_key, limit=4)

    assert [cell.ref_key for cell in first + second] == [9, 8, 7, 6, 5, 4, 3, 2]


def test_nothing_is_below_the_lowest_ref_key_there_is(store: CellStore) -> None:
    cell = make_cell(ref_key=-(2**63))
    store.put_cell(*cell.key, cell.body)

    assert store.get_history(cell.row_key, cell.column_name) == [cell]
    assert store.get_history(cell.row_key, cell.column_name, before=cell.ref_key) == []


def test_a_body_that_was_handed_out_is_the_callers_own(store: CellStore) -> None:
    cell = make_cell(body={"tags": ["a"]})
    store.put_cell(*cell.key, cell.body)

    found = store.get_cell(*cell.key)
    assert found is not None
    assert isinstance(found.body, dict)
    found.body["tags"] = "changed"

    assert store.get_cell(*cell.key) == cell


def test_any_iterable_will_do_and_is_read_once(store: CellStore) -> None:
    cells = [make_cell(column_name="BASE"), make_cell(column_name="STATUS")]

    results = store.put_cells(cell for cell in cells)  # type: ignore[arg-type]  # what callers do

    assert [result.status for result in results] == ["CREATED", "CREATED"]
    assert store.put_cells({cell.key: cell for cell in cells}.values())  # type: ignore[arg-type]  # callers do
    assert store.get_cells(cell.key for cell in cells) == cells  # type: ignore[arg-type]  # callers do
    columns = (ColumnKey(*cell.key[:2]) for cell in cells)
    assert store.get_cells_latest(columns) == cells  # type: ignore[arg-type]  # callers do
    row = cells[0].row_key
    names = (name for name in ["BASE", "OTHER"])
    assert store.get_row(row, names) == {"BASE": cells[0]}  # type: ignore[arg-type]  # callers do
    shard = store.shard_of(row)
    wanted = [row.cells for row in store.scan_rows(shard, columns=["STATUS"]).rows]
    scanned = store.scan_rows(shard, columns=iter(["STATUS"]))  # type: ignore[arg-type]  # callers do
    assert [row.cells for row in scanned.rows] == wanted
    summed = store.checksum(shard, iter(["BASE"]))  # type: ignore[arg-type]  # callers do
    assert summed == store.checksum(shard, ["BASE"])


CELL = make_cell()
WRONG = {
    "a cell in place of a list": lambda store: store.put_cells(CELL),
    "a key in place of a cell": lambda store: store.put_cells([CELL.key]),
    "a number in place of a list": lambda store: store.put_cells(7),
    "a row key in place of a list": lambda store: store.get_cells(CELL.row_key),
    "a text in place of a key": lambda store: store.get_cells(["abc"]),
    "a key of two": lambda store: store.get_cells([CELL.key[:2]]),
    "a cell in place of keys": lambda store: store.get_cells([CELL]),
    "a row key in place of a column": lambda store: store.get_cells_latest([CELL.row_key]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_shape_is_refused_by_name_and_stores_nothing(store: CellStore, wrong: str) -> None:
    with pytest.raises(InvalidCell) as refused:
        WRONG[wrong](store)

    assert "Pass" in str(refused.value)
    assert store.get_cell(*CELL.key) is None


class _Reason(IntEnum):
    FIRST = 1


class _Column(StrEnum):
    BASE = "BASE"


def test_a_number_or_name_of_another_type_says_how_to_convert_it(store: CellStore) -> None:
    for ref_key in (_Reason.FIRST, Fraction(1)):
        with pytest.raises(InvalidCell, match=r"not an int") as refused:
            store.put_cell(uuid4(), "BASE", ref_key, 1)  # type: ignore[arg-type]  # callers do
        assert ("write int(…)" in str(refused.value)) is isinstance(ref_key, _Reason)
    with pytest.raises(InvalidCell, match=r"not a string; write str\(…\)"):
        store.put_cell(uuid4(), _Column.BASE, 1, 1)
    with pytest.raises(InvalidCell) as refused:
        store.put_cell(uuid4(), "BASE", True, 1)
    assert "write int" not in str(refused.value)  # 1 is not what is meant by it
