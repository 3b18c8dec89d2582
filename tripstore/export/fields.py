"""`ExportSchema`: which fields a column's files have, and what a value of a body becomes there.

A value that is not of its field's type is in the body alone, and counted. Nothing is rounded, cut or guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import Cell
from schemaless_core.definitions.values import INT_MAX, INT_MIN, IndexFieldType, parse
from tripstore.backends.postgres.layout.layout import FieldType
from tripstore.models.shapes import ColumnShape, KeyShape
from tripstore.typed.forms.form import ValueForm
from tripstore.typed.forms.plain import BOOLEANS, BYTES, FLOATS, INTS, STRINGS, UUIDS
from tripstore.typed.forms.times import DATES, DATETIMES
from tripstore.typed.unfit import Unfit, other_kind

#: What warehouses have: BigQuery's NUMERIC, and within the 38 digits of DuckDB and Snowflake.
DECIMAL_DIGITS = 38
DECIMAL_DIGITS_AFTER = 9

#: Of each cell, before and behind its fields.
_BEFORE = [
    pa.field("row_key", pa.uuid(), nullable=False),
    pa.field("ref_key", pa.int64(), nullable=False),
    pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("is_tombstone", pa.bool_(), nullable=False),
]
_BEHIND = [
    pa.field("body", pa.string(), nullable=False),
    pa.field("shard", pa.int32(), nullable=False),
    pa.field("added_id", pa.int64(), nullable=False),
]
#: What the folders' names say.
_OF_FOLDERS = ("column_name", "day")


class ExportSchema:
    """One column: its schema, and its cells as rows."""

    def __init__(self, name: str, keys: Sequence[KeyShape] = ()) -> None:
        self.name = name
        self._keys = tuple(keys)
        types = [pa.field(own, _TYPES[key.kind]) for own, key in zip(_names(self._keys), self._keys, strict=True)]
        self.arrow = pa.schema([*_BEFORE, *types, *_BEHIND])

    def rows(self, cells: Sequence[tuple[int, Cell]], misfits: Counter[str]) -> pa.RecordBatch:
        """Cells and their shards as rows; what fits no field is counted."""
        fields: list[list[Any]] = [[] for _key in self._keys]
        for _shard, cell in cells:
            self._read(cell.body, fields, misfits)
        values: list[list[Any]] = [
            [cell.row_key.bytes for _shard, cell in cells],
            [cell.ref_key for _shard, cell in cells],
            [cell.created_at for _shard, cell in cells],
            [cell.is_tombstone for _shard, cell in cells],
            *fields,
            [canonical_bytes(cell.body).decode() for _shard, cell in cells],
            [shard for shard, _cell in cells],
            [cell.added_id for _shard, cell in cells],
        ]
        arrays = [_array(each, field.type) for each, field in zip(values, self.arrow, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _read(self, body: Json, fields: list[list[Any]], misfits: Counter[str]) -> None:
        is_object = isinstance(body, dict)
        if not is_object and body is not None and self._keys:
            misfits[self.name] += 1  # once for all its fields
        for key, values in zip(self._keys, fields, strict=True):
            value = body.get(key.name) if isinstance(body, dict) else None
            try:
                values.append(None if value is None else _READ[key.kind](value))
            except Unfit:
                misfits[f"{self.name}.{key.name}"] += 1
                values.append(None)


def schemas_of(shapes: Sequence[ColumnShape]) -> Mapping[str, ExportSchema]:
    """By column; one that no layout and no index knows has its bodies alone."""

    class Schemas(dict[str, ExportSchema]):
        def __missing__(self, column: str) -> ExportSchema:
            self[column] = ExportSchema(column)
            return self[column]

    return Schemas({shape.name: ExportSchema(shape.name, shape.keys) for shape in shapes})


def _names(keys: Sequence[KeyShape]) -> list[str]:
    """A name each that SQL tells from all others, whatever their case: `Body` becomes `Body_`."""
    taken = {field.name for field in [*_BEFORE, *_BEHIND]} | set(_OF_FOLDERS)
    names = []
    for key in keys:
        name = key.name
        while name.casefold() in taken:
            name += "_"
        taken.add(name.casefold())
        names.append(name)
    return names


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.UuidType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def _read_uuid(value: Json) -> bytes:
    found = UUIDS.read(value)
    assert isinstance(found, UUID)
    return found.bytes


def _read_text(value: Json) -> str:
    text = str(STRINGS.read(value))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unfit("it holds a lone surrogate") from None
    return text


def _read_int(value: Json) -> int:
    found = INTS.read(value)
    assert isinstance(found, int)
    if not INT_MIN <= found <= INT_MAX:
        raise Unfit("it does not fit into 64 bits")
    return found


def _read_float(value: Json) -> float:
    found = FLOATS.read(value)
    assert isinstance(found, int | float)
    try:
        number = float(found)
    except OverflowError:
        raise Unfit("it is too large for a float") from None
    if isinstance(found, int) and number != found:
        raise Unfit("it is an int that no float holds exactly")
    return number


def _read_decimal(value: Json) -> Decimal:
    found = parse(IndexFieldType.DECIMAL, value)
    if not isinstance(found, Decimal):
        raise Unfit("it is no decimal number that an index could hold")
    exponent = found.as_tuple().exponent
    assert isinstance(exponent, int)  # finite
    if -exponent > DECIMAL_DIGITS_AFTER or found.adjusted() >= DECIMAL_DIGITS - DECIMAL_DIGITS_AFTER:
        raise Unfit("it has too many digits")
    return found


def _read_moment(value: Json) -> datetime:
    found = DATETIMES.read(value)
    if not isinstance(found, datetime):
        raise Unfit("no datetime holds it")
    return found


def _read_day(value: Json) -> date:
    found = DATES.read(value)
    if not isinstance(found, date):
        raise Unfit("no date holds it")
    return found


def _read_list(value: Json) -> str:
    if not isinstance(value, list):
        raise other_kind(value, "a list")
    return _read_json(value)


def _read_json(value: Json) -> str:
    return canonical_bytes(value).decode()


def _by(form: ValueForm) -> Callable[[Json], object]:
    return form.read


_TYPES: dict[FieldType, pa.DataType] = {
    FieldType.UUID: pa.uuid(),
    FieldType.STRING: pa.string(),
    FieldType.INT: pa.int64(),
    FieldType.FLOAT: pa.float64(),
    FieldType.DECIMAL: pa.decimal128(DECIMAL_DIGITS, DECIMAL_DIGITS_AFTER),
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.DATETIME: pa.timestamp("us", tz="UTC"),
    FieldType.DATE: pa.date32(),
    FieldType.BYTES: pa.binary(),
    FieldType.JSON: pa.string(),
    FieldType.ARRAY: pa.string(),
}
_READ: dict[FieldType, Callable[[Json], object]] = {
    FieldType.UUID: _read_uuid,
    FieldType.STRING: _read_text,
    FieldType.INT: _read_int,
    FieldType.FLOAT: _read_float,
    FieldType.DECIMAL: _read_decimal,
    FieldType.BOOLEAN: _by(BOOLEANS),
    FieldType.DATETIME: _read_moment,
    FieldType.DATE: _read_day,
    FieldType.BYTES: _by(BYTES),
    FieldType.JSON: _read_json,
    FieldType.ARRAY: _read_list,
}
