"""What rewritten code calls: each value survives the way into a body and back, and of two changes none is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from math import inf, isnan, nan
from types import ModuleType
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import MultipleResultsFound, NoResultFound

from schemaless_core import CellConflict, InvalidRequest, MemoryStore
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.errors import Conflict
from tripstore import rewritten

BITS = 20


class Known(MemoryStore):
    """A store whose rows have legacy ids."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[int, UUID] = {}

    def resolve_id(self, number: int) -> UUID | None:
        assert type(number) is int, "an id that is no int is refused by real stores"
        return self.ids.get(number)

    def legacy_id(self, row_key: UUID) -> int | None:
        return self.legacy_ids([row_key]).get(row_key)

    def legacy_ids(self, row_keys: Iterable[UUID]) -> dict[UUID, int]:
        known = {row_key: number for number, row_key in self.ids.items()}
        return {row_key: known[row_key] for row_key in row_keys if row_key in known}


@pytest.fixture
def store() -> Known:
    made = Known()
    made.ids[7] = uuid4()
    made.put_cell(made.ids[7], "BASE", 1, {"status": "open", "fare": "1.00"})
    return made


def body(store: Known, column: str = "BASE") -> Any:
    cell = store.get_cell_latest(store.ids[7], column)
    assert cell is not None
    return cell.body


def test_a_row_that_is_there_is_true_and_one_that_is_not_is_none(store: Known) -> None:
    store.put_cell(store.ids[7], "BASE", 2, {})

    found = rewritten.latest_of_id(store, 7, "BASE")

    assert found == {}
    assert found
    assert rewritten.latest_of_id(store, "7", "BASE") == {}
    for absent in (8, None):
        assert rewritten.latest_of_id(store, absent, "BASE") is None
    store.put_cell(store.ids[7], "BASE", 3, None)
    assert rewritten.latest_of_id(store, 7, "BASE") is None
    assert not rewritten.change_of_id(store, 7, "BASE", {"status": "x"})
    assert body(store) is None


