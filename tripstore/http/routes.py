"""The table of what can be called. There is no other list: the front serves it, the OpenAPI document says it."""

from __future__ import annotations

from http import HTTPStatus

from schemaless_core.cell.answers import ANY
from tripstore.http import calls
from tripstore.http import documents as told
from tripstore.http.parameters import CHILDREN, EXPECTED, INT64, TEXT, TEXTS, TIME, UUID_TEXT, WHOLE, Parameter
from tripstore.http.route import HttpRoute, NdjsonPage
from tripstore.http.settings import ServiceRight

_ROW = Parameter("row_key", UUID_TEXT, "The row key, a UUID.", "path")
_COLUMN = Parameter("column_name", TEXT, "The name of the column.", "path")
_REF_KEY = Parameter("ref_key", INT64, "The ref key, a whole number of 64 bits.", "path")
_SHARD = Parameter("shard", WHOLE, "The number of the shard.", "path")
_INDEX = Parameter("index", TEXT, "The name of the index.", "path")
_COLUMNS = Parameter("columns", TEXTS, "Only these columns; repeat it for several.", default=None)
_CHILDREN = Parameter(
    "children",
    CHILDREN,
    "Columns of child rows, as NAME:BITS: so many of the lowest bits of a ref key are the version, 0 to 62.",
    default=(),
)
_EXPECT = Parameter(
    "expect_latest",
    EXPECTED,
    "Store it only while the column's highest ref key is this one; none: while there is no cell.",
    default=ANY,
)
_BEFORE = Parameter("before", INT64, "Only ref keys below this whole number.", default=None)
_LIMIT = Parameter("limit", WHOLE, "So many at most, a whole number.", default=100)
_AFTER_ID = Parameter("after", INT64, "Cells after this added id; 0: from the beginning.", default=None)
_SINCE = Parameter("since", TIME, "Cells since this time, ISO 8601 with its offset.", default=None)
_STORE = Parameter("store", TEXT, "Of a position that was kept: its store.", default=None)
_EPOCH = Parameter("epoch", WHOLE, "Of a position that was kept: its epoch, a whole number.", default=None)
_AFTER_ROW = Parameter("after", UUID_TEXT, "Rows after this row key.", default=None)
_NUMBER = Parameter("number", INT64, "The legacy id, a whole number.", "path")
_STORED = (HTTPStatus.CREATED, HTTPStatus.ACCEPTED)

ROUTES = (
    HttpRoute(
        "PUT",
        "/v1/cells/{row_key}/{column_name}/{ref_key}",
        calls.put_cell,
        "Store a cell: 201 it is created, 200 an equal one was there, 202 it is buffered. null is a tombstone.",
        told.HttpPut,
        (_ROW, _COLUMN, _REF_KEY, _EXPECT),
        has_body=True,
        right=ServiceRight.WRITE,
        also=_STORED,
    ),
    HttpRoute(
        "GET",
        "/v1/cells/{row_key}/{column_name}/{ref_key}",
        calls.get_cell,
        "The cell under this key.",
        told.HttpCell,
        (_ROW, _COLUMN, _REF_KEY),
        is_found=True,
    ),
    HttpRoute(
        "POST",
        "/v1/cells",
        calls.put_cells,
        "Store many cells, in order per shard; not atomic. An error has the result of each.",
        told.PutsDocument,
        document=told.CellsToPut,
        right=ServiceRight.WRITE,
        also=(HTTPStatus.ACCEPTED,),
    ),
    HttpRoute(
        "POST",
        "/v1/cells/get",
        calls.get_cells,
        "One cell or null per key, in order.",
        told.HttpCells,
        document=told.CellNames,
    ),
    HttpRoute(
        "GET",
        "/v1/latest/{row_key}/{column_name}",
        calls.get_cell_latest,
        "The cell with the highest ref key, a tombstone too.",
        told.HttpCell,
        (_ROW, _COLUMN),
        is_found=True,
    ),
    HttpRoute(
        "POST",
        "/v1/latest/get",
        calls.get_cells_latest,
        "The latest cell or null per column, in order.",
        told.HttpCells,
        document=told.ColumnsToRead,
    ),
    HttpRoute(
        "GET",
        "/v1/history/{row_key}/{column_name}",
        calls.get_history,
        "Cells of a column, newest first.",
        NdjsonPage("cell", told.HttpCell, told.HistoryEnd),
        (_ROW, _COLUMN, _BEFORE, _LIMIT),
    ),
    HttpRoute(
        "POST",
        "/v1/append/{row_key}/{column_name}",
        calls.append_cell,
        "Store a body at the column's next free ref key. After an unknown outcome look at the history first.",
        told.HttpPut,
        (_ROW, _COLUMN),
        has_body=True,
        right=ServiceRight.WRITE,
        also=_STORED,
    ),
    HttpRoute(
        "GET",
        "/v1/rows/{row_key}",
        calls.get_row,
        "The latest cell of each column of a row, tombstones too.",
        told.HttpRow,
        (_ROW, _COLUMNS),
    ),
    HttpRoute("GET", "/v1/rows/{row_key}/shard", calls.shard_of, "The shard of a row.", told.ShardDocument, (_ROW,)),
    HttpRoute(
        "GET",
        "/v1/rows/{row_key}/legacy-id",
        calls.legacy_id,
        "The legacy id of a row.",
        told.LegacyIdDocument,
        (_ROW,),
        is_found=True,
    ),
    HttpRoute(
        "GET",
        "/v1/ids/{number}",
        calls.resolve_id,
        "The row key of a legacy id.",
        told.RowKeyDocument,
        (_NUMBER,),
        is_found=True,
    ),
    HttpRoute(
        "POST",
        "/v1/indexes/{index}/query",
        calls.query_index,
        "Entries of an index under one shard value.",
        NdjsonPage("entry", told.HttpEntry, told.EntriesEnd),
        (_INDEX,),
        document=told.QueryDocument,
    ),
    HttpRoute(
        "GET",
        "/v1/shards/{shard}/log",
        calls.get_cells_for_shard,
        "Cells of a shard's log after a location: an added id, a time, or a position that was kept.",
        NdjsonPage("cell", told.HttpCell, told.LogEnd),
        (_SHARD, _AFTER_ID, _SINCE, _STORE, _EPOCH, _LIMIT),
    ),
    HttpRoute(
        "GET",
        "/v1/shards/{shard}/rows",
        calls.scan_rows,
        "The latest cells of a shard's rows, in row-key order.",
        NdjsonPage("row", told.HttpRow, told.RowsEnd),
        (_SHARD, _AFTER_ROW, _LIMIT, _COLUMNS),
    ),
    HttpRoute(
        "GET",
        "/v1/shards/{shard}/checksum",
        calls.checksum,
        "Count and sum of the latest cells per bucket of a shard.",
        told.BucketsDocument,
        (_SHARD, _COLUMNS, _CHILDREN),
    ),
    HttpRoute("GET", "/health", calls.health, "Whether calls can be served now.", told.HealthDocument, right=None),
    HttpRoute("GET", "/metrics", calls.metrics, "The metrics of this process, for Prometheus.", "text/plain"),
)
