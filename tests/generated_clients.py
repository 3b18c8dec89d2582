"""`GeneratedStore`: the calls for cells by a client that was generated from the OpenAPI document, as a `CellStore`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from schemaless_core import ANY, Cell, CellStore, PutResult
from schemaless_core.cell.cell import check_column_name, check_ref_key, check_row_key
from schemaless_core.cell.encoded import encode_cell
from schemaless_core.cell.requests import listed_cells, listed_columns, listed_keys, listed_names
from tests.http_clients import ANY_SIZE, OverHttp, Served, cell_of, error_of, result_of, row_of
from tripstore.http.openapi import openapi_document
from tripstore.http.routes import ROUTES

PACKAGE = "generated_tripstore"


def generate(folder: Path) -> None:
    """Write the client into a folder, as a package."""
    document = folder / "openapi.json"
    document.write_text(json.dumps(openapi_document(ROUTES)))
    program = Path(sys.executable).with_name("openapi-python-client")
    where = ["--path", str(document), "--output-path", str(folder / PACKAGE)]
    made = subprocess.run(
        [str(program), "generate", "--meta", "none", *where], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr


class GeneratedStore(OverHttp):
    """What is put and what is read of cells; all else is asked by the client below."""

    def __init__(self, served: Served, below: CellStore) -> None:
        super().__init__(served, below)
        self._client = import_module(PACKAGE).Client(base_url=served.url)
        self._models = import_module(f"{PACKAGE}.models")

    def close(self) -> None:
        self._client.get_httpx_client().close()

    def put_cell(
        self, row_key: UUID, column_name: str, ref_key: int, body: Any, *, expect_latest: Any = ANY
    ) -> PutResult:
        cell = Cell(row_key, column_name, ref_key, body)
        encode_cell(cell, ANY_SIZE)
        expected = {}
        if expect_latest is not ANY:
            expected = {"expect_latest": "none" if expect_latest is None else str(expect_latest)}
        said = self._call("put_cell", row_key, column_name, str(ref_key), body=body, attempted=[cell], **expected)
        return result_of(said)

    def put_cells(self, cells: Sequence[Cell]) -> list[PutResult]:
        cells = listed_cells(cells)
        for cell in cells:
            encode_cell(cell, ANY_SIZE)
        each = [self._models.CellToPut(*cell.key[:2], str(cell.ref_key), cell.body) for cell in cells]
        said = self._call("put_cells", body=self._models.CellsToPut(each), attempted=cells)
        return [result_of(result) for result in said["results"]]

    def append_cell(self, row_key: UUID, column_name: str, body: Any) -> PutResult:
        return result_of(self._call("append_cell", row_key, column_name, body=body))

    def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        check_ref_key(ref_key)
        return self._found("get_cell", row_key, column_name, str(ref_key))

    def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        return self._found("get_cell_latest", row_key, column_name)

    def get_cells(self, keys: Sequence[Any]) -> list[Cell | None]:
        names = [self._models.CellName(row, name, str(ref)) for row, name, ref in listed_keys(keys)]
        return _cells(self._call("get_cells", body=self._models.CellNames(names)))

    def get_cells_latest(self, columns: Sequence[Any]) -> list[Cell | None]:
        names = [self._models.ColumnName(row, name) for row, name in listed_columns(columns)]
        return _cells(self._call("get_cells_latest", body=self._models.ColumnsToRead(names)))

    def get_row(self, row_key: UUID, columns: Collection[str] | None = None) -> dict[str, Cell]:
        if columns is not None and not columns:
            return {}
        named: dict[str, Any] = {} if columns is None else {"columns": listed_names(columns)}
        return row_of(self._call("get_row", row_key, **named)).cells

    def shard_of(self, row_key: UUID) -> int:
        shard: int = self._call("shard_of", row_key)["shard"]
        return shard

    def _found(self, operation: str, row_key: UUID, column_name: str, *rest: str) -> Cell | None:
        check_row_key(row_key)
        check_column_name(column_name)
        said = self._call(operation, row_key, column_name, *rest)
        return None if said is None else cell_of(said)

    def _call(self, operation: str, *arguments: Any, attempted: Sequence[Cell] = (), **named: Any) -> Any:
        call = import_module(f"{PACKAGE}.api.default.{operation}").sync_detailed
        answer = call(*arguments, client=self._client, **named)
        said = answer.parsed.to_dict()
        if answer.status_code >= 400:
            if answer.status_code == 404:
                return None
            raise error_of(said, attempted)
        return said


def _cells(said: Any) -> list[Cell | None]:
    return [None if cell is None else cell_of(cell) for cell in said["cells"]]