def test_what_has_to_be_there_raises_as_sqlalchemy_and_flask_do(store: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = ModuleType("werkzeug.exceptions")
    monkeypatch.setattr(errors, "NotFound", type("NotFound", (Exception,), {}), raising=False)
    monkeypatch.setitem(sys.modules, errors.__name__, errors)  # Flask is the application's, not ours
    there = rewritten.latest_of_id(store, 7, "BASE")

    assert rewritten.required(there) is rewritten.or_404(there) is there
    with pytest.raises(NoResultFound):
        rewritten.required(None)
    with pytest.raises(errors.NotFound):
        rewritten.or_404(None)
    assert (rewritten.number_of(there), rewritten.number_of(None), rewritten.tuple_of(None, tuple)) == (7, None, None)


def test_a_change_takes_what_it_names_and_null_is_a_missing_field_unless_it_is_kept(store: Known) -> None:
    changes: dict[str, Any] = {"fare": None, "at": None, "status": "billed"}

    assert rewritten.change_of_id(store, 7, "BASE", changes, keeps_null=("at",))

    assert body(store) == {"status": "billed", "at": None}


def test_the_same_again_is_no_new_version(store: Known) -> None:
    rewritten.change_of_id(store, 7, "BASE", {"status": "open"})

    assert [cell.ref_key for cell in store.get_history(store.ids[7], "BASE")] == [1]


class Overtaken(Known):
    """Another writer puts a version between each read and the first `times` puts."""

    times = 1

    def put_cell(self, row_key: UUID, column_name: str, ref_key: int, body: Any, **options: Any) -> Any:
        if self.times:
            self.times -= 1
            super().put_cell(row_key, column_name, ref_key, {"other": self.times})
        return super().put_cell(row_key, column_name, ref_key, body, **options)


@pytest.mark.parametrize("column", ["BASE", "NOTES"])
def test_i2_a_change_that_is_overtaken_is_made_to_what_the_other_left(column: str) -> None:
    store = Overtaken()
    store.times, store.ids[7] = 0, uuid4()
    store.put_cell(store.ids[7], column, 3 << BITS, {"status": "open"})
    store.times = 2

    if column == "BASE":
        assert rewritten.change_of_id(store, 7, column, {"status": "x"})
    else:
        assert rewritten.change_child_of_id(store, 7, column, 3, {"status": "x"}, bits=BITS)

    assert body(store, column) == {"other": 0, "status": "x"}


COMPUTED = {
    "fare": rewritten.added_decimal("fare", Decimal("0.505"), 2),
    "status": rewritten.joined_text("status", "!"),
    "rides": rewritten.added_int("rides", 1),
}


def test_computed_values_are_those_of_the_row_that_the_change_meets(store: Known) -> None:
    assert rewritten.change_of_id(store, 7, "BASE", COMPUTED)
    assert body(store) == {"fare": "1.51", "status": "open!"}  # NULL + 1 is NULL
    assert rewritten.change_of_id(store, 7, "BASE", {"status": rewritten.joined_text("status", None)})
    assert body(store) == {"fare": "1.51"}
    with pytest.raises(InvalidRequest, match="out of range"):
        rewritten.change_of_id(store, 7, "BASE", {"fare": rewritten.added_decimal("fare", 99, 2, 4)})
    assert body(store) == {"fare": "1.51"}


def test_i2_a_computed_change_that_is_overtaken_is_computed_again() -> None:
    store = Overtaken()
    store.times, store.ids[7] = 0, uuid4()
    store.put_cell(store.ids[7], "BASE", 1, {"other": 40})
    store.times = 3

    assert rewritten.change_of_id(store, 7, "BASE", {"other": rewritten.added_int("other", 7)})

    assert body(store) == {"other": 7}  # the others left 2, 1 and 0


def test_of_two_that_compute_the_same_at_once_one_is_told(store: Known) -> None:
    """Both make the same version of the same one: silence would lose one of them."""
    one, other = rewritten.latest_of_id(store, 7, "BASE"), rewritten.latest_of_id(store, 7, "BASE")
    assert one is not None
    assert other is not None

    assert rewritten.change_found(store, one, {"fare": "2.00"}, unless_changed=True)
    with pytest.raises(Conflict, match="already"):
        rewritten.change_found(store, other, {"fare": "2.00"}, unless_changed=True)
    with pytest.raises(CellConflict):
        rewritten.change_found(store, other, {"fare": "3.00"}, unless_changed=True)
    assert rewritten.change_found(store, other, {"fare": "1.00"}, unless_changed=True)  # no UPDATE, no conflict
    assert body(store) == {"status": "open", "fare": "2.00"}


def test_a_child_that_is_deleted_is_gone_and_others_stay(store: Known) -> None:
    for number in (1, 2):
        store.put_cell(store.ids[7], "NOTES", number << BITS, {"text": str(number)})

    assert rewritten.delete_child_of_id(store, 7, "NOTES", 1, bits=BITS)

    numbers = [rewritten.child_of_id(store, 7, "NOTES", number, bits=BITS) for number in (1, 2)]
    assert numbers == [None, {"text": "2"}]
    assert not rewritten.delete_child_of_id(store, 7, "NOTES", 1, bits=BITS)
    last, row = rewritten.child_of_id(store, 7, "NOTES", 2, bits=BITS), rewritten.latest_of_id(store, 7, "BASE")
    assert last is not None
    assert row is not None
    assert [rewritten.delete_found(store, last), rewritten.delete_found(store, last)] == [True, False]
    with pytest.raises(InvalidRequest, match="no child rows"):
        rewritten.delete_found(store, row)
    assert not rewritten.delete_child_of_id(store, 8, "NOTES", 1, bits=BITS)


def test_control_who_is_always_overtaken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Overtaken()
    store.times, store.ids[7] = 0, uuid4()
    store.put_cell(store.ids[7], "BASE", 1, {})
    store.times = 10_000

    with pytest.raises(CellConflict):
        rewritten.change_of_id(store, 7, "BASE", {"status": "x"})


def test_a_child_is_found_by_its_number_among_versions_of_others(store: Known) -> None:
    for ref_key, text in ((1 << BITS, "a"), (2 << BITS, "b"), ((2 << BITS) + 1, "c"), (5 << BITS, None)):
        store.put_cell(store.ids[7], "NOTES", ref_key, None if text is None else {"text": text})

    numbers = (0, 1, 2, 3, 4, 5, 6)
    found = [rewritten.child_of_id(store, 7, "NOTES", number, bits=BITS) for number in numbers]

    assert [each and each["text"] for each in found] == [None, "a", "c", None, None, None, None]
    assert found[2] is not None
    assert found[2].number == 2
    assert rewritten.change_found(store, found[2], {"text": "d"})
    assert rewritten.child_of_id(store, 7, "NOTES", 2, bits=BITS) == {"text": "d"}
    assert not rewritten.change_child_of_id(store, 7, "NOTES", 3, {"text": "d"}, bits=BITS)


def test_a_child_that_has_had_all_versions_does_not_become_the_next_one(store: Known) -> None:
    store.put_cell(store.ids[7], "NOTES", (3 << BITS) - 1, {"text": "last"})

    with pytest.raises(InvalidRequest, match="all of its versions"):
        rewritten.change_child_of_id(store, 7, "NOTES", 2, {"text": "one more"}, bits=BITS)


def test_values_of_a_column_come_back_as_the_driver_gave_them() -> None:
    moment = datetime(2026, 3, 29, 1, 30, 0, 5, tzinfo=timezone(timedelta(hours=10, minutes=30)))

    assert rewritten.datetime_text(moment) == "2026-03-28T15:00:00.000005Z"
    assert rewritten.as_datetime("2026-03-28T15:00:00.000005Z") == moment
    assert rewritten.as_date(rewritten.date_text(date(2026, 3, 1))) == date(2026, 3, 1)
    assert rewritten.as_bytes(rewritten.bytes_text(b"\x00\xff")) == b"\x00\xff"
    assert rewritten.as_float(rewritten.float_value(-inf)) == -inf
    assert isnan(cast(float, rewritten.as_float(rewritten.float_value(nan))))
    assert (rewritten.float_value(3), type(rewritten.float_value(3))) == (3.0, float)
    nulls = (rewritten.as_decimal, rewritten.as_datetime, rewritten.as_date, rewritten.as_bytes, rewritten.as_float)
    assert [each(None) for each in nulls] == [None] * 5


UNFIT: list[tuple[Any, tuple[Any, ...]]] = [
    (rewritten.text_value, (5,)),
    (rewritten.text_value, ("a\0",)),
    (rewritten.text_value, ("four", 3)),
    (rewritten.int_value, (True,)),
    (rewritten.int_value, ("7",)),
    (rewritten.int_value, (1 << 15, 16)),
    (rewritten.bool_value, (1,)),
    (rewritten.date_text, (datetime(2026, 3, 1, 23, tzinfo=UTC),)),  # another day in other zones
    (rewritten.decimal_text, (Decimal("99.995"), 2, 4)),
]


@pytest.mark.parametrize(("write", "arguments"), UNFIT)
def test_what_a_column_would_refuse_or_make_another_value_of_is_refused(write: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequest):
        write(*arguments)


def test_values_become_what_a_column_makes_of_them() -> None:
    class Status(StrEnum):
        OPEN = "open"

    assert canonical_bytes(rewritten.text_value(Status.OPEN)) == b'"open"'
    assert rewritten.text_value("abc  ", 4) == "abc "  # Postgres drops spaces beyond the length
    assert rewritten.int_value(-(1 << 31), 32) == -(1 << 31)
    assert rewritten.decimal_text(Decimal("99.994"), 2, 4) == "99.99"
    assert rewritten.uuid_text("{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}") == "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    every = (rewritten.text_value, rewritten.int_value, rewritten.bool_value, rewritten.date_text, rewritten.uuid_text)
    assert [each(None) for each in every] == [None] * 5


def test_what_an_object_gets_the_same_again_is_not_written_over_what_another_wrote(store: Known) -> None:
    """SQLAlchemy names only columns in an UPDATE whose values are new."""
    found = rewritten.latest_of_id(store, 7, "BASE")
    assert found is not None
    rewritten.change_of_id(store, 7, "BASE", {"status": "cancelled", "memo": "theirs"})

    rewritten.change_found(store, found, {"status": "open", "memo": None, "fare": "2.00"})

    assert body(store) == {"status": "cancelled", "memo": "theirs", "fare": "2.00"}


def test_a_time_without_zone_and_a_float_as_money_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="no time zone"):
        rewritten.datetime_text(datetime(2026, 3, 1))  # noqa: DTZ001  # that is the case
    with pytest.raises(InvalidRequest, match="no decimal"):
        rewritten.decimal_text(cast(Decimal, 1.5), 2)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9), st.integers(0, 6))
