"""The names that the design promises can be imported from where it promises them."""

from __future__ import annotations

import importlib
from datetime import datetime
from decimal import Decimal
from typing import get_args
from uuid import UUID

import pytest

import backfill
import schemaless_core
import tripstore
import validation

PROMISED = [
    "ANY", "Bucket", "Cell", "CellConflict", "CellKey", "CellStore", "ColumnKey", "Condition", "Datastore",
    "BatchFailed", "IndexPage", "InvalidCell", "Json", "Position", "PutResult", "RowPage", "Scalar", "SchemalessError",
    "ShardPage", "StaleEpoch",
]  # fmt: skip


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_is_public(name: str) -> None:
    assert name in schemaless_core.__all__


@pytest.mark.parametrize("package", [schemaless_core, tripstore, backfill, validation], ids=lambda p: p.__name__)
def test_public_names_exist_and_stand_in_order(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]  # every package of ours says what is public

    assert len(set(names)) == len(names)
    assert all(hasattr(package, name) for name in names)
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("package", "base"),
    [
        ("schemaless_core", "SchemalessError"),
        ("tripstore", "TripstoreError"),
        ("backfill", "BackfillError"),
        ("validation", "ValidationError"),
    ],
)
def test_each_package_has_its_error_base_with_a_hint(package: str, base: str) -> None:
    kind = getattr(importlib.import_module(package), base)

    error = kind("It broke.", hint="Mend it.")

    assert isinstance(error, Exception)
    assert str(error) == "It broke. Mend it."


def test_every_error_of_the_core_is_public_and_has_one_base() -> None:
    errors = importlib.import_module("schemaless_core.errors")
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    }

    assert all(issubclass(kind, schemaless_core.SchemalessError) for kind in kinds.values())
    assert set(kinds) - set(schemaless_core.__all__) == {"ConnectionBroken"}  # it is repeated inside


def test_a_scalar_is_what_an_index_can_hold() -> None:
    assert set(get_args(schemaless_core.Scalar)) == {str, int, float, bool, Decimal, UUID, datetime}


def test_results_have_the_promised_fields() -> None:
    def fields(kind: object) -> list[str]:
        return list(kind.__annotations__)

    assert fields(schemaless_core.Cell) == ["row_key", "column_name", "ref_key", "body", "added_id", "created_at"]
    assert fields(schemaless_core.PutResult) == ["status", "readable", "shard", "ref_key", "epoch", "added_id"]
    assert fields(schemaless_core.ShardPage) == ["cells", "next_location", "position", "head"]
    assert fields(schemaless_core.Position) == ["store", "epoch", "added_id"]
    assert fields(schemaless_core.IndexPage) == ["entries", "cursor"]
    assert list(schemaless_core.PutStatus.__members__) == ["CREATED", "EXISTS", "BUFFERED"]
