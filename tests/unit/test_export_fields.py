"""What the values of bodies are in the files of an export, for every type of a layout."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from schemaless_core import Cell, Json
from tripstore.backends.postgres.layout.layout import FieldType
from tripstore.export.fields import ExportSchema, schemas_of
from tripstore.models.shapes import ColumnShape, KeyShape

ROW = UUID(int=7)
AT = datetime(2026, 11, 29, 12, tzinfo=UTC)


def rows(schema: ExportSchema, *bodies: Json) -> tuple[list[dict[str, Any]], Counter[str]]:
    misfits = Counter[str]()
    cells = [(3, Cell(ROW, "BASE", n, body, n + 1, AT)) for n, body in enumerate(bodies)]
    batch = schema.rows(cells, misfits)
    return batch.to_pylist(), misfits


def read(kind: FieldType, value: Json) -> Any:
    """What it is in the file; `Ellipsis`: it is in the body alone, and counted."""
    (row,), misfits = rows(ExportSchema("BASE", [KeyShape("x", kind)]), {"x": value})
    assert misfits in ({}, {"BASE.x": 1})
    assert not misfits or row["x"] is None
    return ... if misfits else row["x"]


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (FieldType.UUID, str(ROW), ROW),
        (FieldType.UUID, "x", ...),
        (FieldType.STRING, "a" * 5_000, "a" * 5_000),
        (FieldType.STRING, 1, ...),
        (FieldType.INT, -(2**63), -(2**63)),
        (FieldType.INT, 2**63, ...),
        (FieldType.INT, True, ...),
        (FieldType.INT, 1.0, ...),
        (FieldType.FLOAT, 1, 1.0),
        (FieldType.FLOAT, "-Infinity", float("-inf")),
        (FieldType.FLOAT, 2**53 + 1, ...),
        (FieldType.DECIMAL, "1.10", Decimal("1.100000000")),
        (FieldType.DECIMAL, "-" + "9" * 29 + ".999999999", Decimal("-" + "9" * 29 + ".999999999")),
        (FieldType.DECIMAL, "1" + "0" * 29, ...),
        (FieldType.DECIMAL, "0.0000000001", ...),
        (FieldType.DECIMAL, "0.5" + "0" * 100, Decimal("0.500000000")),
        (FieldType.DECIMAL, "NaN", ...),
        (FieldType.BOOLEAN, False, False),
        (FieldType.BOOLEAN, 0, ...),
        (FieldType.DATETIME, "0001-01-01T00:00:00.000001Z", datetime(1, 1, 1, 0, 0, 0, 1, UTC)),
        (FieldType.DATETIME, "2014-08-01T12:00:00", ...),
        (FieldType.DATETIME, "2014-08-01T12:00:00.0000001Z", ...),
        (FieldType.DATE, "2014-08-01", date(2014, 8, 1)),
        (FieldType.DATE, "infinity", ...),
        (FieldType.BYTES, "AP8=", b"\x00\xff"),
        (FieldType.BYTES, "?", ...),
        (FieldType.JSON, {"b": [1, None], "a": 2**63}, '{"a":9223372036854775808,"b":[1,null]}'),
        (FieldType.ARRAY, ["a", None, [1]], '["a",null,[1]]'),
        (FieldType.ARRAY, {}, ...),
        (FieldType.STRING, None, None),
    ],
)
def test_a_value_is_exact_or_in_the_body_alone(kind: FieldType, value: Json, wanted: Any) -> None:
    assert read(kind, value) == wanted


def test_every_type_of_a_layout_has_one_in_the_files() -> None:
    assert all(read(kind, None) is None for kind in FieldType)


def test_a_field_that_is_called_like_another_one_has_a_name_of_its_own() -> None:
    keys = [KeyShape(name, FieldType.INT) for name in ("body", "City", "city", "city_", "day")]
    (row,), misfits = rows(ExportSchema("BASE", keys), {"body": 1, "City": 2, "city": 3, "city_": 4, "day": 5})

    assert [row[name] for name in ("body_", "City", "city_", "city__", "day_")] == [1, 2, 3, 4, 5]
    assert row["body"] == '{"City":2,"body":1,"city":3,"city_":4,"day":5}'
    assert (row["row_key"], row["ref_key"], row["shard"], row["added_id"], row["created_at"]) == (ROW, 0, 3, 1, AT)
    assert not misfits


def test_a_column_that_nothing_describes_has_its_bodies() -> None:
    schemas = schemas_of([ColumnShape("BASE", (KeyShape("x", FieldType.INT),), None, None)])

    (row,), misfits = rows(schemas["OTHER"], "text")

    assert (row["body"], misfits) == ('"text"', {})
    assert "x" not in row
