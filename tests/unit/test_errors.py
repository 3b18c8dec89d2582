"""The tree of errors, and what their texts say."""

from __future__ import annotations

from uuid import UUID

import pytest

from schemaless_core import (
    BatchFailed,
    Cell,
    CellConflict,
    Conflict,
    ControlUnavailable,
    Invalid,
    InvalidCell,
    InvalidConfig,
    InvalidRequest,
    InvalidServer,
    LogHole,
    NodeUnavailable,
    PutResult,
    PutStatus,
    SchemalessError,
    SchemaMissing,
    StaleEpoch,
    TopologyConflict,
    Unavailable,
)
from schemaless_core.errors import ConnectionBroken, first_error, shown

#: Python refuses to write it in digits.
HUGE = pytest.param(10**5_000, id="huge")
ROW = UUID(int=7)
MINE = Cell(ROW, "BASE", 2, "mine")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NodeUnavailable, Unavailable), (ControlUnavailable, Unavailable), (ConnectionBroken, NodeUnavailable),
        (CellConflict, Conflict), (TopologyConflict, Conflict),
        (InvalidCell, Invalid), (InvalidRequest, Invalid), (InvalidConfig, Invalid), (InvalidServer, Invalid),
        (SchemaMissing, Invalid),
        *((top, SchemalessError) for top in (Unavailable, Conflict, Invalid, StaleEpoch, LogHole, BatchFailed)),
    ],
)  # fmt: skip
def test_errors_are_split_by_what_the_caller_does_next(error: type[Exception], kind: type[Exception]) -> None:
    assert issubclass(error, kind)


def test_no_error_says_two_things_to_do_next() -> None:
    split = (Unavailable, Conflict, Invalid, StaleEpoch)

    for kind in (NodeUnavailable, ControlUnavailable, CellConflict, TopologyConflict, InvalidCell, InvalidServer):
        assert sum(issubclass(kind, top) for top in split) == 1


def test_the_hint_stands_behind_the_message() -> None:
    assert str(SchemalessError("It broke.", hint="Mend it.")) == "It broke. Mend it."
    assert str(SchemalessError("It broke.")) == "It broke."
    assert SchemalessError("It broke.", hint="Mend it.").message == "It broke."


def test_a_conflict_about_a_key_carries_both_cells() -> None:
    theirs = Cell(ROW, "BASE", 2, "theirs", added_id=9)

    conflict = CellConflict(MINE, theirs)

    assert (conflict.attempted, conflict.stored) == (MINE, theirs)
    assert f"({ROW}, BASE, 2) already holds another body." in str(conflict)
    assert conflict.hint


@pytest.mark.parametrize(
    ("stored", "expected", "sentence"),
    [
        (Cell(ROW, "BASE", 5, 0), 1, "was to follow ref key 1, but the column's latest is ref key 5."),
        (Cell(ROW, "BASE", 5, 0), None, "was to follow no cell, but the column's latest is ref key 5."),
        (None, 1, "was to follow ref key 1, but the column's latest is no cell."),
    ],
)
def test_a_conflict_about_the_latest_says_what_was_expected_and_found(
    stored: Cell | None, expected: int | None, sentence: str
) -> None:
    conflict = CellConflict(MINE, stored, expected=expected)

    assert sentence in str(conflict)
    assert (conflict.stored, conflict.expected) == (stored, expected)


def test_after_an_empty_column_nothing_stored_is_to_be_read() -> None:
    conflict = CellConflict(MINE, None, expected=1)

    assert "Read the stored cell" not in str(conflict)
    assert "expect None" in str(conflict)


def test_bodies_never_stand_in_the_text_of_a_conflict() -> None:
    conflict = CellConflict(Cell(ROW, "BASE", 2, "a secret"), Cell(ROW, "BASE", 2, "another secret"))

    assert "secret" not in str(conflict)
    assert "secret" not in repr(conflict)


def test_a_failed_batch_holds_one_result_per_cell_and_tells_the_first_failure() -> None:
    stored = PutResult(PutStatus.CREATED, True, 0, 1, 1, 1)
    conflict = CellConflict(MINE, Cell(ROW, "BASE", 2, "theirs"))

    failed = BatchFailed([stored, conflict, NodeUnavailable("a server", "it is down")])

    assert failed.results[:2] == [stored, conflict]
    assert "2 of 3 cells were not stored." in str(failed)
    assert str(conflict) in str(failed)
    assert "a server" not in str(failed)
    assert failed.hint


def test_an_invalid_cell_names_the_culprits_path() -> None:
    error = InvalidCell("nan is no JSON number", path="$.fare")

    assert str(error) == "Invalid cell at $.fare: nan is no JSON number."
    assert (error.path, error.reason) == ("$.fare", "nan is no JSON number")


def test_errors_carry_their_facts() -> None:
    node = NodeUnavailable("mysql://u@h:1", "it is down", trips_breaker=False)
    stale = StaleEpoch(3, "RO", "it is being handed over")
    hole = LogHole(3, 8, 10)

    assert (node.node, node.reason, node.trips_breaker) == ("mysql://u@h:1", "it is down", False)
    assert (stale.shard, stale.status, stale.reason) == (3, "RO", "it is being handed over")
    assert (hole.shard, hole.missing, hole.head) == (3, 8, 10)
    assert hole.hint


def test_of_many_errors_the_authoritys_refusal_is_told_first() -> None:
    down, moved = NodeUnavailable("a", "it is down"), StaleEpoch(1, "MOVED", "it has moved")
    refused = StaleEpoch(2, "COPY", "it is a mirror", is_of_authority=True)

    assert first_error([1, down, moved, refused, 2]) is refused
    assert first_error([1, moved, down]) is moved
    assert first_error([1, None, "x"]) is None
    assert not moved.is_of_authority


@pytest.mark.parametrize("value", ["x" * 10_000, HUGE, [10**5_000], list(range(10_000)), "\ud800"])
def test_a_callers_value_is_shown_short_and_printable(value: object) -> None:
    text = shown(value)

    assert 0 < len(text) < 100
    assert text.encode()


def test_a_short_value_is_shown_whole() -> None:
    assert [shown(value) for value in (7, True, "x", None)] == ["7", "True", "'x'", "None"]
