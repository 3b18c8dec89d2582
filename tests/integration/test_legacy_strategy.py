"""Bodies that a layout's strategy draws, on real Postgres: each becomes a row, and the row the same body."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core import InvalidRequest, Json, canonical_bytes
from schemaless_core.cell.cell import check_ref_key
from tests.column_types import ColumnType, read_column_types
from tests.layout_strategy import bodies, is_in_the_middle, ref_keys
from tests.scale import SCALE, scaled
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.layout.layout import FieldType, Layout, MappedColumn, quoted
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: In one run of sixty examples one time in twenty a field is in none of them.
RUNS = 5
FLAVOURS: tuple[Flavour, ...] = ("machine", "wheel") if SCALE >= 1 else ("wheel",)
USERS = {7: "c4ca4238-a0b9-2382-0dcc-509a6f75849b", 8: "c81e728d-9d4c-2f63-6f06-7f89cc14862c"}

#: Every type that a strategy draws for: the physical type, and the field.
TYPES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "text_": ("text", {"type": "string"}),
    "needed": ("text NOT NULL", {"type": "string"}),
    "kept": ("text", {"type": "string", "null": "keep"}),
    "short": ("varchar(3)", {"type": "string"}),
    "padded": ("char(4)", {"type": "string"}),
    "mood_": ("mood NOT NULL", {"type": "string"}),
    "span": ("interval", {"type": "string"}),
    "address": ("inet", {"type": "string"}),
    "small": ("smallint", {"type": "int"}),
    "middle": ("integer NOT NULL", {"type": "int"}),
    "large": ("bigint", {"type": "int"}),
    "half": ("real", {"type": "float"}),
    "whole": ("double precision", {"type": "float"}),
    "money_": ("numeric(10,2)", {"type": "decimal"}),
    "price": ("price", {"type": "decimal"}),
    "exact": ("numeric", {"type": "decimal"}),
    "yes": ("boolean", {"type": "boolean"}),
    "at": ("timestamptz", {"type": "datetime"}),
    "at_ms": ("timestamptz(3)", {"type": "datetime"}),
    "naive": ("timestamp", {"type": "datetime"}),
    "day": ("date", {"type": "date"}),
    "data": ("bytea", {"type": "bytes"}),
    "id_": ("uuid", {"type": "uuid"}),
    "json_": ("json", {"type": "json"}),
    "jsonb_": ("jsonb", {"type": "json"}),
    "jsonb_kept": ("jsonb", {"type": "json", "null": "keep"}),
    "texts": ("text[]", {"type": "array", "items": "string"}),
    "shorts": ("varchar(3)[]", {"type": "array", "items": "string"}),
    "paddeds": ("char(3)[]", {"type": "array", "items": "string"}),
    "moods": ("mood[]", {"type": "array", "items": "string"}),
    "ints": ("integer[]", {"type": "array", "items": "int"}),
    "floats": ("double precision[]", {"type": "array", "items": "float"}),
    "decimals": ("numeric(8,3)[]", {"type": "array", "items": "decimal"}),
    "moments": ("timestamptz[]", {"type": "array", "items": "datetime"}),
    "datas": ("bytea[]", {"type": "array", "items": "bytes"}),
    "ids": ("uuid[]", {"type": "array", "items": "uuid"}),
    "documents": ("jsonb[]", {"type": "array", "items": "json"}),
    "user_id": ("integer", {"type": "uuid", "lookup": {"table": "users", "key": "id", "value": "user_uuid"}}),
}
DDL = f"""
SET search_path = public;
CREATE TYPE mood AS ENUM ('sad', 'Happy', 'a "b"');
CREATE DOMAIN price AS numeric(6,1) CHECK (VALUE >= -99999.9 OR VALUE = 'NaN');
CREATE TABLE users (id integer PRIMARY KEY, user_uuid uuid NOT NULL UNIQUE);
INSERT INTO users VALUES {", ".join(f"({key}, '{uuid}')" for key, uuid in USERS.items())};
CREATE TABLE trips (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, trip_uuid uuid, base_version bigint,
    {", ".join(f"{name} {type_sql}" for name, (type_sql, _) in TYPES.items())}, rest json);
