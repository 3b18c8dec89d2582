"""Every row of a company's mapped tables against the cells of the shards, by a decoder of its own.

It imports nothing of the project: it reads the layout as YAML, the tables by SQL, and the `cell` tables of each server;
a fault that both sides of the project share is none to it. What it does not understand it refuses.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg2
import pymysql
import yaml

_TEXT = "{}::text"
_MOMENT = """to_char({}, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


class Place(NamedTuple):
    """One row of the company's, as the shards know it: its UUID, its column of cells, its number."""

    row_key: str
    column: str
    number: int


class Held(NamedTuple):
    """What is there: ref key and body."""

    ref_key: int
    body: Any


@dataclass
class Compared:
    """What was compared, by table, and every place where the two sides differ."""

    rows: dict[str, int] = field(default_factory=dict)
    cells: int = 0  #: Of all versions.
    differences: dict[Place, str] = field(default_factory=dict)

    def __str__(self) -> str:
        tables = ", ".join(f"{table} {count:,}" for table, count in self.rows.items())
        return f"{sum(self.rows.values()):,} rows ({tables}), {self.cells:,} cells, {len(self.differences)} differences"


def compare(postgres: str, layout: Path, servers: Sequence[str], datastore: str) -> Compared:
    """Read both sides whole; both must be at rest."""
    columns: Mapping[str, Any] = yaml.safe_load(layout.read_text())
    found = Compared()
    rows = _rows(postgres, columns, found)
    cells = _latest(_cells(servers, datastore), columns["columns"], found)
    for place in rows.keys() | cells.keys():
        row, cell = rows.get(place), cells.get(place)
        # The pair of id and UUID outlives its row, so that an id is resolved for ever.
        if row != cell and (row is not None or place.column != "_LEGACY_ID"):
            found.differences[place] = f"Postgres has {row}, the shards have {cell}"
    return found


# ------------------------------------------------------------------------------------------------- Postgres


def _rows(url: str, layout: Mapping[str, Any], found: Compared) -> dict[Place, Held]:
    key = layout["row_key"]
    rows: dict[Place, Held] = {}
    connection = psycopg2.connect(url)
    connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
    with connection, connection.cursor() as cursor:
        for name, column in layout["columns"].items():
            ref = column["ref_key"]
            if "version" not in ref:
                raise NotImplementedError(f"{name} holds facts")
            uuid = column.get("parent", {}).get("uuid", key["uuid"])
            number = _quoted(ref["column"]) if "column" in ref else "0"
            fields = column.get("fields", {})
            values = [_value(said.get("column", label), said) for label, said in fields.items()]
            extra = [f"{_quoted(column['extra'])}::text"] if "extra" in column else []
            selected = ", ".join([f"{_quoted(uuid)}::text", number, _quoted(ref["version"]), *values, *extra])
            cursor.execute(f"SELECT {selected} FROM {_table(column['table'])}")
            for row in cursor.fetchall():
                place = Place(row[0], name, row[1])
                assert place not in rows, place
                body = _body(fields, row[3 : 3 + len(fields)])
                if extra and row[-1] is not None:
                    body |= json.loads(row[-1])
                rows[place] = Held(row[1] << 20 | row[2] if "column" in ref else row[2], body)
            found.rows[column["table"]] = cursor.rowcount
        cursor.execute(f"SELECT {_quoted(key['uuid'])}::text, {_quoted(key['id'])} FROM {_table(key['table'])}")
        rows |= {Place(uuid, "_LEGACY_ID", 0): Held(0, {"id": number}) for uuid, number in cursor.fetchall()}
    connection.close()
    return rows


def _value(column: str, said: Mapping[str, Any]) -> str:
    """The expression that gives a field as it stands in a body, or nearly."""
    name, kind = _quoted(column), said["type"]
    if "lookup" in said:
        lookup = said["lookup"]
        table, key, value = _table(lookup["table"]), _quoted(lookup["key"]), _quoted(lookup["value"])
        return f"(SELECT looked.{value}::text FROM {table} looked WHERE looked.{key} = {name})"
    if kind == "datetime":
        # Of a column with a zone this is its moment in UTC, of one without it is the same twice.
        return _MOMENT.format(f"({name}::timestamptz AT TIME ZONE 'UTC')") if said.get("zone") else _MOMENT.format(name)
    if kind in ("string", "decimal", "uuid", "json", "date"):
        return _TEXT.format(name)
    if kind in ("int", "boolean", "float", "bytes", "array"):
        return name
    raise NotImplementedError(f"type {kind}")


def _body(fields: Mapping[str, Any], values: Sequence[Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for (label, said), value in zip(fields.items(), values, strict=True):
        if value is None:
            if said.get("null") == "keep":
                body[label] = None
        elif said["type"] == "json":
            body[label] = json.loads(value)
        elif said["type"] == "bytes":
            body[label] = base64.b64encode(bytes(value)).decode()
        else:
            body[label] = value
    return body


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table(name: str) -> str:
    return ".".join(map(_quoted, name.split(".")))


# ------------------------------------------------------------------------------------------------- the shards


def _cells(servers: Sequence[str], datastore: str) -> list[tuple[str, str, int, Any]]:
    cells = []
    for url in servers:
        parts = urlsplit(url)
        connection = pymysql.connect(
            host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or ""
        )
        with connection.cursor() as cursor:
            cursor.execute("SELECT schema_name FROM information_schema.schemata")
            names = [name for (name,) in cursor.fetchall() if re.fullmatch(rf"{datastore}_\d{{4}}", name)]
            for name in names:
                cursor.execute(f"SELECT HEX(row_key), column_name, ref_key, body FROM `{name}`.cell")
                cells += [
                    (_uuid(row), _str(column), ref, json.loads(body)) for row, column, ref, body in cursor.fetchall()
                ]
        connection.close()
    return cells


def _latest(
    cells: Sequence[tuple[str, str, int, Any]], columns: Mapping[str, Any], found: Compared
) -> dict[Place, Held]:
    """The latest cell of each child; what ends with a tombstone is not there."""
    latest: dict[Place, Held] = {}
    for row_key, column, ref_key, body in cells:
        has_number = column in columns and "column" in columns[column]["ref_key"]
        place = Place(row_key, column, ref_key >> 20 if has_number else 0)
        if place not in latest or latest[place].ref_key < ref_key:
            latest[place] = Held(ref_key, body)
    found.cells = len(cells)
    return {place: held for place, held in latest.items() if held.body is not None}


def _uuid(digits: str) -> str:
    text = digits.lower()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _str(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
