"""The JSON of requests and answers. Ids and other numbers of 64 bits are text: clients in JavaScript would round them.

A body stands in an answer as its canonical bytes. What requests bring is read by `tripstore.http.exact`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from schemaless_core.cell.answers import IndexEntry, PutResult
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import Cell

Int64 = Annotated[str, msgspec.Meta(pattern="^-?[0-9]{1,20}$")]
encode = msgspec.json.Encoder().encode


class CellName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key of a cell."""

    row_key: UUID
    column_name: str
    ref_key: Int64 | int


class ColumnName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column of one row."""

    row_key: UUID
    column_name: str


class CellToPut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cell to be stored; a body of null is a tombstone."""

    row_key: UUID
    column_name: str
    ref_key: Int64 | int
    body: Any


class CellsToPut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cells: list[CellToPut]


class CellNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[CellName]


class ColumnsToRead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    columns: list[ColumnName]


# Of any form; the OpenAPI document says the right one. The query itself tells a caller what is wrong with it.
_NULL = {"type": "null"}
_NAMES = {"type": "array", "items": {"type": "string"}}
_THREE = {"prefixItems": [{"type": "string"}, {"type": "string"}, {}], "minItems": 3, "maxItems": 3}
_SCALARS = [{"type": each} for each in ("string", "number", "boolean")]
AnyScalar = Annotated[Any, msgspec.Meta(extra_json_schema={"anyOf": _SCALARS})]
AnyConditions = Annotated[Any, msgspec.Meta(extra_json_schema={"type": "array", "items": {"type": "array"} | _THREE})]
AnyNames = Annotated[Any, msgspec.Meta(extra_json_schema={"anyOf": [_NAMES, _NULL]})]
AnyColumns = Annotated[Any, msgspec.Meta(extra_json_schema={"anyOf": [_NAMES, {"const": "*"}, _NULL]})]
AnyText = Annotated[Any, msgspec.Meta(extra_json_schema={"anyOf": [{"type": "string"}, _NULL]})]
AnyFlag = Annotated[Any, msgspec.Meta(extra_json_schema={"type": "boolean"})]
AnyLimit = Annotated[Any, msgspec.Meta(extra_json_schema={"type": "integer", "minimum": 1})]
AnyConsistency = Annotated[Any, msgspec.Meta(extra_json_schema={"enum": ["fast", "verified"]})]


class QueryDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question to an index. A condition is [field, operator, value]; between and in have a list as value.

    Ints, decimals, UUIDs and times may stand as text, whole numbers of more than 53 bits should.
    """

    shard_value: AnyScalar
    where: AnyConditions = []
    fields: AnyNames = None
    columns: AnyColumns = None
    order_by: AnyText = None
    descending: AnyFlag = False
    limit: AnyLimit = 100
    cursor: AnyText = None
    consistency: AnyConsistency = "fast"


class HttpCell(msgspec.Struct, frozen=True):
    row_key: UUID
    column_name: str
    ref_key: Int64
    body: msgspec.Raw
    added_id: Int64 | None
    created_at: datetime | None


class HttpPut(msgspec.Struct, frozen=True):
    """What became of a put. BUFFERED: another cluster keeps the cell, and it is readable once its own has it."""

    status: Literal["CREATED", "EXISTS", "BUFFERED"]
    readable: bool
    shard: int
    ref_key: Int64
    epoch: int
    added_id: Int64 | None


class PutsDocument(msgspec.Struct, frozen=True):
    """What became of each cell of a batch, in order."""

    results: list[HttpPut]


class HttpCells(msgspec.Struct, frozen=True):
    """One cell or null for each that was asked for, in order."""

    cells: list[HttpCell | None]


class HttpRow(msgspec.Struct, frozen=True):
    """The latest cell of each column, tombstones too."""

    row_key: UUID
    cells: dict[str, HttpCell]


class HttpEntry(msgspec.Struct, frozen=True):
    row_key: UUID
    fields: dict[str, str | float | bool | None]
    cells: dict[str, HttpCell] | None


class ShardDocument(msgspec.Struct, frozen=True):
    shard: int


class RowKeyDocument(msgspec.Struct, frozen=True):
    row_key: UUID


class LegacyIdDocument(msgspec.Struct, frozen=True):
    legacy_id: Int64


class BucketDocument(msgspec.Struct, frozen=True):
    """`sum` is a number of 64 bits without a sign."""

    shard: int
    number: int
    count: int
    sum: Int64


class BucketsDocument(msgspec.Struct, frozen=True):
    buckets: list[BucketDocument]


class HealthDocument(msgspec.Struct, frozen=True):
    is_ready: bool
    answering: list[str]
    silent: list[str]


class HistoryEnd(msgspec.Struct, frozen=True):
    """`before`: ask on with it; null: there is no more."""

    before: Int64 | None


class RowsEnd(msgspec.Struct, frozen=True):
    after: UUID | None


class EntriesEnd(msgspec.Struct, frozen=True):
    cursor: str | None


class PositionDocument(msgspec.Struct, frozen=True):
    """Keep it, and ask on with `after`, `store` and `epoch`: it survives a promotion."""

    store: str
    epoch: int
    added_id: Int64


class LogEnd(msgspec.Struct, frozen=True):
    next_location: Int64
    position: PositionDocument
    head: Int64


def cell_document(cell: Cell) -> HttpCell:
    body = msgspec.Raw(canonical_bytes(cell.body))
    added_id = None if cell.added_id is None else str(cell.added_id)
    return HttpCell(cell.row_key, cell.column_name, str(cell.ref_key), body, added_id, cell.created_at)


def cells_document(cells: list[Cell | None]) -> HttpCells:
    return HttpCells([None if cell is None else cell_document(cell) for cell in cells])


def row_cells(cells: Mapping[str, Cell]) -> dict[str, HttpCell]:
    return {name: cell_document(cell) for name, cell in cells.items()}


def put_document(result: PutResult) -> HttpPut:
    added_id = None if result.added_id is None else str(result.added_id)
    return HttpPut(result.status.value, result.readable, result.shard, str(result.ref_key), result.epoch, added_id)


def entry_document(entry: IndexEntry) -> HttpEntry:
    values = {name: _field(value) for name, value in entry.fields.items()}
    return HttpEntry(entry.row_key, values, None if entry.cells is None else row_cells(entry.cells))


def _field(value: Any) -> str | float | bool | None:
    if value is None or isinstance(value, str | bool | float):
        return value
    return value.isoformat() if isinstance(value, datetime) else str(value)
