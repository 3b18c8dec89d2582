"""Of all clusters one at a time is promoted without an operator: who begins takes the turn, in the control database."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from unittest.mock import patch

import pytest

from schemaless_core import Datastore
from schemaless_core.promotion.ports import Busy, Record
from schemaless_core.promotion.record import ControlRecord

WAIT_SECONDS = 20.0


def record_of(store: Datastore, cluster: str) -> ControlRecord:
    return ControlRecord(store.control, cluster, lambda _server: 1)


def begun(record: Record) -> Record:
    """As a worker begins one."""
    return record._replace(number=record.number + 1, is_done=False, outlasts=True)


def begin(record: ControlRecord) -> bool | Busy:
    return record.begin_alone(found := record.find(), begun(found))


def test_i5_a_second_one_begins_when_the_first_is_done(datastore: Datastore) -> None:
    a, b = record_of(datastore, "a"), record_of(datastore, "b")
    assert begin(a) is True

    assert begin(b) == Busy("a")
    assert b.find().number == 0

    under_way = a.find()
    assert a.change(under_way, under_way._replace(is_done=True))
    assert begin(b) is True
    assert begin(a) == Busy("b")


def test_one_that_an_operator_asked_for_keeps_none_from_beginning(datastore: Datastore) -> None:
    a, b = record_of(datastore, "a"), record_of(datastore, "b")
    assert a.change(a.find(), Record(1, is_done=False))

    assert begin(b) is True


def test_a_record_that_is_another_one_meanwhile_is_not_changed(datastore: Datastore) -> None:
    a = record_of(datastore, "a")
    before = a.find()
    assert begin(a) is True

    assert a.begin_alone(before, begun(before)) is False


def together(store: Datastore, verb: Callable[[ControlRecord], bool | Busy]) -> list[bool | Busy]:
    """Both look around, see no other, and only then go on."""
    looked, look, first = Barrier(2), ControlRecord.other_alone, [2]

    def look_together(record: ControlRecord) -> Busy | None:
        found = look(record)
        if first[0]:
            first[0] -= 1
            looked.wait(WAIT_SECONDS)
        return found

    with patch.object(ControlRecord, "other_alone", look_together), ThreadPoolExecutor(2) as pool:
        return list(pool.map(verb, [record_of(store, "a"), record_of(store, "b")]))


def test_i5_of_two_that_begin_at_the_same_moment_one_does(datastore: Datastore) -> None:
    outcomes = together(datastore, begin)

    assert outcomes.count(True) == 1, outcomes
    assert {record_of(datastore, name).find().is_done for name in "ab"} == {True, False}


def test_control_without_the_turn_both_begin(datastore: Datastore) -> None:
    def begin_without(record: ControlRecord) -> bool | Busy:
        found = record.find()
        return record.other_alone() or record.change(found, begun(found))

    assert together(datastore, begin_without) == [True, True]


@pytest.mark.parametrize("times", [2])
def test_the_turn_is_taken_again_and_again(datastore: Datastore, times: int) -> None:
    for _time in range(times):
        for name in "ab":
            record = record_of(datastore, name)
            assert begin(record) is True
            under_way = record.find()
            assert record.change(under_way, under_way._replace(is_done=True))
