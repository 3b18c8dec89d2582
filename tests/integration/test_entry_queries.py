"""Queries to one shard of an index, on every engine: the answers are those of a scan in Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, get_args
from uuid import uuid4

import pytest

from schemaless_core.cell.answers import Operator, Scalar
from schemaless_core.definitions.query import CheckedCondition
from schemaless_core.definitions.values import sort_key
from schemaless_core.engine.base import EntryQuery, EntryWrite, StoredEntry
from tests.integration.indexed import EDGES, FIELDS, Indexed, IndexedFactory, patience, table_of, write

ROWS = 120
#: Live rows of the shard value asked for.
LIVE = 90
FIELD_NUMBERS = range(len(FIELDS))


@pytest.fixture(scope="module")
def rows() -> list[EntryWrite]:
    """Entries of few different values, a third of them missing; some of another shard value, some dead."""
    choose = random.Random(3)
    made = []
    for number in range(ROWS):
        values = tuple(None if choose.random() < 0.3 else choose.choice(EDGES[field.kind][:4]) for field in FIELDS[1:])
        shard_value = "s" if number < LIVE + 15 else "another"
        made.append(write(shard_value, values=values, is_dead=LIVE <= number < LIVE + 15))
    return made


@pytest.fixture
def filled(index: Indexed, rows: list[EntryWrite]) -> Indexed:
    index.put(*rows)
    return index


def _expected(
    rows: list[EntryWrite], conditions: tuple[CheckedCondition, ...], order_field: int | None, descending: bool
) -> list[bytes]:
    names = [field.name for field in FIELDS]

    def key(row: EntryWrite) -> tuple[Any, ...]:
        if order_field is None:
            return (row.row_key,)
        return (sort_key(FIELDS[order_field].kind, row.values[order_field]), row.row_key)

    found = [
        row
        for row in rows
        if row.shard_value == "s"
        and not row.is_dead
        and all(condition.holds(row.values[names.index(condition.field.name)]) for condition in conditions)
    ]
    return [row.row_key for row in sorted(found, key=key, reverse=descending)]


def _conditions(field_number: int) -> Iterator[CheckedCondition]:
    field = FIELDS[field_number]
    values = [value for value in EDGES[field.kind] if field_number or value != ""] + (["s"] if not field_number else [])
    for operator in get_args(Operator):
        if operator == "in":
            for count in (0, 1, len(values)):
                yield CheckedCondition(field, operator, tuple(values[:count]))
        elif operator == "between":
            for low, high in ((0, -1), (-1, 0), (1, 1)):
                yield CheckedCondition(field, operator, (values[low], values[high]))
        else:
            for value in values:
                yield CheckedCondition(field, operator, (value,))


def test_every_operator_on_every_type_finds_what_a_scan_in_python_finds(
    filled: Indexed, rows: list[EntryWrite]
) -> None:
    met = 0
    for number in FIELD_NUMBERS:
        for condition in _conditions(number):
            found = [entry.row_key for entry in filled.ask(EntryQuery("s", 1_000, (condition,)))]
            assert found == _expected(rows, (condition,), None, descending=False), condition
            met += bool(found)
    assert met > 80


def test_conditions_must_all_hold(filled: Indexed, rows: list[EntryWrite]) -> None:
    choose = random.Random(5)
    pool = [condition for number in FIELD_NUMBERS for condition in _conditions(number)]
    met = 0
    for _query in range(100):
        conditions = tuple(choose.sample(pool, 3))
        found = [entry.row_key for entry in filled.ask(EntryQuery("s", 1_000, conditions))]
        assert found == _expected(rows, conditions, None, descending=False), conditions
        met += bool(found)
    assert met > 5


def test_in_takes_a_thousand_values(filled: Indexed, rows: list[EntryWrite]) -> None:
    condition = CheckedCondition(FIELDS[1], "in", tuple(range(-500, 500)))

    found = [entry.row_key for entry in filled.ask(EntryQuery("s", 1_000, (condition,)))]

    assert found == _expected(rows, (condition,), None, descending=False)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order_field", [None, *FIELD_NUMBERS])
def test_pages_follow_each_other_without_gap_or_repetition_also_over_ties_and_missing_values(
    filled: Indexed, rows: list[EntryWrite], order_field: int | None, descending: bool
) -> None:
    expected = _expected(rows, (), order_field, descending)
    assert len(expected) == LIVE

    found: list[bytes] = []
    after: tuple[Scalar | None, bytes] | None = None
    while page := filled.ask(EntryQuery("s", 7, (), order_field, descending, after)):
        found += [entry.row_key for entry in page]
        after = (None if order_field is None else page[-1].values[order_field], page[-1].row_key)

    assert found == expected


def test_pages_go_on_behind_an_entry_that_is_gone(filled: Indexed, rows: list[EntryWrite]) -> None:
    """A cursor is a place, not an entry."""
    expected = _expected(rows, (), 1, descending=False)
    before = filled.ask(EntryQuery("s", 50, (), 1))
    filled.put(*(_dead(entry) for entry in before))

    behind = filled.ask(EntryQuery("s", 1_000, (), 1, after=(before[-1].values[1], before[-1].row_key)))

    assert [entry.row_key for entry in behind] == expected[50:]


def _dead(entry: StoredEntry) -> EntryWrite:
    assert entry.values[0] is not None
    return write(entry.values[0], entry.row_key, refs=(2, None), is_dead=True)


@pytest.mark.parametrize("number", [0, *range(3, len(FIELDS))], ids=lambda number: FIELDS[number].kind.value)
def test_a_scan_goes_through_all_entries_in_key_order_dead_ones_included(
    datastore_engine: str, new_index: IndexedFactory, number: int
) -> None:
    field = FIELDS[number]
    index = new_index(datastore_engine, table_of((field,), (0,)))
    values = EDGES[field.kind]
    made = [write(value, uuid4().bytes, (), (1,), is_dead=n == 0) for value in values for n in range(3)]
    index.put(*made)
    expected = sorted(((entry.shard_value, entry.row_key) for entry in made), key=lambda key: _key(number, key))

    found: list[StoredEntry] = []
    after: tuple[Scalar, bytes] | None = None
    while page := index.node.scan_entries(index.table, index.shards[0], after, 4, patience())[1]:
        found += page
        assert page[-1].values[0] is not None
        after = (page[-1].values[0], page[-1].row_key)

    assert [(entry.values[0], entry.row_key) for entry in found] == expected
    assert sum(entry.is_dead for entry in found) == len(values)


def _key(number: int, key: tuple[Scalar, bytes]) -> tuple[Any, ...]:
    return sort_key(FIELDS[number].kind, key[0]), key[1]
