"""The command with which a person repeats a read: on one line, whatever its arguments are.

What asks for very much at once has no command; then it is that of the entry that differed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from tripstore.backends.postgres.ids.index import LEGACY_ID_INDEX
from tripstore.engines.validation.reads import Read

# As `tripstore.engines.validation.compare` names entries.
_CELL = re.compile(r"(?P<column>.+)@(?P<ref_key>-?\d+) of (?P<row_key>[0-9a-f-]{36})", re.DOTALL)
_ROW = re.compile(r"row (?P<row_key>[0-9a-f-]{36})")
_ID = re.compile(r"legacy id (?P<number>-?\d+)")


def command(read: Read, entry: str) -> str:
    """How to ask the same from a shell, or for the entry of it that differed; else it is told as a call."""
    make = _COMMANDS.get(read.operation)
    words = list(_of_entry(read, entry)) if make is None else list(make(read.arguments))
    if words:
        return shlex.join(["tripstore", *map(str, words)])
    said = ", ".join(f"{name}={value!r}" for name, value in read.arguments.items() if value is not None)
    return f"{read.operation}({said})"


def _of_entry(read: Read, entry: str) -> Iterator[object]:
    if cell := _CELL.fullmatch(entry):
        yield from ("cell", "get", cell["row_key"], cell["column"])
        if read.operation == "get_cells":
            yield cell["ref_key"]
    elif row := _ROW.fullmatch(entry):
        yield from ("cell", "row", row["row_key"])
    elif id_ := _ID.fullmatch(entry):
        yield from ("index", "query", LEGACY_ID_INDEX, id_["number"])


def _get(asked: Mapping[str, Any]) -> Iterator[object]:
    yield from ("cell", "get", asked["row_key"], asked["column_name"])
    if "ref_key" in asked:
        yield asked["ref_key"]


def _row(asked: Mapping[str, Any]) -> Iterator[object]:
    yield from ("cell", "row", asked["row_key"], *(asked.get("columns") or ()))


def _history(asked: Mapping[str, Any]) -> Iterator[object]:
    yield from ("cell", "history", asked["row_key"], asked["column_name"])
    if asked.get("before") is not None:
        yield from ("--before", asked["before"])
    yield from ("--limit", asked.get("limit", 100))


def _query(asked: Mapping[str, Any]) -> Iterator[object]:
    yield from ("index", "query", asked["index"], asked["shard_value"])
    for field, operator, value in asked.get("where") or ():
        yield from ("--where", f"{field} {operator} {_value(operator, value)}")
    if asked.get("order_by") is not None:
        yield from ("--order-by", asked["order_by"])
    if asked.get("descending"):
        yield "--desc"
    columns = asked.get("columns")
    if columns is not None:
        yield from ("--columns", columns if columns == "*" else ",".join(columns))
    if asked.get("cursor") is not None:
        yield from ("--cursor", asked["cursor"])
    if asked.get("consistency") == "verified":
        yield "--verified"
    yield from ("--limit", asked.get("limit", 100))


def _value(operator: str, value: Any) -> str:
    if operator == "between":
        return " and ".join(map(str, value))
    return ",".join(map(str, value)) if operator == "in" else str(value)


_COMMANDS = {
    "get_cell": _get,
    "get_cell_latest": _get,
    "get_row": _row,
    "get_history": _history,
    "query_index": _query,
}
