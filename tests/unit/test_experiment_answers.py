"""Answers of queries: what is the same, whatever types it comes in, and what of it differs."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from schemaless_core import Cell
from tripstore.engines.validation.compare import AnswerDifference, DifferenceClass, compare
from tripstore.engines.validation.experiment.answers import answer_of
from tripstore.engines.validation.experiment.plain import VALUES_MAX, NoValue

ROW = UUID(int=7)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
Trip = namedtuple("Trip", "id fare")  # as a row of SQLAlchemy is: without types


class Status(StrEnum):
    PAID = "paid"


class Colour(Enum):
    RED = 1


class Rank(IntEnum):
    FIRST = 1


@dataclass
class Point:
    x: int


def differences(wanted: Any, given: Any, *, is_ordered: bool = True) -> list[AnswerDifference]:
    ours, theirs = (answer_of(value, is_ordered=is_ordered) for value in (wanted, given))
    return compare("experiment", ours, theirs)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (7, 7.0),
        (7, Decimal("7.00")),
        (700, Decimal("7E+2")),
        (-0.0, 0),
        (0.5, Decimal("0.5")),
        (float("nan"), Decimal("NaN")),
        (10**30, Decimal(10**30)),
        (NOON, NOON.astimezone(timezone(timedelta(hours=2)))),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-2))),) * 2,
        ((1, 2), [1, 2]),
        ({"a": 1, "b": None}, {"b": None, "a": 1}),
        (Trip(1, Decimal("2.50")), {"id": 1, "fare": Decimal("2.5")}),
        (Status.PAID, "paid"),
        (Rank.FIRST, 1),
        (Point(1), {"x": 1}),
        ({3, 1}, {1, 3}),
        ({ROW: 1}, {ROW: 1}),
        ({None: 1, True: 2}, {True: 2, None: 1}),
        ({Status.PAID: 1}, {"paid": 1}),
        ({7: 1}, {Decimal("7.00"): 1}),
        (b"a", bytearray(b"a")),
        (Cell(ROW, "BASE", 1, {"a": 1}, 5), Cell(ROW, "BASE", 1, {"a": 1}, 9)),
        ([], []),
        (None, None),
    ],
)
def test_what_python_calls_equal_is_no_difference(one: Any, other: Any) -> None:
    assert differences(one, other) == []
    assert differences([one], [other]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, None),
        ("", None),
        ("7", 7),
        (0.1, Decimal("0.1")),
        (NOON, NOON.replace(tzinfo=None)),
        (NOON, NOON.replace(tzinfo=timezone(timedelta(hours=2)))),
        (NOON.date(), NOON),
        (date(2026, 3, 1), "2026-03-01"),
        (ROW, str(ROW)),
        ({"a": None}, {}),
        (Decimal("7.001"), Decimal("7.01")),
        ([1], (1, 1)),
        ([[1]], [[]]),
        ({1: "a"}, {"1": "a"}),
        ({None: 3}, {"None": 3}),
        ({None: 3}, {"<None>": 3}),
        ({True: 3}, {"True": 3}),
        ({Colour.RED: 3}, {"RED": 3}),
        (Colour.RED, 1),
        (Colour.RED, "RED"),
        ({1}, {"set": [1]}),
    ],
)
def test_what_a_service_would_notice_is_a_difference(one: Any, other: Any) -> None:
    assert differences(one, other)
    assert differences([one], [other])


MISSING, EXTRA, FIELD, ORDER = (
    DifferenceClass.MISSING,
    DifferenceClass.EXTRA,
    DifferenceClass.FIELD,
    DifferenceClass.ORDER,
)


@pytest.mark.parametrize(
    ("wanted", "given", "told"),
    [
        ([1, 2, 3], [2, 3, 4], [(MISSING, "row 1", ""), (EXTRA, "row 3", "")]),
        ([1, 2], [1], [(MISSING, "row 2", "")]),
        ([1, 1], [1, 1, 1], [(EXTRA, "row 3", "")]),
        ([1, 2], [2, 1], [(ORDER, "the answer", "")]),
        ([{"a": {"b": [1, None]}}], [{"a": {"b": [1, 0]}}], [(FIELD, "row 1", "a.b[1]")]),
        ({"a": 1}, {"a": 2}, [(FIELD, "the answer", "a")]),
        (7, 8, [(FIELD, "the answer", "$")]),
        (None, 8, [(EXTRA, "the answer", "")]),
        (7, None, [(MISSING, "the answer", "")]),
        ([], None, [(MISSING, "the answer", "")]),
    ],
)
def test_a_difference_is_told_by_its_place(
    wanted: Any, given: Any, told: list[tuple[DifferenceClass, str, str]]
) -> None:
    assert differences(wanted, given) == [AnswerDifference(*each) for each in told]


def test_the_order_counts_unless_it_is_said_not_to() -> None:
    assert differences([1, 2, 2], [2, 1, 2], is_ordered=False) == []
    assert differences([1, 2], [2, 2], is_ordered=False) != []  # control
    assert differences([1, 2], [2, 1]) != []  # control


def test_rows_of_sqlalchemy_are_what_their_columns_say() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT 1 AS id, NULL AS status UNION SELECT 2, 'paid' ORDER BY id"))
        found = rows.all()
        mappings = connection.execute(sa.text("SELECT 1 AS id, NULL AS status")).mappings().all()

    assert differences(found, [{"id": 1, "status": None}, {"status": "paid", "id": 2}]) == []
    assert differences(mappings, [{"id": 1, "status": None}]) == []
    assert differences(found, [{"id": 1, "status": ""}, {"status": "paid", "id": 2}]) != []
    engine.dispose()


def test_no_column_of_a_row_is_left_out_for_having_the_name_of_another() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        right, wrong = (connection.execute(sa.text(f"SELECT {first} AS id, 7 AS id")).all() for first in (1, 2))
    assert differences(right, right) == []
    assert differences(right, wrong) == [AnswerDifference(FIELD, "row 1", "[0]")]
    engine.dispose()


def test_no_value_stands_in_a_difference() -> None:
    secret = "the rider's name"
    for wanted, given in (([secret], []), ([{"a": secret}], [{"a": ""}]), (secret, "")):
        assert secret not in str(differences(wanted, given))


@pytest.mark.parametrize(
    "value", [object(), iter([1]), (each for each in [1]), len, [[object()]], range(VALUES_MAX + 1)]
)
def test_what_has_no_value_is_refused_with_a_way_out(value: Any) -> None:
    with pytest.raises(NoValue) as refused:
        answer_of(list(value) if isinstance(value, range) else value)
    assert "normalise" in (refused.value.hint or "")


def test_an_answer_is_taken_down_as_it_was() -> None:
    """A caller may change what it got."""
    mine = [{"a": [1]}]
    taken = answer_of(mine)
    mine[0]["a"].append(2)
    assert compare("experiment", taken, answer_of([{"a": [1]}])) == []
