"""The calls of the API: each asks the store once, and says its answer as documents."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Any, cast
from uuid import UUID

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from schemaless_core.cell.answers import Location, Position, PutResult, PutStatus, Scalar
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.values import IndexFieldType
from schemaless_core.errors import InvalidRequest
from tripstore.http import documents as told
from tripstore.http.errors import RequestRefused
from tripstore.http.exact import exact_body, read_beside
from tripstore.http.parameters import whole
from tripstore.http.route import AskedStore, HttpAnswer, lines, said


async def get_cell(asked: AskedStore, *, row_key: UUID, column_name: str, ref_key: int) -> HttpAnswer:
    return _found(await asked.store.get_cell(row_key, column_name, ref_key))


async def get_cell_latest(asked: AskedStore, *, row_key: UUID, column_name: str) -> HttpAnswer:
    return _found(await asked.store.get_cell_latest(row_key, column_name))


async def get_cells(asked: AskedStore, *, document: told.CellNames) -> HttpAnswer:
    keys = [CellKey(key.row_key, key.column_name, int(key.ref_key)) for key in document.keys]
    return said(told.cells_document(await asked.store.get_cells(keys)))


async def get_cells_latest(asked: AskedStore, *, document: told.ColumnsToRead) -> HttpAnswer:
    columns = [ColumnKey(each.row_key, each.column_name) for each in document.columns]
    return said(told.cells_document(await asked.store.get_cells_latest(columns)))


async def get_row(asked: AskedStore, *, row_key: UUID, columns: list[str] | None) -> HttpAnswer:
    return said(told.HttpRow(row_key, told.row_cells(await asked.store.get_row(row_key, columns))))


async def get_history(
    asked: AskedStore, *, row_key: UUID, column_name: str, before: int | None, limit: int
) -> HttpAnswer:
    cells = await asked.store.get_history(row_key, column_name, before=before, limit=limit)
    before_next = str(cells[-1].ref_key) if len(cells) == limit else None
    return lines("cell", [told.cell_document(cell) for cell in cells], told.HistoryEnd(before_next))


async def put_cell(
    asked: AskedStore, *, row_key: UUID, column_name: str, ref_key: int, expect_latest: Any, body: bytes
) -> HttpAnswer:
    value = await read_beside(exact_body, body)
    return _put(await asked.store.put_cell(row_key, column_name, ref_key, value, expect_latest=expect_latest))


async def append_cell(asked: AskedStore, *, row_key: UUID, column_name: str, body: bytes) -> HttpAnswer:
    return _put(await asked.store.append_cell(row_key, column_name, await read_beside(exact_body, body)))


async def put_cells(asked: AskedStore, *, document: told.CellsToPut) -> HttpAnswer:
    cells = [Cell(each.row_key, each.column_name, int(each.ref_key), each.body) for each in document.cells]
    results = await asked.store.put_cells(cells)
    is_waiting = any(result.status is PutStatus.BUFFERED for result in results)
    status = HTTPStatus.ACCEPTED if is_waiting else HTTPStatus.OK
    return said(told.PutsDocument([told.put_document(result) for result in results]), status)


async def query_index(asked: AskedStore, *, index: str, document: told.QueryDocument) -> HttpAnswer:
    definition = asked.indexes.get(index)
    page = await asked.store.query_index(
        index,
        _shard_value(definition, document.shard_value),
        _conditions(definition, document.where),
        fields=document.fields,
        columns=document.columns,
        order_by=document.order_by,
        descending=document.descending,
        limit=document.limit,
        cursor=document.cursor,
        consistency=document.consistency,
    )
    return lines("entry", [told.entry_document(entry) for entry in page.entries], told.EntriesEnd(page.cursor))


async def get_cells_for_shard(
    asked: AskedStore,
    *,
    shard: int,
    after: int | None,
    since: datetime | None,
    store: str | None,
    epoch: int | None,
    limit: int,
) -> HttpAnswer:
    page = await asked.store.get_cells_for_shard(shard, _location(after, since, store, epoch), limit)
    at = told.PositionDocument(page.position.store, page.position.epoch, str(page.position.added_id))
    end = told.LogEnd(str(page.next_location), at, str(page.head))
    return lines("cell", [told.cell_document(cell) for cell in page.cells], end)


async def scan_rows(
    asked: AskedStore, *, shard: int, after: UUID | None, limit: int, columns: list[str] | None
) -> HttpAnswer:
    page = await asked.store.scan_rows(shard, after, limit, columns)
    rows = [told.HttpRow(row.row_key, told.row_cells(row.cells)) for row in page.rows]
    return lines("row", rows, told.RowsEnd(page.after))


async def checksum(
    asked: AskedStore, *, shard: int, columns: list[str] | None, children: list[tuple[str, int]]
) -> HttpAnswer:
    buckets = await asked.store.checksum(shard, columns, dict(children))
    each = [told.BucketDocument(bucket.shard, bucket.number, bucket.count, str(bucket.sum)) for bucket in buckets]
    return said(told.BucketsDocument(each))


async def shard_of(asked: AskedStore, *, row_key: UUID) -> HttpAnswer:
    return said(told.ShardDocument(asked.store.shard_of(row_key)))


async def resolve_id(asked: AskedStore, *, number: int) -> HttpAnswer:
    row_key = await asked.store.resolve_id(number)
    if row_key is None:
        raise RequestRefused(HTTPStatus.NOT_FOUND, "No row ever had this id.")
    return said(told.RowKeyDocument(row_key))


async def legacy_id(asked: AskedStore, *, row_key: UUID) -> HttpAnswer:
    number = await asked.store.legacy_id(row_key)
    if number is None:
        raise RequestRefused(HTTPStatus.NOT_FOUND, "The row never had a legacy id.")
    return said(told.LegacyIdDocument(str(number)))


async def health(asked: AskedStore) -> HttpAnswer:
    state = await asked.health.get()
    document = told.HealthDocument(state.is_ready, list(state.answering), list(state.silent))
    return said(document, HTTPStatus.OK if state.is_ready else HTTPStatus.SERVICE_UNAVAILABLE)


async def metrics(asked: AskedStore) -> HttpAnswer:
    return HttpAnswer(generate_latest(), media=CONTENT_TYPE_LATEST)


def _found(cell: Cell | None) -> HttpAnswer:
    if cell is None:
        raise RequestRefused(HTTPStatus.NOT_FOUND, "There is no such cell.")
    return said(told.cell_document(cell))


_STATUSES = {
    PutStatus.CREATED: HTTPStatus.CREATED,
    PutStatus.EXISTS: HTTPStatus.OK,
    PutStatus.BUFFERED: HTTPStatus.ACCEPTED,
}


def _put(result: PutResult) -> HttpAnswer:
    return said(told.put_document(result), _STATUSES[result.status])


def _location(after: int | None, since: datetime | None, store: str | None, epoch: int | None) -> Location:
    if since is not None and (after, store, epoch) == (None, None, None):
        return since
    if since is None and store is not None and epoch is not None and after is not None:
        return Position(store, epoch, after)
    if (since, store, epoch) == (None, None, None):
        return after or 0
    hint = "Give after, or since, or after with the store and the epoch of a position."
    raise InvalidRequest("That is no location of a log.", hint=hint)


def _shard_value(definition: IndexDefinition | None, value: Scalar) -> Scalar:
    name = None if definition is None else definition.shard_field.name
    return cast(Scalar, _typed(definition, name, value))


def _conditions(definition: IndexDefinition | None, where: Any) -> Any:
    """The query judges what is none."""
    return [_condition(definition, each) for each in where] if isinstance(where, list) else where


def _condition(definition: IndexDefinition | None, each: Any) -> Any:
    if not isinstance(each, list) or len(each) != 3:  # field, operator, value
        return each
    name, operator, value = each
    several = isinstance(value, list)
    typed = [_typed(definition, name, one) for one in value] if several else _typed(definition, name, value)
    return name, operator, typed


def _typed(definition: IndexDefinition | None, name: str | None, value: object) -> object:
    """Text becomes a number where the field is one. What else is text may stay text: the query knows it."""
    kinds = {} if definition is None else {field.name: field.kind for field in definition.fields}
    if isinstance(value, str) and kinds.get(str(name)) is IndexFieldType.INT:
        try:
            return whole(value)
        except ValueError:
            return value  # the query says that it is none
    return value
