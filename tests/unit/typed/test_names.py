"""Names of classes and attributes: names in Python, whatever stands in a body, and each once."""

from __future__ import annotations

from keyword import iskeyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tripstore.models.names import USED, attribute_name, class_name, singular
from tripstore.typed import TypedRow


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("driver_partner_index", "DriverPartnerIndex"),
        ("trip_BASE", "TripBase"),
        ("trip__LEGACY-ID", "TripLegacyId"),
        ("trip_fareV2", "TripFareV2"),
        ("2nd", "Column2nd"),
        ("trip_\N{BENGALI CURRENCY NUMERATOR ONE}x", "TripX"),
        ("typed_row", "TypedRow2"),
    ],
)
def test_a_class_is_named_after_its_column_or_index(text: str, name: str) -> None:
    assert class_name(text, set()) == name


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("fare", "fare"),
        ("class", "class_"),
        ("unit price", "unit_price"),
        ("2nd", "key_2nd"),
        ("\N{BENGALI CURRENCY NUMERATOR ONE}", "key"),
        ("a\N{INSCRIPTIONAL PARTHIAN NUMBER ONE}b", "a_b"),
        ("row_key", "row_key_"),
        ("to_body", "to_body_"),
        ("str", "str_"),
        ("date", "date"),
        ("__mangled", "mangled"),
        ("", "key"),
    ],
)
def test_a_key_that_may_be_an_attribute_is_one(key: str, name: str) -> None:
    assert attribute_name(key, ()) == name


@given(st.lists(st.text(), unique=True, max_size=6))
def test_attributes_are_names_that_stand_in_nothings_way_and_differ(keys: list[str]) -> None:
    names: list[str] = []
    for key in keys:
        names.append(attribute_name(key, names))

    assert len(set(names)) == len(names)
    for name in names:
        assert name.isidentifier()
        assert not iskeyword(name)
        assert not name.startswith("__")
        assert name not in USED
        assert not hasattr(TypedRow, name)


def test_classes_that_would_have_one_name_get_a_number() -> None:
    assert class_name("trip_a-b", {"TripAB"}) == "TripAB2"
    assert attribute_name("a b", ["a_b", "a_b_2"]) == "a_b_3"


@pytest.mark.parametrize(
    ("datastore", "one"),
    [("trips", "trip"), ("cities", "city"), ("addresses", "address"), ("boxes", "box"), ("status", "status")],
)
def test_a_row_is_one_of_what_the_datastore_is_many_of(datastore: str, one: str) -> None:
    assert singular(datastore) == one
