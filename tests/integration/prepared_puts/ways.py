"""The ways to write the same row: prepared, unprepared, and as a person would by SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from uuid import UUID, uuid4

from schemaless_core import Json, SchemalessError
from schemaless_core.deadline import Deadline
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.errors import Unrepresentable
from tripstore.backends.postgres.layout.layout import (
    Field,
    FieldType,
    Layout,
    MappedColumn,
    RefKeySource,
    RowKeySource,
    TableName,
    quoted,
)
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection

COLUMN = "BASE"


CHILD = 1 << 20


NUMBERS = count(1)


@dataclass(frozen=True)
class Place:
    """A database with our tables, and what holds its one connection."""

    url: str
    database: LegacyDatabase

    def alone(self, look: Callable[[LegacyConnection], object]) -> object:
        return self.database.run(look, Deadline(20))

    def prepared(self) -> int:
        """How many statements the connection has on the server, all of which it knows."""

        def counted(connection: LegacyConnection) -> int:
            names = {name for (name,) in connection.rows("SELECT name FROM pg_catalog.pg_prepared_statements")}
            assert names == connection._prepared
            return len(names)

        return self.database.run(counted, Deadline(20))


class Ways:
    """One column of cells, put in each way: prepared INSERT, unprepared INSERT, prepared UPDATE."""

    def __init__(self, place: Place, layout: Layout) -> None:
        self.store = PostgresBackend(place.database, layout, shards=8)
        self._place = place
        self._column = layout.columns[COLUMN]

    def outcomes(self, body: Json, first: Json) -> list[str]:
        """What becomes of a body in each way; the UPDATE finds another body there."""
        inserted, directly, updated = uuid4(), uuid4(), uuid4()
        self.store.put_cell(updated, COLUMN, 1, first)
        return [
            self.outcome(inserted, lambda: self.store.put_cell(inserted, COLUMN, 1, body)),
            self.outcome(directly, lambda: self.store.put_cell(directly, COLUMN, 1, body, expect_latest=None)),
            self.outcome(updated, lambda: self.store.put_cell(updated, COLUMN, 2, body)),
        ]

    def row(self, row_key: UUID) -> str:
        column = self._column
        sql = f"SELECT {column.row_sql('r')} FROM {column.table.sql} AS r WHERE r.{quoted(column.uuid)} = '{row_key}'"
        ((row,),) = self._place.database.run(lambda connection: connection.rows(sql), Deadline(20))
        return str(row)

    def outcome(self, row_key: UUID, put: Callable[[], object]) -> str:
        """The row that came of a put, or its refusal."""
        try:
            put()
        except SchemalessError as refused:
            path = refused.path if isinstance(refused, Unrepresentable) else ""
            return f"{type(refused).__name__} at {path}: {refused}"
        return self.row(row_key)


#: What is fitted to a column by its type's rules, and what is read in more than one way.
TEXTS = {
    "text": ["", "%s %(a)s %", "$1 $2", "E'\\n'", "'; SELECT 1 --", "\\", "a\nb\tc", "“ß”", "\\'"],
    "varchar(3)": ["abc", "abc  ", "abcd", "ab c", "", "ä€x", "äöüß", "a'b", "a\\b", "a\\'b"],
    "char(3)": ["a", "a  ", "abc ", "abcd", ""],
    "bpchar": ["a ", ""],
    '"char"': ["e", "ef", "", "ä"],
    "name": ["x" * 63, "x" * 64],
    "bit(3)": ["101", "10", "1011", "", "1x1", "x5"],
    "varbit(3)": ["1", "1011", ""],
    "int2": ["7", " 7", "007", "32768", "-32768", "x", "", "1.5"],
    "int8": ["9223372036854775807", "9223372036854775808", "-9223372036854775808"],
    "float4": ["1.1", "0.1000000001", "1e39", "NaN", "nan", "-0"],
    "float8": ["1e308", "1e309", "0.1", "x"],
    "numeric": ["1e2", "0.10", "NaN"],
    "numeric(4,1)": ["12.5", "12.55", "1234.5", "NaN", "1e2", "Infinity"],
    "bool": ["yes", "t", "true", "on", "x"],
    "date": ["2014-08-01", "01.08.2014", "2014-02-30", "infinity"],
    "time(2)": ["12:30:00.12", "12:30:00.125", "24:00:00", "25:00"],
    "timetz(0)": ["12:30:00+05:30", "12:30:00.6+00", "12:30"],
    "timestamp(2)": ["2014-08-01 12:00:00.25", "2014-08-01 12:00:00.255", "2014-08-01 12:00:00+05"],
    "timestamptz(0)": ["2014-08-01 12:00:00+00", "2014-08-01 12:00:00.5+00", "2014-08-01 12:00:00", "-infinity"],
    "interval": ["5", "00:05:00", "1:02", "1 day", "1 year 2 mons", "P1D", "x"],
    "interval(1)": ["00:00:00.1", "00:00:00.15", "5"],
    "interval minute": ["5", "00:05:00", "00:05:30", "1:02", "1 day"],
    "interval day to second(2)": ["1 day 01:02:03.45", "1 mon", "1:02", "01:02:03.456"],
    "interval year": ["5", "1 year", "1 year 2 mons", "14"],
    "uuid": [
        "11111111-1111-1111-1111-111111111111",
        "11111111-1111-1111-1111-11111111111A",
        "{11111111-1111-1111-1111-111111111111}",
        "x",
    ],
    "bytea": ["\\x00ff", "\\xZZ", "a\\\\b", "a\\b", ""],
    "json": ['{"a": 1 ,"b":[]}', "{bad", '"\\u0000"', "1"],
    "jsonb": ['{"b": 1, "a": 1.0}', '{"a": 1.0, "b": 1}', '"\\u0000"'],
    "inet": ["10.0.0.1/8", "10.0.0.1", "x"],
    "int4range": ["[1,3)", "[1,3]", "empty", "(3,1)"],
    "varchar(2)[]": ['{ab,"c "}', "{abc}", "{{a},{b}}", "[2:3]={a,b}", "{a", "NULL"],
    "numeric(4,1)[]": ["{1.5,NULL}", "{1.55}", "{12345}"],
    "bit(2)[]": ["{10,01}", "{101}"],
    "interval minute[]": ["{5}", "{00:05:00}"],
    'odd."mood %s"': ["a b", 'q"', "%", "none"],
    'odd."mood %s"[]': ['{"a b",%}', "{none}"],
    "odd.short": ["abc", "abcd", "abc  "],
    "odd.shorter": ["ab", "abc", ""],
    "odd.positive": ["1", "0", "x"],
    "odd.minutes": ["5", "00:05:00", "00:05:30"],
    "odd.pair": ["{ab,cd}", "{abc}", "{ab}"],
    "odd.short[]": ["{abc}", "{abcd}"],
}


ODD_TYPES = """
CREATE TYPE odd."mood %s" AS ENUM ('a b', 'q"', '%');
CREATE DOMAIN odd.short AS varchar(3);
CREATE DOMAIN odd.shorter AS odd.short CHECK (VALUE <> '' AND length(VALUE) < 3);
CREATE DOMAIN odd.positive AS int CHECK (VALUE > 0);
CREATE DOMAIN odd.minutes AS interval minute;
CREATE DOMAIN odd.pair AS varchar(2)[] CHECK (array_length(VALUE, 1) = 2);
"""


def string_layout(schema: str, table: str, names: dict[str, str]) -> Layout:
    """Physical columns by field name, all of them texts in bodies: the store leaves their types to Postgres."""
    name = TableName(schema, table)
    fields = tuple(Field(field, physical, FieldType.STRING) for field, physical in names.items())
    column = MappedColumn(COLUMN, name, "row % key", None, RefKeySource(version='"version" %s'), fields)
    return Layout("kinds", RowKeySource(name, "id", "row % key"), {COLUMN: column})


def table_sql(layout: Layout, types: dict[str, str]) -> str:
    """The table of such a layout; types by physical column."""
    column = layout.columns[COLUMN]
    assert column.ref_key.version is not None
    kinds = ", ".join(f"{quoted(name)} {type_sql}" for name, type_sql in types.items())
    return (
        f"CREATE TABLE {column.table.sql} (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, "
        f"{quoted(column.uuid)} uuid NOT NULL UNIQUE, {quoted(column.ref_key.version)} bigint NOT NULL, {kinds})"
    )
