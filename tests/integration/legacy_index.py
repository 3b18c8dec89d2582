"""A small company database for index queries: tables of every type, random rows, and the same cells in the oracle."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from schemaless_core import Cell, Json, MemoryStore
from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import IndexDefinition, load_definitions
from tests.databases import create_database
from tripstore.backends.postgres import tables
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.codec.values import value_of
from tripstore.backends.postgres.layout.layout import (
    LEGACY_ID,
    Field,
    FieldType,
    Layout,
    Lookup,
    MappedColumn,
    RefKeySource,
    RowKeySource,
    TableName,
)
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.queries.queries import Queries
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres import PostgresServer

TABLES = """
CREATE TYPE mood AS ENUM ('worst', 'good', 'bad', 'best');
CREATE DOMAIN short_text AS varchar(600);
CREATE TABLE users (id bigint PRIMARY KEY, user_uuid uuid NOT NULL UNIQUE);
CREATE TABLE cities (code text PRIMARY KEY, "na%me" text NOT NULL UNIQUE);
CREATE TABLE trips (
    id bigint PRIMARY KEY, trip_uuid uuid UNIQUE, base_version bigint NOT NULL,
    driver_id int REFERENCES users (id), city_code text REFERENCES cities (code),
    city text COLLATE "{collation}", place short_text, state mood, padded char(600) COLLATE "{collation}",
    "odd % ""name" text,
    seats bigint, doors smallint, distance float8, tip float4, fare numeric, is_shared bool,
    request_at timestamptz, local_at timestamp, code text, rider text, started date, base_extra json
);
CREATE INDEX trips_driver ON trips (driver_id);
CREATE TABLE notes (trip_uuid uuid NOT NULL, n int NOT NULL, note_version bigint NOT NULL, note text, score numeric,
                    UNIQUE (trip_uuid, n));
CREATE TABLE attempts (trip_uuid uuid NOT NULL, attempt_no bigint NOT NULL, status text, amount float8, note_extra json,
                       UNIQUE (trip_uuid, attempt_no));