def test_money_is_rounded_half_away_from_zero_and_keeps_its_scale(value: Decimal, scale: int) -> None:
    text = rewritten.decimal_text(value, scale)

    assert text is not None
    assert abs(Decimal(text) - value) <= Decimal(1).scaleb(-scale) / 2
    assert len(text.partition(".")[2]) == scale
    assert not text.startswith("-0") or Decimal(text) != 0
    assert rewritten.decimal_text(Decimal("0.5"), 0) == "1"
    assert rewritten.decimal_text(Decimal("-2.5"), 0) == "-3"


def test_a_key_of_no_row_finds_nothing_and_is_never_written() -> None:
    class Cursor:
        def execute(self, statement: str, values: tuple[int]) -> None:
            assert statement == 'SELECT "user_uuid" FROM "hr"."users" WHERE "id" = %s', statement
            self.values = values

        def fetchone(self) -> tuple[str] | None:
            return ("11111111-1111-1111-1111-111111111111",) if self.values == (1,) else None

    look = ("hr.users", "id", "user_uuid")
    assert rewritten.looked_up(Cursor(), *look, 1) == UUID(int=0x11111111111111111111111111111111)
    assert rewritten.looked_up(Cursor(), *look, None) is None
    assert rewritten.found(Known(), "any", rewritten.NO_ROW, column_name="BASE") == []
    with pytest.raises(InvalidRequest, match="No row"):
        rewritten.looked_up(Cursor(), *look, 2)
    assert rewritten.looked_up(Cursor(), *look, 2, or_else=rewritten.NO_ROW) is rewritten.NO_ROW
    with pytest.raises(InvalidRequest, match="rows without"):  # SQLAlchemy would look for NULL, and find rows
        rewritten.looked_up(Cursor(), *look, None, or_else=rewritten.NO_ROW)


