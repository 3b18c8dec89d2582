"""The names that the design promises can be imported from where it promises them."""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import get_args
from uuid import UUID

import pytest

import schemaless_core
import tripstore
from schemaless_core.aio import Datastore as AsyncDatastore
from tripstore.aio import AsyncTripStore
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.cli.python_reference import reference
from tripstore.engines import backfill, validation
from tripstore.typed import TypedColumn, TypedIndex

PROMISED = [
    "ANY", "Bucket", "Cell", "CellConflict", "CellKey", "CellStore", "ColumnKey", "Condition", "Datastore",
    "BatchFailed", "IndexPage", "InvalidCell", "Json", "Position", "PutResult", "RowPage", "Scalar", "SchemalessError",
    "ShardPage", "StaleEpoch",
]  # fmt: skip


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_name_is_public(name: str) -> None:
    assert name in schemaless_core.__all__


@pytest.mark.parametrize("package", [schemaless_core, tripstore], ids=lambda p: p.__name__)
def test_the_stub_of_a_package_has_the_names_that_it_imports_when_asked(package: ModuleType) -> None:
    stub = ast.parse(Path(str(package.__file__)).with_suffix(".pyi").read_text())
    told: dict[str | None, set[str | None]] = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            told.setdefault(node.module, set()).update(name.asname for name in node.names)

    assert told == {module: set(names) for module, names in package._HOMES.items()}


def test_control_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="'schemaless_core' has no attribute 'Cel'"):
        getattr(schemaless_core, "Cel")  # noqa: B009  # a type checker refuses the name itself


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
        ("tripstore.engines.backfill", "BackfillError"),
        ("tripstore.engines.validation", "ValidationError"),
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


STORES = (
    schemaless_core.Datastore,
    schemaless_core.MemoryStore,
    tripstore.TripStore,
    PostgresBackend,
    AsyncDatastore,
    AsyncTripStore,
    TypedColumn,
    TypedIndex,
)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.__name__)
def test_help_says_what_every_public_method_does(store: type) -> None:
    public = [name for name, _ in inspect.getmembers(store) if not name.startswith("_")]

    assert [name for name in public if not inspect.getdoc(inspect.getattr_static(store, name))] == []


def test_control_a_method_without_a_text_of_its_own_or_inherited_is_found() -> None:
    class Silent:
        def put_cell(self) -> None: ...

    assert inspect.getdoc(Silent.put_cell) is None


def test_the_page_of_the_python_api_is_what_the_docstrings_say() -> None:
    page = ROOT / "docs" / "reference" / "python.md"

    assert page.read_text() == reference(), "run: python -m tripstore.cli.python_reference > docs/reference/python.md"


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert schemaless_core.__version__ == tripstore.__version__ == project["version"]


def test_dir_lists_the_public_names() -> None:
    assert set(dir(schemaless_core)) == {*schemaless_core.__all__, "__version__"}