"""

USERS = {number: UUID(int=number % 3 << 120 | number) for number in range(1, 6)}
CITIES = {"aar": "Århus", "ode": "Odense", "cph": "København", "low": "århus"}

_S, _I, _F = FieldType.STRING, FieldType.INT, FieldType.FLOAT
_USER = Lookup(TableName("public", "users"), "id", "user_uuid")
_CITY = Lookup(TableName("public", "cities"), "code", "na%me")
_TRIPS = TableName("public", "trips")
_BASE_FIELDS = (
    Field("driver", "driver_id", FieldType.UUID, _USER),
    Field("city_name", "city_code", _S, _CITY),
    Field("city", "city", _S),
    Field("place", "place", _S, keeps_null=True),
    Field("state", "state", _S),
    Field("padded", "padded", _S),
    Field("odd", 'odd % "name', _S),
    Field("seats", "seats", _I),
    Field("doors", "doors", _I),
    Field("distance", "distance", _F),
    Field("tip", "tip", _F),
    Field("fare", "fare", FieldType.DECIMAL),
    Field("is_shared", "is_shared", FieldType.BOOLEAN),
    Field("request_at", "request_at", FieldType.DATETIME),
    Field("local_at", "local_at", FieldType.DATETIME),
    Field("code", "code", _I),
    Field("rider", "rider", _S),
    Field("started", "started", FieldType.DATE),
)
LAYOUT = Layout(
    "trips",
    RowKeySource(_TRIPS, "id", "trip_uuid"),
    {
        "BASE": MappedColumn(
            "BASE", _TRIPS, "trip_uuid", None, RefKeySource(version="base_version"), _BASE_FIELDS, "base_extra"
        ),
        "NOTES": MappedColumn(
            "NOTES",
            TableName("public", "notes"),
            "trip_uuid",
            "trip_uuid",
            RefKeySource("n", "note_version"),
            (Field("note", "note", _S), Field("score", "score", FieldType.DECIMAL)),
        ),
        "ATTEMPTS": MappedColumn(
            "ATTEMPTS",
            TableName("public", "attempts"),
            "trip_uuid",
            "trip_uuid",
            RefKeySource("attempt_no"),
            (Field("status", "status", _S), Field("amount", "amount", _F)),
            "note_extra",
        ),
    },
)


def _index(name: str, **columns: str) -> Json:
    """Fields are written like city:string."""
    return {
        "table": name,
        "column_defs": [
            {
                "column_key": column,
                "fields": [dict(zip(("field", "type"), each.split(":"), strict=True)) for each in fields.split()],
            }
            for column, fields in columns.items()
        ],
    }


_BASE = (
    "driver:UUID city_name:string city:string place:string state:string padded:string odd:string seats:int doors:float"
    " distance:float tip:float fare:decimal is_shared:boolean request_at:datetime local_at:datetime code:int rider:UUID"
    " tag:string"
)
_NOTES, _ATTEMPTS = "note:string score:decimal", "status:string amount:float why:int"


def _base_by(first: str) -> str:
    """The fields of BASE with this one as the shard field."""
    name = first.split(":", maxsplit=1)[0]
    return " ".join([first, *(each for each in _BASE.split() if each.split(":", maxsplit=1)[0] != name)])


SHARD_FIELDS = [
    "driver:UUID", "driver:string", "city_name:string", "city:string", "place:string", "state:string", "padded:string",
    "seats:int", "seats:decimal", "doors:float", "tip:float", "distance:decimal", "fare:decimal", "is_shared:boolean",
    "request_at:datetime", "request_at:string", "local_at:datetime", "code:int", "rider:UUID", "tag:string",
]  # fmt: skip

DEFINITIONS: Mapping[str, IndexDefinition] = {
    definition.name: definition
    for definition in load_definitions(
        [
            *(
                _index(f"by_{first.lower().replace(':', '_')}", BASE=_base_by(first), NOTES=_NOTES, FREE="free:string")
                for first in SHARD_FIELDS
            ),
            _index("by_note", NOTES=_NOTES, BASE=_BASE, ATTEMPTS=_ATTEMPTS),
            _index("by_status", ATTEMPTS=_ATTEMPTS, BASE="city:string fare:decimal", FREE="free:string"),
            _index("by_free", FREE="free:string", BASE="driver:UUID distance:float", ATTEMPTS=_ATTEMPTS),
            _index("by_id", **{LEGACY_ID: "id:int"}, BASE="city:string", NOTES="note:string"),
        ],
        Path.cwd(),
        "trips",
    )
}


@dataclass
class PlainCodec:
    """Decodes rows for the oracle in a plain way, apart from the codec that queries use."""

    column: MappedColumn
    pairs: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {
            "users": {str(number): str(uuid) for number, uuid in USERS.items()},
            "cities": CITIES,
        }
    )

    def body(self, row: str) -> Json:
        texts = json.loads(row)
        extra = texts[self.column.extra] if self.column.extra else None
        body = dict(json.loads(extra or "{}"))
        for each in self.column.fields:
            text = texts[each.column]
            if text is None:
                body |= {each.name: None} if each.keeps_null else {}
            elif each.lookup is not None:
                body[each.name] = self.pairs[each.lookup.table.name][text]
            else:
                body[each.name] = value_of(each).read(text)
        return body


class Company:
    """One database of the company's, and the questions that were sent to it."""

    def __init__(self, connection: Connection, reader: Connection) -> None:
        self.connection = connection
        self._reader = reader  # with the settings of our own sessions, as queries run under
        self.statements: list[tuple[str, Sequence[Any]]] = []
        self.between: Callable[[], None] = lambda: None
        self.forget()

    def forget(self) -> None:
        """Ask as for the first time."""
        self.queries = Queries(self.run, LAYOUT, LookupCache(LAYOUT), DEFINITIONS, self.cells)

    def run(self, sql: str, parameters: Sequence[Any], deadline: Deadline) -> list[tuple[Any, ...]]:
        assert not deadline.is_over
        if self.statements:
            self.between()
        self.statements.append((sql, parameters))
        return rows(self._reader, sql, parameters)

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return rows(self.connection, sql, parameters or None)

    def plan(self) -> str:
        """How Postgres would run the last statement that looked for rows."""
        sql, parameters = next(sent for sent in reversed(self.statements) if " LIMIT %s" in sent[0])
        return "\n".join(line for (line,) in self.execute(f"EXPLAIN {sql}", *parameters))

    def query_index(self, *arguments: Any, **options: Any) -> Any:
        return self.queries.query_index(*arguments, **options, deadline=Deadline(30))

    def cells(
        self, row_keys: Sequence[UUID], columns: Collection[str] | None, deadline: Deadline
    ) -> Mapping[UUID, Mapping[str, Cell]]:
        """Asked for once per page with `columns`, and not looked into here."""
        asked = ",".join(sorted(columns or ["*"]))
        return {key: {"ASKED": Cell(key, "ASKED", len(row_keys), asked)} for key in row_keys}

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        """Values as text: a driver's types are not in the way."""
        names = ", ".join('"' + name.replace('"', '""').replace("%", "%%") + '"' for name in row)
        self.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join(['%s'] * len(row))})", *row.values())

    def clear(self) -> None:
        self.execute("DELETE FROM trips; DELETE FROM notes; DELETE FROM attempts")
        self.execute("DELETE FROM tripstore.cell; DELETE FROM tripstore.tomb")

    def put_own(self, row_key: UUID, column: str, ref_key: int, body: Json) -> None:
        """A cell that no table of the company's holds."""
        row = {"row_key": str(row_key), "column_name": column, "ref_key": ref_key, "body": canonical_bytes(body)}
        self.insert("tripstore.cell", row | {"created_at": "now"})

    def bury(self, row_key: UUID, column: str, n: int, ref_key: int) -> None:
        self.insert("tripstore.tomb", {"row_key": str(row_key), "column_name": column, "n": n, "ref_key": ref_key})

    def cells_there(self) -> Iterator[Cell]:
        """All cells that the tables stand for, by a way of their own: one table after the other."""
        for column in LAYOUT.columns.values():
            key = f"{column.ref_key.column or 0}, {column.ref_key.version or 0}"
            found = self.execute(f"SELECT {column.uuid}, {key}, {column.row_sql('t')} FROM {column.table.sql} t")
            for uuid, number, version, row in found:
                if uuid is not None:
                    yield Cell(UUID(uuid), column.name, column.compose(number, version), PlainCodec(column).body(row))
        for uuid, number in self.execute("SELECT trip_uuid, id FROM trips WHERE trip_uuid IS NOT NULL"):
            yield Cell(UUID(uuid), LEGACY_ID, 0, {"id": number})
        for uuid, name, ref_key in self.execute("SELECT row_key, column_name, ref_key FROM tripstore.tomb"):
            yield Cell(UUID(uuid), name, ref_key, None)
        for uuid, name, ref_key, body in self.execute("SELECT row_key, column_name, ref_key, body FROM tripstore.cell"):
            yield Cell(UUID(uuid), name, ref_key, json.loads(bytes(body)))

    def oracle(self) -> MemoryStore:
        store = MemoryStore(shards=4, indexes=list(DEFINITIONS.values()), lagging_indexes=False)
        for cell in self.cells_there():
            store.put_cell(cell.row_key, cell.column_name, cell.ref_key, cell.body)
        return store


_numbers = itertools.count(1)


@contextmanager
def company(server: PostgresServer) -> Iterator[Company]:
    """A database of its own on a shared server."""
    name = f"queries_{next(_numbers)}"
    create_database(server.url, name)
    url = f"{server.url}/{name}"
    has_icu = bool(server.query("SELECT 1 AS found FROM pg_collation WHERE collname = 'en-x-icu'"))
    settings = {"search_path": "public, pg_catalog", "synchronous_commit": "off"}
    with connected(url, "tests", **settings) as connection, connected(url, "queries") as reader:
        made = Company(connection, reader)
        made.execute(TABLES.format(collation="en-x-icu" if has_icu else "C"))
        made.execute(_our_tables())
        for number, uuid in USERS.items():
            made.insert("users", {"id": number, "user_uuid": str(uuid)})
        for code, city in CITIES.items():
            made.insert("cities", {"code": code, "na%me": city})
        yield made


def _our_tables() -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy's own
    made = [CreateTable(table).compile(dialect=dialect) for table in (tables.cell, tables.tomb, tables.pair)]
    return f"CREATE SCHEMA {SCHEMA}; " + ";".join(map(str, made))
