"""`OverHttp`: a client of the HTTP front as a `CellStore`, so that the contract suite can ask it.

The server and the client are real. What Python alone can say wrong, such as a row key that is no UUID, is refused here.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx

import schemaless_core
from schemaless_core import (
    ANY,
    BatchFailed,
    Cell,
    CellConflict,
    CellStore,
    Datastore,
    IndexPage,
    InvalidCell,
    InvalidRequest,
    Position,
    PutResult,
    SchemalessError,
    ShardPage,
)
from schemaless_core.aio import CallThreads, ThreadLimits
from schemaless_core.cell.answers import Bucket, IndexEntry, PutStatus, Row, RowPage
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.cell.cell import check_column_name, check_ref_key, check_row_key
from schemaless_core.cell.children import NO_CHILDREN, Children
from schemaless_core.cell.encoded import encode_cell
from schemaless_core.cell.requests import check_shard, listed_cells, listed_columns, listed_keys, listed_names
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.query import unknown_index
from schemaless_core.definitions.values import check
from tripstore.aio import AsyncTripStore
from tripstore.http.front import Front
from tripstore.http.server import FrontServer, listening_socket
from tripstore.http.settings import HttpLimits, HttpSettings
from tripstore.store import TripStore

#: The server judges how large a body may be.
ANY_SIZE = 2**40
JSON = {"Content-Type": "application/json"}


class Served:
    """A front over a store, on a thread, at a port of loopback."""

    def __init__(self, store: Datastore | TripStore, settings: HttpSettings | None = None) -> None:
        config = store.facade.config.core if isinstance(store, TripStore) else store.config
        self.indexes = config.indexes
        self._above = AsyncTripStore(store, CallThreads(ThreadLimits(threads=4, writers=3, wait_seconds=20.0)))  # type: ignore[arg-type]  # a datastore has all but ids
        settings = settings or HttpSettings(HttpLimits())
        bound = listening_socket("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        front = Front(self._above, settings, self.indexes, time.monotonic)
        self._server = FrontServer(front, settings, lambda: None)
        self._thread = threading.Thread(target=self._server.run, args=([bound],), daemon=True)
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=60.0)

    def wait_for_connections(self, count: int) -> None:
        """Until no more than so many are open."""
        self._wait(lambda: len(self._server.server_state.connections) <= count)

    def wait_for_calls(self, count: int) -> None:
        """Until so many are with the threads."""
        self._wait(lambda: self._above.threads._reads._free == self._above.threads.limits.threads - count)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        ends_at = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < ends_at, "the front never came there"
            time.sleep(0.005)  # an event loop on another thread tells no one

    def close(self) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join()


class OverHttp:
    """The calls of a cell store, each by one request. `get_cells_for_shards` is none of the API: it asks each shard."""

    def __init__(self, served: Served, below: CellStore) -> None:
        self.below = below
        self._served = served
        self._headers: dict[str, str] = {}

    def using(
        self,
        *,
        read: str | None = None,
        deadline: float | None = None,
        include_buffered: bool | None = None,
        durability: str | None = None,
    ) -> OverHttp:
        asked = {"Read": read, "Deadline-Seconds": deadline, "Durability": durability}
        if include_buffered is not None:
            asked["Include-Buffered"] = str(include_buffered).lower()
        other = copy.copy(self)
        other._headers = self._headers | {f"Tripstore-{key}": str(value) for key, value in asked.items() if value}
        return other

    def put_cell(
        self, row_key: UUID, column_name: str, ref_key: int, body: Any, *, expect_latest: Any = ANY
    ) -> PutResult:
        cell = Cell(row_key, column_name, ref_key, body)
        query = (
            {} if expect_latest is ANY else {"expect_latest": "none" if expect_latest is None else _ref(expect_latest)}
        )
        answer = self._ask("PUT", _cell(*cell.key), query, canonical_bytes(body), attempted=[cell])
        return result_of(answer.json())

    def put_cells(self, cells: Sequence[Cell]) -> list[PutResult]:
        cells = listed_cells(cells)
        bodies = [encode_cell(cell, ANY_SIZE).body.decode() for cell in cells]
        each = [
            f'{{"row_key":"{cell.row_key}","column_name":{json.dumps(cell.column_name)},'
            f'"ref_key":"{cell.ref_key}","body":{body}}}'
            for cell, body in zip(cells, bodies, strict=True)
        ]
        content = f'{{"cells":[{",".join(each)}]}}'.encode()
        answer = self._ask("POST", "/v1/cells", {}, content, attempted=cells)
        return [result_of(result) for result in answer.json()["results"]]

    def append_cell(self, row_key: UUID, column_name: str, body: Any) -> PutResult:
        path = f"/v1/append/{_row(row_key)}/{quote(_column(column_name), safe='')}"
        return result_of(self._ask("POST", path, {}, canonical_bytes(body)).json())

    def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        return self._find(_cell(row_key, column_name, ref_key))

    def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        return self._find(f"/v1/latest/{_row(row_key)}/{quote(_column(column_name), safe='')}")

    def get_cells(self, keys: Sequence[Any]) -> list[Cell | None]:
        named = [
            {"row_key": str(_row(row)), "column_name": _column(name), "ref_key": str(_ref(ref))}
            for row, name, ref in listed_keys(keys)
        ]
        return self._cells("/v1/cells/get", {"keys": named})

    def get_cells_latest(self, columns: Sequence[Any]) -> list[Cell | None]:
        named = [{"row_key": str(_row(row)), "column_name": _column(name)} for row, name in listed_columns(columns)]
        return self._cells("/v1/latest/get", {"columns": named})

    def get_row(self, row_key: UUID, columns: Collection[str] | None = None) -> dict[str, Cell]:
        if columns is not None and not columns:
            return {}
        return row_of(self._ask("GET", f"/v1/rows/{_row(row_key)}", _columns(columns)).json()).cells

    def get_history(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[Cell]:
        if before is not None:
            check_ref_key(before)
        path = f"/v1/history/{_row(row_key)}/{quote(_column(column_name), safe='')}"
        items, _page = self._lines("GET", path, {"before": before, "limit": limit})
        return [cell_of(item["cell"]) for item in items]

    def query_index(self, index: str, shard_value: Any, where: Sequence[Any] = (), **options: Any) -> IndexPage:
        if type(index) is not str:
            raise unknown_index(index, (each.name for each in self._served.indexes))
        for each in where if isinstance(where, list) else ():
            self._refuse_python(index, *each)
        document = {"shard_value": shard_value, "where": where} | options
        content = json.dumps(document, default=_text).encode()
        items, page = self._lines("POST", f"/v1/indexes/{quote(index, safe='')}/query", {}, content)
        definition = next(each for each in self._served.indexes if each.name == index)
        return IndexPage([_entry(definition, item["entry"]) for item in items], page["cursor"])

    def _refuse_python(self, index: str, field: Any, _operator: Any, value: Any) -> None:
        """Refuse what JSON has no form of, as the library does."""
        is_nan = isinstance(value, float) and not isfinite(value)
        if is_nan or isinstance(value, bytes) or (isinstance(value, datetime) and value.tzinfo is None):
            definition = next(each for each in self._served.indexes if each.name == index)
            check(definition.field(field).kind, value, field)

    def get_cells_for_shard(self, shard: int, location: Any, limit: int) -> ShardPage:
        check_shard(shard, 2**31)
        items, page = self._lines("GET", f"/v1/shards/{shard}/log", _location(location) | {"limit": limit})
        at = page["position"]
        position = Position(at["store"], at["epoch"], int(at["added_id"]))
        cells = [cell_of(item["cell"]) for item in items]
        return ShardPage(cells, int(page["next_location"]), position, int(page["head"]))

    def get_cells_for_shards(self, locations: Mapping[int, Any], limit: int) -> dict[int, ShardPage]:
        return {shard: self.get_cells_for_shard(shard, at, limit) for shard, at in locations.items()}

    def scan_rows(
        self, shard: int, after: UUID | None = None, limit: int = 1000, columns: Collection[str] | None = None
    ) -> RowPage:
        check_shard(shard, 2**31)
        query = _columns(columns) | {"after": after, "limit": limit}
        items, page = self._lines("GET", f"/v1/shards/{shard}/rows", query)
        return RowPage([row_of(item["row"]) for item in items], page["after"] and UUID(page["after"]))

    def checksum(
        self, shard: int, columns: Collection[str] | None = None, children: Children = NO_CHILDREN
    ) -> list[Bucket]:
        check_shard(shard, 2**31)
        query = _columns(columns) | {"children": [f"{name}:{bits}" for name, bits in children.items()]}
        answer = self._ask("GET", f"/v1/shards/{shard}/checksum", query).json()
        return [Bucket(each["shard"], each["number"], each["count"], int(each["sum"])) for each in answer["buckets"]]

    def shard_of(self, row_key: UUID) -> int:
        shard: int = self._ask("GET", f"/v1/rows/{_row(row_key)}/shard").json()["shard"]
        return shard

    def _find(self, path: str) -> Cell | None:
        answer = self._ask("GET", path, may_miss=True)
        return None if answer.status_code == 404 else cell_of(answer.json())

    def _cells(self, path: str, document: Any) -> list[Cell | None]:
        cells = self._ask("POST", path, {}, json.dumps(document).encode()).json()["cells"]
        return [None if cell is None else cell_of(cell) for cell in cells]

    def _lines(
        self, method: str, path: str, query: Mapping[str, Any], content: bytes | None = None
    ) -> tuple[list[Any], Any]:
        *items, page = (json.loads(line) for line in self._ask(method, path, query, content).content.splitlines())
        return items, page["page"]

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        *,
        attempted: Sequence[Cell] = (),
        may_miss: bool = False,
    ) -> httpx.Response:
        asked = {name: value for name, value in (query or {}).items() if value is not None}
        headers = self._headers | ({} if content is None else JSON)
        answer = self._served.client.request(method, path, params=asked, content=content, headers=headers)
        if answer.status_code >= 400 and not (may_miss and answer.status_code == 404):
            raise error_of(answer.json(), attempted)
        return answer


def error_of(answer: Any, attempted: Sequence[Cell]) -> Exception:
    """The error as the library raises it."""
    if "results" in answer:
        pairs = zip(answer["results"], attempted, strict=True)
        return BatchFailed(
            [result_of(each["result"]) if "result" in each else _one(each, cell) for each, cell in pairs]
        )
    return _one(answer, attempted[0] if attempted else None)


def _one(answer: Any, attempted: Cell | None) -> SchemalessError:
    error = answer["error"]
    if error["class"] == "CellConflict":
        assert attempted is not None, "a call that puts nothing met a conflict"
        stored = error.get("stored")
        return CellConflict(attempted, None if stored is None else cell_of(stored))
    kind = getattr(schemaless_core, error["class"], None) or SchemalessError
    made: SchemalessError = kind.__new__(kind, error["message"])
    made.message, made.hint = error["message"], error.get("hint")
    if isinstance(made, InvalidCell):
        made.path, made.reason = error.get("path", ""), error["message"]
    vars(made).update(error.get("facts", {}))
    return made


def result_of(said: Any) -> PutResult:
    added_id = None if said["added_id"] is None else int(said["added_id"])
    status = PutStatus(said["status"])
    return PutResult(status, said["readable"], said["shard"], int(said["ref_key"]), said["epoch"], added_id)


def cell_of(said: Any) -> Cell:
    added_id = None if said["added_id"] is None else int(said["added_id"])
    created_at = None if said["created_at"] is None else datetime.fromisoformat(said["created_at"])
    return Cell(UUID(said["row_key"]), said["column_name"], int(said["ref_key"]), said["body"], added_id, created_at)


def row_of(said: Any) -> Row:
    return Row(UUID(said["row_key"]), {name: cell_of(cell) for name, cell in said["cells"].items()})


_READ: dict[str, Callable[[Any], Any]] = {
    "UUID": UUID,
    "int": int,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "float": float,
}


def _entry(definition: IndexDefinition, said: Any) -> IndexEntry:
    fields = {
        name: value if value is None else _READ.get(definition.field(name).kind.value, lambda same: same)(value)
        for name, value in said["fields"].items()
    }
    cells = said["cells"]
    return IndexEntry(UUID(said["row_key"]), fields, None if cells is None else row_of(said).cells)


def _text(value: Any) -> str | list[Any]:
    """What JSON has no form of."""
    if isinstance(value, set | frozenset):
        return list(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _location(location: Any) -> dict[str, Any]:
    if isinstance(location, Position):
        return {"store": location.store, "epoch": location.epoch, "after": location.added_id}
    if isinstance(location, datetime):
        return {"since": location.isoformat()}
    if type(location) is not int:
        raise InvalidRequest("The location is none.", hint="A number is sent as text.")
    return {"after": location}


def _columns(columns: Collection[str] | None) -> dict[str, Any]:
    return {} if columns is None else {"columns": listed_names(columns)}


def _cell(row_key: UUID, column_name: str, ref_key: int) -> str:
    return f"/v1/cells/{_row(row_key)}/{quote(_column(column_name), safe='')}/{_ref(ref_key)}"


def _row(row_key: UUID) -> UUID:
    check_row_key(row_key)
    return row_key


def _column(name: str) -> str:
    check_column_name(name)
    return name


def _ref(ref_key: int) -> int:
    check_ref_key(ref_key)
    return ref_key
