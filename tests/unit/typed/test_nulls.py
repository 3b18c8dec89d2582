"""None, null and a missing key: what each is in a body, and that none becomes another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar
from uuid import UUID

import pytest

from schemaless_core import Cell, Json
from tripstore.typed import INTS, JSON, MISSING, TypedRow, stored

KEYS = ("plain", "kept", "json", "json_kept")


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Nulls(TypedRow):
    """One key of each kind."""

    column_name: ClassVar[str] = "NULLS"

    plain: int | None = stored(INTS)
    kept: int | None = stored(INTS, keeps_null=True)
    json: object = stored(JSON)
    json_kept: object = stored(JSON, keeps_null=True)


def read(body: dict[str, Json]) -> Nulls:
    return Nulls.from_cell(Cell(UUID(int=1), "NULLS", 1, body))


def test_a_new_row_writes_null_where_the_layout_keeps_it() -> None:
    assert Nulls(row_key=UUID(int=1), ref_key=1).to_body() == {"kept": None, "json_kept": None}
    assert Nulls(row_key=UUID(int=1), ref_key=1, json=None).to_body() == {"kept": None, "json_kept": None, "json": None}


def test_every_mixture_of_null_missing_and_values_comes_back() -> None:
    for states in product(("missing", None, 7), repeat=len(KEYS)):
        body: dict[str, Json] = {key: state for key, state in zip(KEYS, states, strict=True) if state != "missing"}
        row = read(body)

        assert row.to_body() == body
        assert (row.json is MISSING) == ("json" not in body)
        assert row.plain == body.get("plain")


@pytest.mark.parametrize(("key", "left"), [("plain", {}), ("kept", {"kept": None})])
def test_a_value_that_is_taken_away_is_what_the_layout_says(key: str, left: dict[str, Json]) -> None:
    row = replace(read({key: 7}), **{key: None})  # type: ignore[arg-type]  # the key is a parameter

    assert row.to_body() == left


def test_json_has_a_null_of_its_own() -> None:
    assert replace(read({"json": 7}), json=None).to_body() == {"json": None}
    assert replace(read({"json": 7}), json=MISSING).to_body() == {}
    assert not MISSING
    assert repr(MISSING) == "MISSING"