def test_a_query_reads_all_pages_or_as_many_rows_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from schemaless_core.definitions.index import IndexDefinition
    from tripstore.rewritten import reads

    class Indexed(Known):
        def __init__(self) -> None:
            column = {
                "column_key": "BASE",
                "fields": [{"field": "city", "type": "string"}, {"field": "n", "type": "int"}],
            }
            definition = IndexDefinition.from_document({"table": "by_city", "column_defs": [column]}, "x", "trips")
            MemoryStore.__init__(self, indexes=[definition])
            self.ids = {}

    monkeypatch.setattr(reads, "PAGE", 2)
    store = Indexed()
    for number in range(5):
        store.ids[number] = uuid4()
        store.put_cell(store.ids[number], "BASE", 1, {"city": "SF", "n": number})

    def asked(**options: Any) -> list[int | None]:
        return [
            each.number for each in rewritten.found(store, "by_city", "SF", column_name="BASE", order_by="n", **options)
        ]

    assert asked() == [0, 1, 2, 3, 4]
    assert asked(limit=3, descending=True) == [4, 3, 2]
    assert (asked(limit=0), asked(limit=9)) == ([], [0, 1, 2, 3, 4])
    first = rewritten.found_first(store, "by_city", "SF", column_name="BASE", order_by="n")
    assert first is not None
    assert first["n"] == 0
    assert rewritten.found_first(store, "by_city", "LA", column_name="BASE") is None
    one = rewritten.found_one(store, "by_city", "SF", [("n", "=", 3)], column_name="BASE")
    assert one is not None
    assert one.number == 3
    assert rewritten.found_one(store, "by_city", "LA", column_name="BASE") is None
    with pytest.raises(MultipleResultsFound):
        rewritten.found_one(store, "by_city", "SF", column_name="BASE")


def test_a_row_is_found_by_its_key_only_if_it_is_like_this_besides(store: Known) -> None:
    found = rewritten.latest_of_id(store, 7, "BASE")

    assert rewritten.only_if(found, {"status": "open", "fare": "1.00"}) is found
    assert rewritten.only_if(found, {"status": "open", "fare": "2.00"}) is None
    assert rewritten.only_if(found, {"memo": ""}) is None  # NULL is equal to nothing
    assert rewritten.only_if(None, {"status": "open"}) is None
    with pytest.raises(InvalidRequest, match="None"):
        rewritten.only_if(found, {"memo": None})


@pytest.mark.parametrize(
    ("value", "number"),
    [("7", 7), (" -7 ", -7), ("+07", 7), (7, 7), (None, None), ("7.0", "7.0"), ("1_0", "1_0"), ("", ""), ("٧", "٧")],
)
def test_a_whole_number_may_be_a_text_as_postgres_takes_it(value: Any, number: Any) -> None:
    assert rewritten.whole_number(value) == number
    assert type(rewritten.whole_number(value)) is type(number)