SET search_path = pg_catalog, pg_temp;
"""


_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Trips:
    """A table with a column of every type."""

    layout: Layout
    types: Mapping[str, ColumnType]
    connection: Connection
    codec: ColumnCodec
    statement: str

    @property
    def column(self) -> MappedColumn:
        return self.layout.columns["BASE"]

    def bodies(self) -> st.SearchStrategy[dict[str, Json]]:
        return bodies(self.column, self.types, {lookup: tuple(USERS.values()) for lookup in self.layout.lookups})

    def stored(self, body: Json) -> bytes:
        """The canonical body of the row that a body becomes."""
        texts = self.codec.row(body)
        values = [texts[name] for name in self.column.captured]
        return self.codec.canonical(rows(self.connection, self.statement, values)[0][0])


@pytest.fixture(scope="module", params=FLAVOURS)
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Trips]:
    flavour: Flavour = request.param
    with ExitStack() as started:
        server = servers.postgres(f"strategy-{flavour}-{next(_numbers)}", flavour=flavour)
        started.callback(server.kill)
        connection = started.enter_context(
            connected(f"{server.url}/postgres", "strategies", synchronous_commit="off", lock_timeout="5s")
        )
        rows(connection, DDL)
        yield _trips(connection)


def _trips(connection: Connection) -> Trips:
    fields = {name: field for name, (_, field) in TYPES.items()}
    base = {"table": "trips", "ref_key": {"version": "base_version"}, "fields": fields, "extra": "rest"}
    row_key = {"table": "trips", "id": "id", "uuid": "trip_uuid"}
    layout = load_layout({"datastore": "trips", "row_key": row_key, "columns": {"BASE": base}})
    column = layout.columns["BASE"]
    shown = dict(
        rows(
            connection,
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = 'public.trips'::regclass AND attnum > 0",
        )
    )
    places = ", ".join(f"CAST(%s AS {shown[name]})" for name in column.captured)
    names = ", ".join(map(quoted, column.captured))
    statement = f"INSERT INTO public.trips AS t ({names}) VALUES ({places}) RETURNING {column.row_sql('t')}"
    cache = LookupCache(layout, lambda statement, parameters: rows(connection, statement, parameters))
    types = read_column_types(connection, column.table)
    return Trips(layout, types, connection, ColumnCodec(column, cache), statement)


def drawn(strategy: st.SearchStrategy[dict[str, Json]], count: int) -> list[dict[str, Json]]:
    """Some examples, none of them sought or made smaller; of several runs, since those of one resemble each other."""
    found: list[dict[str, Json]] = []

    @settings(max_examples=count, database=None, phases=[Phase.generate])
    @given(strategy)
    def collect(body: dict[str, Json]) -> None:
        found.append(body)

    for _ in range(RUNS):
        collect()
    return found


@settings(max_examples=scaled(4_000, short=80))
@given(data=st.data())
def test_i2_a_body_that_a_layout_holds_comes_back_byte_for_byte(trips: Trips, data: st.DataObject) -> None:
    body = data.draw(trips.bodies())

    assert trips.stored(body) == canonical_bytes(body)


@pytest.mark.parametrize(
    "number", [134219000.0, -134219000.0, 268435000.0, 134220000.0, 0.5, 0.1, 0.0, 1e-20, 999999e20]
)
def test_a_32_bit_float_in_the_middle_of_two_is_not_drawn(trips: Trips, number: float) -> None:
    """It has six digits, and Postgres writes it with more."""
    (text,) = rows(trips.connection, f"SELECT (real '{number!r}')::text")[0]

    assert (float(text) != number) is is_in_the_middle(number)
    assert is_in_the_middle(134219000.0)


def test_a_strategy_draws_every_field_and_leaves_out_what_may_be_null(trips: Trips) -> None:
    required = {name for name, (type_sql, field) in TYPES.items() if "NOT NULL" in type_sql or "null" in field}
    fields = trips.column.fields_by_name.keys()
    found = drawn(trips.bodies(), 60)

    assert all(body.keys() >= required for body in found)
    for name in fields:
        assert any(name in body for body in found)
        assert name in required or any(name not in body for body in found)
    assert any(body.keys() - fields for body in found)  # of the extra


def test_types_are_those_below_the_domains_with_their_lengths(trips: Trips) -> None:
    assert trips.types["price"] == ColumnType("numeric", (6, 1))
    assert trips.types["money_"] == ColumnType("numeric", (10, 2))
    assert trips.types["at_ms"] == ColumnType("timestamp with time zone", (3,))
    assert trips.types["naive"] == ColumnType("timestamp without time zone")
    assert trips.types["shorts"] == ColumnType("character varying", (3,), is_array=True)
    assert trips.types["mood_"].labels == trips.types["moods"].labels == ("sad", "Happy", 'a "b"')
    assert trips.types["needed"].is_not_null


def test_control_a_strategy_that_does_not_know_the_types_draws_what_is_not_held(trips: Trips) -> None:
    short = replace(trips.column, fields=(trips.column.fields_by_name["short"],), extra=None)
    unknown = {**trips.types, "short": ColumnType("text")}

    assert all(len(str(body.get("short", ""))) <= 3 for body in drawn(bodies(short, trips.types), 60))
    assert any(len(str(body.get("short", ""))) > 3 for body in drawn(bodies(short, unknown), 60))


def test_a_type_that_no_strategy_knows_is_named(trips: Trips) -> None:
    with pytest.raises(InvalidRequest, match="tsvector"):
        bodies(trips.column, {**trips.types, "text_": ColumnType("tsvector")})


@given(data=st.data())
def test_ref_keys_are_those_of_rows(trips: Trips, data: st.DataObject) -> None:
    for source in ({"version": "v"}, {"column": "n"}, {"column": "n", "version": "v"}):
        column = replace(
            trips.column, ref_key=replace(trips.column.ref_key, **({"column": None, "version": None} | source))
        )
        ref_key = data.draw(ref_keys(column))

        check_ref_key(ref_key)
        assert column.compose(*column.split(ref_key)) == ref_key


def test_every_field_type_is_drawn() -> None:
    assert {field["type"] for _, field in TYPES.values()} == {kind.value for kind in FieldType}
