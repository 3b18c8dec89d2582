"""Child rows of a row that was found, and new ones: none is lost, and of two with one number one is told."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import CellConflict, InvalidRequest
from schemaless_core.cell.canonical import canonical_bytes, from_canonical
from schemaless_core.errors import Conflict
from tests.unit.test_rewritten import BITS, Known
from tripstore import rewritten
from tripstore.rewritten import FoundBody, children

FIELDS: children.NewFields = {"text": ("text", rewritten.text_value), "at": ("since", rewritten.datetime_text)}


S = TypeVar("S", bound=Known)


def store_with(made: S) -> tuple[S, FoundBody]:
    made.ids[7] = uuid4()
    made.put_cell(made.ids[7], "BASE", 1, {"status": "open"})
    trip = rewritten.latest_of_id(made, 7, "BASE")
    assert trip is not None
    return made, trip


def texts(store: Known, column: str = "NOTES", bits: int = BITS) -> dict[int | None, Any]:
    trip = rewritten.latest_of_id(store, 7, "BASE")
    assert trip is not None
    return {each.number: each.get("text") for each in rewritten.children_found(store, trip, column, bits=bits)}


def insert(store: Known, number: Any, text: Any, bits: int = BITS, **options: Any) -> bool:
    row = {"trip_id": 7, "n": number, "text": text}
    column = "NOTES" if bits else "STATUS"
    options = {"parent_column": "BASE", **options}
    return rewritten.insert_child_of_id(store, column, row, ("trip_id", "n"), FIELDS, bits=bits, **options)


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
def test_child_rows_are_found_in_the_order_of_their_numbers_each_by_its_latest_version(
    page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "PAGE", page)
    store, trip = store_with(Known())
    for number, versions in ((0, 1), (1, 3), (2, 1), (9, 4)):
        for version in range(versions):
            store.put_cell(trip.row_key, "NOTES", (number << BITS) + version, {"text": f"{number}.{version}"})
    store.put_cell(trip.row_key, "NOTES", (2 << BITS) + 1, None)

    found = rewritten.children_found(store, trip, "NOTES", bits=BITS)

    assert [(each.number, each["text"]) for each in found] == [(0, "0.0"), (1, "1.2"), (9, "9.3")]
    assert rewritten.change_found(store, found[-1], {"text": "x"})
    assert texts(store)[9] == "x"


def test_they_are_read_once_as_those_of_an_object_are() -> None:
    store, trip = store_with(Known())
    assert rewritten.children_found(store, trip, "NOTES", bits=BITS) == []

    insert(store, 1, "late")

    assert rewritten.children_found(store, trip, "NOTES", bits=BITS) == []
    assert texts(store) == {1: "late"}


def test_a_new_row_is_put_under_its_number_and_again_above_its_tombstone() -> None:
    store, trip = store_with(Known())

    for text in ("first", "second"):
        row = {"n": 3, "text": text, "at": None}
        rewritten.insert_child(store, trip, "NOTES", row, "n", FIELDS, bits=BITS, keeps_null=("since",))
        assert store.get_history(trip.row_key, "NOTES")[0].body == {"text": text, "since": None}
        assert rewritten.delete_child_of_id(store, 7, "NOTES", 3, bits=BITS)

    assert [cell.ref_key - (3 << BITS) for cell in store.get_history(trip.row_key, "NOTES")] == [3, 2, 1, 0]


def test_i2_of_two_that_take_one_number_one_is_told_though_both_say_the_same() -> None:
    store, _trip = store_with(Known())
    insert(store, 1, "one")

    for text in ("one", "two"):
        with pytest.raises(Conflict, match="number 1"):
            insert(store, 1, text)
    assert texts(store) == {1: "one"}


class Overtaken(Known):
    """Before a put of a note another writer puts the same number, and perhaps deletes it."""

    first: tuple[Any, ...] = ()

    def put_cell(self, row_key: UUID, column_name: str, ref_key: int, body: Any, **options: Any) -> Any:
        bodies, self.first = (self.first, ()) if column_name != "BASE" else ((), self.first)
        for version, each in enumerate(bodies):
            super().put_cell(row_key, column_name, ref_key + version, each)
        return super().put_cell(row_key, column_name, ref_key, body, **options)


@pytest.mark.parametrize("theirs", [{"text": "theirs"}, {"text": "ours"}])
@pytest.mark.parametrize("bits", [BITS, 0])
def test_i2_a_new_row_that_is_overtaken_never_replaces_the_other(theirs: Any, bits: int) -> None:
    store, _trip = store_with(Overtaken())
    store.first = (theirs,)
    with pytest.raises((Conflict, CellConflict)):
        insert(store, 1, "ours", bits)
    assert texts(store, "NOTES" if bits else "STATUS", bits) == {1: theirs["text"]}


def test_i2_where_it_is_said_what_becomes_of_one_that_is_there_that_happens_when_overtaken_as_well() -> None:
    store, _trip = store_with(Overtaken())
    store.first = ({"text": "theirs"},)
    assert not insert(store, 1, "ours", unless_there=True)
    assert texts(store) == {1: "theirs"}
    store.first = ({"text": "theirs", "since": "then"}, {"text": "theirs, later", "since": "then"})
    assert insert(store, 2, "ours", changes=("text",))
    assert store.get_history(store.ids[7], "NOTES")[0].body == {"text": "ours", "since": "then"}
    store.first = ({"text": "theirs"}, None)  # put, and deleted again
    assert insert(store, 3, "ours", unless_there=True)
    assert texts(store)[3] == "ours"


def test_one_that_is_there_stays_or_gets_what_is_said_of_the_new_one() -> None:
    store, _trip = store_with(Known())
    insert(store, 1, "first")

    assert not insert(store, 1, "second", unless_there=True)
    assert texts(store) == {1: "first"}
    assert insert(store, 1, None, changes=("text",))
    assert texts(store) == {1: None}
    assert insert(store, 2, "new", changes=("text",))
    assert insert(store, 3, "new", unless_there=True)
    assert texts(store) == {1: None, 2: "new", 3: "new"}


def test_facts_are_put_under_their_numbers_above_the_tombstone_that_ends_those_before() -> None:
    store, trip = store_with(Known())
    insert(store, 1, "one", 0)
    store.put_cell(trip.row_key, "STATUS", 2, None)

    insert(store, 3, "three", 0)
    insert(store, 5, "five", 0)
    insert(store, 4, "four", 0)
    for number in (1, 2):
        with pytest.raises((InvalidRequest, Conflict)):
            insert(store, number, "again", 0)
    assert store.get_cell(trip.row_key, "STATUS", 4) is not None


UNFIT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"n": None}, {}, "lacks"),
    ({"trip_id": None}, {}, "lacks"),
    ({"text": None}, {"required": ("text",)}, "lacks"),
    ({"memo": "x"}, {}, "no field holds"),
    ({"n": -1}, {}, "no number"),
    ({"n": "1"}, {}, "no whole number"),
    ({"n": 1 << 31}, {"number_bits": 32}, "out of range"),
    ({"text": 5}, {}, "no text"),
    ({"trip_id": 8}, {}, "No row has the id"),
]


@pytest.mark.parametrize(("change", "options", "match"), UNFIT)
def test_what_postgres_would_refuse_is_refused_and_nothing_is_put(
    change: dict[str, Any], options: dict[str, Any], match: str
) -> None:
    store, trip = store_with(Known())
    row = {"trip_id": 7, "n": 1, "text": "x"} | change
    options = {"parent_column": "BASE", "bits": BITS, **options}

    with pytest.raises((InvalidRequest, Conflict), match=match):
        rewritten.insert_child_of_id(store, "NOTES", row, ("trip_id", "n"), FIELDS, **options)

    assert store.get_history(trip.row_key, "NOTES") == []


def test_no_child_is_put_below_a_row_that_is_gone() -> None:
    store, trip = store_with(Known())
    store.put_cell(trip.row_key, "BASE", 2, None)

    with pytest.raises(Conflict, match="No row"):
        insert(store, 1, "x")


def test_a_number_that_has_had_all_of_its_versions_does_not_become_the_next_one() -> None:
    store, trip = store_with(Known())
    store.put_cell(trip.row_key, "NOTES", (3 << BITS) - 1, None)

    with pytest.raises(InvalidRequest, match="all of its versions"):
        insert(store, 2, "once more")


def test_lists_and_documents_are_what_a_column_keeps() -> None:
    assert rewritten.list_value(["a", None], rewritten.text_value) == ["a", None]
    assert rewritten.as_list(["NaN", None, 1.5], rewritten.as_float)[1:] == [None, 1.5]  # type: ignore[index]  # it is a list
    known = ["a"]
    assert rewritten.as_list(known) == known
    assert rewritten.as_list(known) is not known
    assert rewritten.as_list(None) is rewritten.list_value(None, rewritten.text_value) is None
    assert rewritten.json_value({"a": [1, 0.5, None, True, "é"]}) == {"a": [1, 0.5, None, True, "é"]}
    assert rewritten.json_object(None) is None


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (rewritten.json_value, {1: "a"}),
        (rewritten.json_value, (1, 2)),
        (rewritten.json_value, float("nan")),
        (rewritten.json_value, -0.0),
        (rewritten.json_value, 5.4e22),  # jsonb writes its digits out, which is an int
        (rewritten.json_value, {"a": Decimal(1)}),
        (rewritten.json_value, ["a\0"]),
        (rewritten.json_value, {"a\0": 1}),
        (rewritten.json_value, 1 << 64),
        (rewritten.json_object, "{}"),
        (rewritten.json_object, []),
        (lambda value: rewritten.list_value(value, rewritten.text_value), ("a",)),
        (lambda value: rewritten.list_value(value, rewritten.text_value), [["a"]]),
    ],
)
def test_what_comes_back_in_another_form_is_refused(write: Any, value: Any) -> None:
    with pytest.raises(InvalidRequest):
        write(value)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(0.001, 1e15)
        | st.text("aé \"'", max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    )
)
def test_a_document_survives_the_way_into_a_body(value: Any) -> None:
    made = rewritten.json_value(value)

    assert from_canonical(canonical_bytes(made)) == value
    assert canonical_bytes(made) == canonical_bytes(value)
