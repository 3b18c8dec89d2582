"""What a store's calls for one column give and take: typed rows, deletions, pages."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellConflict, InvalidCell, InvalidRequest, MemoryStore
from tripstore.typed import MISSING, Deleted, TypedColumn, TypedIndex, UntypedCell, typed


@pytest.fixture
def trips(memory: MemoryStore, models: ModuleType) -> TypedColumn[Any]:
    return typed(memory, models.TripBase)


def test_a_row_that_was_put_is_read_as_it_was(trips: TypedColumn[Any], models: ModuleType) -> None:
    trip = models.TripBase(
        row_key=uuid4(),
        ref_key=1,
        driver_uuid=uuid4(),
        fare=Decimal("23.50"),
        trip_created_at=datetime(2026, 3, 2, 12, tzinfo=UTC),
        tags=("night", None),
        unknown={"note": [1, 2.0]},
    )

    assert trips.put(trip).status == "CREATED"

    found = trips.latest(trip.row_key)
    assert found == trip
    assert (found.fare, str(found.fare)) == (Decimal("23.50"), "23.50")
    assert (found.tags, found.client, found.unknown) == (("night", None), MISSING, {"note": [1, 2.0]})
    assert found.read_from.created_at is not None


def test_a_new_version_is_a_changed_copy_above_the_one_that_was_read(
    trips: TypedColumn[Any], memory: MemoryStore, models: ModuleType
) -> None:
    row_key = uuid4()
    memory.put_cell(row_key, "BASE", 4, {"fare": "1.50", "status": "requested", "surge": {"by": 1.0}})
    trip: Any = trips.latest(row_key)

    done = replace(trip, ref_key=trip.next_ref_key, status="completed")
    trips.put(done, expect_latest=trip.ref_key)

    latest = memory.get_cell_latest(row_key, "BASE")
    assert latest == Cell(row_key, "BASE", 5, {"fare": "1.50", "status": "completed", "surge": {"by": 1.0}})
    with pytest.raises(CellConflict):
        trips.put(replace(trip, ref_key=6, status="cancelled"), expect_latest=4)


def test_a_value_that_was_not_changed_keeps_the_way_in_which_it_was_written(models: ModuleType) -> None:
    body: Any = {
        "fare": 1.5,
        "driver_uuid": "C4CA4238A0B923820DCC509A6F75849B",
        "trip_created_at": "2026-03-02T12:00+02:00",
    }
    trip = models.TripBase.from_cell(Cell(uuid4(), "BASE", 1, body))

    assert trip.trip_created_at == datetime(2026, 3, 2, 10, tzinfo=UTC)
    assert replace(trip, status="x").to_body() == {**body, "status": "x"}
    assert replace(trip, fare=Decimal("1.50")).to_body()["fare"] == "1.50"
    assert replace(trip, trip_created_at=None).to_body().keys() == {"fare", "driver_uuid"}


def test_a_deleted_row_is_none_and_its_history_says_when(trips: TypedColumn[Any], models: ModuleType) -> None:
    trip = models.TripBase(row_key=uuid4(), ref_key=1, status="requested")
    trips.put(trip)
    trips.delete(trip.row_key, 2, expect_latest=1)

    assert trips.latest(trip.row_key) is None
    assert trips.at(trip.row_key, 2) is None
    assert trips.at(trip.row_key, 1) == trip
    newest, first = trips.history(trip.row_key)
    assert isinstance(newest, Deleted)
    assert (newest.ref_key, first) == (2, trip)
    assert trips.latest_of([trip.row_key, uuid4()]) == [None, None]


def test_children_are_the_latest_version_of_each_that_is_there(memory: MemoryStore, models: ModuleType) -> None:
    notes, row_key = typed(memory, models.TripNotes), uuid4()
    made = [models.TripNotes(row_key=row_key, ref_key=n << 20, text=f"note {n}") for n in range(150)]
    notes.put_many(made)
    notes.put(replace(made[3], ref_key=made[3].next_ref_key, text="changed"))
    notes.delete(row_key, made[5].next_ref_key)

    found = notes.children(row_key)

    assert [note.ref_key >> 20 for note in found] == [n for n in range(150) if n != 5]
    assert found[3].text == "changed"


def test_a_child_has_a_number_and_a_ref_key_by_it(models: ModuleType) -> None:
    key = models.TripNotes.child_ref_key(7, 3)

    assert key == 7 << 20 | 3
    assert models.TripNotes(row_key=uuid4(), ref_key=key).child_number == 7
    assert models.TripStatus.child_ref_key(7) == models.TripStatus(row_key=uuid4(), ref_key=7).child_number == 7
    assert models.TripBase(row_key=uuid4(), ref_key=7).child_number is None
    for kind, number, version in ((models.TripBase, 1, 0), (models.TripStatus, 1, 1), (models.TripNotes, 1, 1 << 20)):
        with pytest.raises(InvalidRequest):
            kind.child_ref_key(number, version)
    with pytest.raises(InvalidRequest, match="has no child -1"):
        models.TripNotes.child_ref_key(-1)


def test_a_tombstone_ends_the_facts_below_it(memory: MemoryStore, models: ModuleType) -> None:
    facts, row_key = typed(memory, models.TripStatus), uuid4()
    facts.put_many([models.TripStatus(row_key=row_key, ref_key=n, result="paid") for n in (1, 2, 9)])
    facts.delete(row_key, 5)

    assert [fact.ref_key for fact in facts.children(row_key)] == [9]


def test_what_has_no_next_version_says_so(models: ModuleType, trips: TypedColumn[Any]) -> None:
    fact = models.TripStatus(row_key=uuid4(), ref_key=7)
    last = models.TripNotes(row_key=uuid4(), ref_key=(1 << 20) - 1)

    with pytest.raises(InvalidRequest, match="never changes"):
        _ = fact.next_ref_key
    with pytest.raises(InvalidRequest, match="all the versions"):
        _ = last.next_ref_key
    with pytest.raises(InvalidRequest, match=r"Call latest\(\)"):
        trips.children(uuid4())


def test_an_index_gives_rows_or_entries(trips: TypedColumn[Any], memory: MemoryStore, models: ModuleType) -> None:
    driver, keys = uuid4(), [UUID(int=n) for n in range(1, 5)]
    for n, row_key in enumerate(keys):
        trips.put(models.TripBase(row_key=row_key, ref_key=1, driver_uuid=driver, fare=Decimal(n)))
    memory.put_cell(keys[2], "RATING", 1, {"class": "gold", "stars": 5})

    page = trips.query(models.DriverIndex, driver, [("fare", ">=", Decimal(1))], order_by="fare", limit=2)
    after = trips.query(
        models.DriverIndex, driver, [("fare", ">=", Decimal(1))], order_by="fare", limit=2, cursor=page.cursor
    )
    entries = TypedIndex(memory, models.DriverIndex).query(driver, order_by="fare", descending=True)

    assert [trip.row_key for trip in page.rows + after.rows] == keys[1:]
    assert after.cursor is None
    assert entries.rows[1] == models.DriverIndex(
        row_key=keys[2], driver_uuid=driver, fare=Decimal(2), class_="gold", stars=5
    )


def test_a_row_of_a_column_that_the_index_does_not_find_is_left_out(memory: MemoryStore, models: ModuleType) -> None:
    driver, row_key = uuid4(), uuid4()
    memory.put_cell(row_key, "BASE", 1, {"driver_uuid": str(driver)})

    assert typed(memory, models.TripRating).query(models.DriverIndex, driver).rows == []


def test_rows_are_frozen_equal_by_key_and_body_and_may_be_in_sets(models: ModuleType) -> None:
    row_key = uuid4()
    one, other = (models.TripBase(row_key=row_key, ref_key=1, fare=Decimal(fare)) for fare in ("NaN", "NaN"))

    assert one == other
    assert {one, other} == {one}
    assert one != replace(one, fare=Decimal("1.0"))
    assert replace(one, fare=Decimal("1.0")) != replace(one, fare=Decimal("1.00"))
    assert one != 1
    with pytest.raises(FrozenInstanceError):
        one.fare = None


def test_rows_travel_between_processes(models: ModuleType) -> None:
    body: Any = {"fare": 1.5, "client": None, "more": [1]}
    trip = models.TripBase.from_cell(Cell(uuid4(), "BASE", 1, body))

    there = pickle.loads(pickle.dumps(trip))

    assert (there, there.to_body(), there.tags) == (trip, body, None)
    assert pickle.loads(pickle.dumps(replace(trip, client=MISSING))).client is MISSING


def test_a_class_of_ones_own_may_stand_below_a_written_one(memory: MemoryStore, models: ModuleType) -> None:
    base: Any = models.TripBase

    class Trip(base):  # type: ignore[misc]  # the module was written a moment ago
        @property
        def is_done(self) -> bool:
            return bool(self.status == "completed")

    memory.put_cell(UUID(int=1), "BASE", 1, {"status": "completed"})

    done: Any = typed(memory, Trip).latest(UUID(int=1))
    assert done.is_done


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (Cell(UUID(int=1), "NOTES", 1, {}), "is of the column BASE"),
        (Cell(UUID(int=1), "BASE", 1, None), "it is a tombstone"),
        (Cell(UUID(int=1), "BASE", 1, [1]), "its body is a list"),
        (Cell(UUID(int=1), "BASE", 1, {"fare": "secret"}), r"at \$\.fare: it is no decimal number"),
        (Cell(UUID(int=1), "BASE", 1, {"fare": True}), r"at \$\.fare: it is a bool"),
        (Cell(UUID(int=1), "BASE", 1, {"tags": ["a", 7]}), r"at \$\.tags\[1\]: it is a int"),
        (Cell(UUID(int=1), "BASE", 1, {"driver_uuid": "secret"}), "32 hexadecimal digits"),
    ],
)
def test_a_cell_that_is_none_of_the_class_is_named_without_its_values(
    cell: Cell, reason: str, models: ModuleType
) -> None:
    with pytest.raises(UntypedCell, match=reason) as raised:
        models.TripBase.from_cell(cell)

    assert "secret" not in str(raised.value)
    assert raised.value.hint is not None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"trip_created_at": datetime(2026, 3, 2)}, "no time zone"),  # noqa: DTZ001  # the point
        ({"fare": 1.5}, r"it is a float, not a decimal\.Decimal"),
        ({"fare": Decimal("-0.0")}, "no negative zero"),
        ({"fare": Decimal("sNaN")}, "a NaN that no database"),
        ({"driver_uuid": "c4ca4238"}, r"it is a str, not a uuid\.UUID"),
        ({"tags": (1,)}, r"at \$\.tags\[0\]"),
        ({"unknown": {"fare": "1"}}, "among the unknown keys"),
    ],
)
def test_a_value_that_no_body_may_have_is_refused_before_anything_is_put(
    values: dict[str, Any], reason: str, models: ModuleType
) -> None:
    trip = models.TripBase(row_key=uuid4(), ref_key=1, **values)

    with pytest.raises(InvalidCell, match=reason):
        trip.to_body()


def test_a_row_of_another_class_is_refused(trips: TypedColumn[Any], models: ModuleType) -> None:
    with pytest.raises(InvalidRequest, match=r"Put it by store\.typed\(TripNotes\)"):
        trips.put(models.TripNotes(row_key=uuid4(), ref_key=1))
