"""What a type of a layout is in Python, as text: the annotation, and the form that reads and writes it."""

from __future__ import annotations

from schemaless_core.definitions.values import IndexFieldType
from tripstore.backends.postgres.layout.layout import FieldType
from tripstore.models.shapes import KeyShape

#: By type the annotation and the form. Times beyond Python's are text, so their types say both.
_TYPES = {
    FieldType.UUID: ("UUID", "UUIDS"),
    FieldType.STRING: ("str", "STRINGS"),
    FieldType.INT: ("int", "INTS"),
    FieldType.FLOAT: ("float", "FLOATS"),
    FieldType.DECIMAL: ("Decimal", "DECIMALS"),
    FieldType.BOOLEAN: ("bool", "BOOLEANS"),
    FieldType.DATETIME: ("dt.datetime | TimeText", "DATETIMES"),
    FieldType.DATE: ("dt.date | TimeText", "DATES"),
    FieldType.BYTES: ("bytes", "BYTES"),
    FieldType.JSON: ("Json", "JSON"),
}
#: Values of an index have all an exact type.
_OF_INDEX = {IndexFieldType.DATETIME: "dt.datetime"}


def annotation(key: KeyShape) -> str:
    """Any key may be missing: of rows before their column was NOT NULL, and of what another layout wrote."""
    if key.kind is FieldType.ARRAY:
        return f"{_array(key.items or FieldType.STRING)} | None"
    if key.kind is FieldType.JSON:
        return "Json" if key.keeps_null else "Json | Missing"
    return f"{_TYPES[key.kind][0]} | None"


def form(key: KeyShape) -> str:
    if key.kind is FieldType.ARRAY:
        return f"array_of({_TYPES[key.items or FieldType.STRING][1]})"
    return _TYPES[key.kind][1]


def annotation_of_index(kind: IndexFieldType) -> str:
    return _OF_INDEX.get(kind) or _TYPES[FieldType(kind.value.lower())][0]


def _array(items: FieldType) -> str:
    if items is FieldType.JSON:  # None is one of them, and lists are
        return "tuple[Json, ...]"
    return f"tuple[{_TYPES[items][0]} | None, ...] | NestedArray"
