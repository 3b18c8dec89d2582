"""Every case of the corpus, written by hostile sessions, on both Postgres: it round-trips or is refused by name.

A trigger function with pinned settings renders rows as capture does. What it rendered becomes a body, the body a row of
a second table, and that row is rendered again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core import Json
from schemaless_core.canonical import from_canonical
from tests.corpus import CASES, COLUMN, TABLE, Case, Put, Row
from tests.corpus.sessions import HOSTILE, HOSTILE_SCHEMA, hostile_session
from tripstore.backends.postgres.codec import values
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import UnreadableRow, Unrepresentable
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.layout.fitting import find_misfit
from tripstore.backends.postgres.layout.layout import FieldType, Layout, MappedColumn, quoted
from tripstore.backends.postgres.wire.connections import RENDERING, connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

FLAVOURS: tuple[Flavour, ...] = ("machine", "wheel")
COPY = "copy"
SQLSTATE = re.compile(r"\d\d[0-9A-Z]{3}")
IN_ORDER = "SELECT op, row FROM heard ORDER BY n"
#: A put that Postgres takes, and makes another row of.
ANOTHER_ROW = "other"

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Company:
    """A server with what cases need."""

    url: str


Companies = Mapping[Flavour, Company]


def has(flavour: Flavour, case: Case) -> bool:
    """The wheel comes without extensions and xml; the machine's Postgres has all that the corpus needs."""
    return flavour == "machine" or case.needs is None


ALL = [(flavour, case) for flavour in FLAVOURS for case in CASES if has(flavour, case)]
WITH_VALUES = [(flavour, case) for flavour, case in ALL if case.misfit is None]
MISFITS = [(flavour, case) for flavour, case in ALL if case.misfit is not None]


@pytest.fixture(scope="module")
def companies(servers: LocalServers) -> Iterator[Companies]:
    with ExitStack() as started:
        made: dict[Flavour, Company] = {}
        for flavour in FLAVOURS:
            server = servers.postgres(f"corpus-{flavour}", flavour=flavour)
            started.callback(server.kill)  # nothing in it is wanted any more
            made[flavour] = Company(f"{server.url}/postgres")
            extensions = {case.needs for case in CASES if case.needs not in (None, "xml") and has(flavour, case)}
            with connected(made[flavour].url, "corpus") as connection:
                rows(connection, HOSTILE_SCHEMA)
                rows(connection, "ALTER DATABASE postgres SET synchronous_commit = off")  # nothing here has to last
                for extension in sorted(filter(None, extensions)):
                    rows(connection, f"CREATE EXTENSION {extension} SCHEMA public")
        yield made


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one case: `source`, where a trigger fills `captured`, and `copy`."""

    schema: str
    layout: Layout
    codec: ColumnCodec
    connection: Connection
    type_sql: str

    @property
    def column(self) -> MappedColumn:
        return self.layout.columns[COLUMN]

    def captured(self) -> list[tuple[str, str]]:
        """Operations and rows in their order, once."""
        found = rows(self.connection, f"WITH heard AS (DELETE FROM {self.schema}.captured RETURNING *) {IN_ORDER}")
        return [(operation, row) for operation, row in found]

    def write(self, texts: Mapping[str, str | None]) -> str:
        """Write texts into the second table, as INSERT and as UPDATE, and render what became of them."""
        names, places = self._places()
        found: list[str] = []
        for statement in (
            f"INSERT INTO {self.schema}.{COPY} AS c ({', '.join(names)}) VALUES ({', '.join(places)})",
            f"UPDATE {self.schema}.{COPY} AS c SET ({', '.join(names)}) = ROW({', '.join(places)})",
        ):
            values = [texts[name] for name in self.column.captured]
            found.append(rows(self.connection, f"{statement} RETURNING {self.column.row_sql('c')}", values)[0][0])
        rows(self.connection, f"DELETE FROM {self.schema}.{COPY}")
        assert found[0] == found[1]
        return found[0]

    def _places(self) -> tuple[list[str], list[str]]:
        kinds = {"value": self.type_sql, "label": "text"}
        return [quoted(name) for name in self.column.captured], [
            f"CAST(%s AS {kinds[name]})" for name in self.column.captured
        ]


def capture_function(schema: str, column: MappedColumn, settings: Mapping[str, str]) -> str:
    """A row trigger that renders as capture's functions do."""
    pinned = "".join(
        f" SET {name} = {value if name == 'search_path' else repr(value)}" for name, value in settings.items()
    )
    return f"""
    CREATE OR REPLACE FUNCTION {schema}.capture() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER{pinned} AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO {schema}.captured (op, row) VALUES (TG_OP, {column.row_sql("OLD")});
        ELSE
            INSERT INTO {schema}.captured (op, row) VALUES (TG_OP, {column.row_sql("NEW")});
        END IF;
        RETURN NULL;
    END $$"""


@contextmanager
def tables_of(company: Company, case: Case, settings: Mapping[str, str] = RENDERING) -> Iterator[Tables]:
    schema = f"case_{next(_numbers)}"
    layout = case.layout(schema)
    column = layout.columns[COLUMN]
    with connected(company.url, "corpus") as connection:
        rows(connection, f"CREATE SCHEMA {schema}; SET search_path = {schema}")
        for statement in case.setup:
            rows(connection, statement)
        rows(
            connection,
            f"""
            CREATE TABLE {TABLE} (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, version bigint DEFAULT 1,
                uuid uuid NOT NULL DEFAULT gen_random_uuid(), label text DEFAULT 'a', value {case.type});
            CREATE TABLE {COPY} (label text, value {case.type});
            CREATE TABLE captured (n bigint GENERATED ALWAYS AS IDENTITY, op pg_catalog.text, row pg_catalog.text);
            SET search_path = {RENDERING["search_path"]};
            {capture_function(schema, column, settings)};
            CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON {schema}.{TABLE}
                FOR EACH ROW EXECUTE FUNCTION {schema}.capture()""",
        )
        type_sql = rows(
            connection,
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
            f" WHERE attrelid = '{schema}.{COPY}'::regclass AND attname = 'value'",
        )[0][0]
        cache = LookupCache(layout, lambda statement, parameters: rows(connection, statement, parameters))
        yield Tables(schema, layout, ColumnCodec(column, cache), connection, type_sql)


def write_all(company: Company, tables: Tables, case: Case, session: str) -> None:
    """Write every value of a case as INSERT, the next one as UPDATE of the same row, and delete that."""
    table = f"{tables.schema}.{TABLE}"
    with hostile_session(company.url, session) as connection:
        for one, other in zip(case.rows, [*case.rows[1:], case.rows[0]], strict=True):
            rows(connection, f"INSERT INTO {table} (value) VALUES ({one.sql})")
            rows(connection, f"UPDATE {table} SET value = {other.sql}")
            rows(connection, f"DELETE FROM {table}")


def expected(case: Case) -> list[tuple[str, Row]]:
    """What the trigger hears, in order."""
    return [
        (operation, row)
        for one, other in zip(case.rows, [*case.rows[1:], case.rows[0]], strict=True)
        for operation, row in (("INSERT", one), ("UPDATE", other), ("DELETE", other))
    ]


def check_captured(tables: Tables, case: Case) -> None:
    """Every statement was heard, with the row that it left."""
    heard = tables.captured()
    assert [operation for operation, _ in heard] == [operation for operation, _ in expected(case)]
    for (_, text), (_, row) in zip(heard, expected(case), strict=True):
        check_row(tables, text, row)


def check_row(tables: Tables, text: str, row: Row) -> None:
    """A captured row is the body that the case says, and the same row again in another table; or it is refused."""
    if row.body is None:
        with pytest.raises(UnreadableRow) as refused:
            tables.codec.canonical(text)
        assert refused.value.path == row.refused
        assert row.because in refused.value.reason
        return
    assert tables.codec.canonical(text) == row.body
    written = tables.write(tables.codec.row(from_canonical(row.body)))
    assert tables.codec.canonical(written) == row.body
    kinds = {kind for field in tables.column.fields for kind in (field.kind, field.items)}
    if FieldType.JSON not in kinds and tables.column.extra is None:
        assert written == text  # a document may be written in another way, all else has one text


def check_put(tables: Tables, put: Put) -> None:
    """A body that the table cannot hold is refused by the codec, by Postgres, or by the row that comes of it."""
    body: Json = from_canonical(put.body)
    if put.by == "codec":
        with pytest.raises(Unrepresentable) as refused:
            tables.codec.row(body)
        assert refused.value.path == put.refused
        assert put.because in refused.value.reason
        return
    texts = tables.codec.row(body)
    if SQLSTATE.fullmatch(put.because):
        with pytest.raises(psycopg2.Error) as failed:
            tables.write(texts)
        assert failed.value.pgcode == put.because
        return
    written = tables.write(texts)
    if put.because == ANOTHER_ROW:
        assert tables.codec.canonical(written) != put.body
        return
    with pytest.raises(UnreadableRow) as unreadable:
        tables.codec.canonical(written)
    assert unreadable.value.path == put.refused
    assert put.because in unreadable.value.reason


@pytest.mark.parametrize(("flavour", "case"), WITH_VALUES, ids=str)
def test_i8_a_value_round_trips_or_is_refused_by_name_whoever_wrote_it(
    companies: Companies, flavour: Flavour, case: Case
) -> None:
    with tables_of(companies[flavour], case) as tables:
        for session in HOSTILE:
            write_all(companies[flavour], tables, case, session)

            check_captured(tables, case)


@pytest.mark.parametrize(("flavour", "case"), [(flavour, case) for flavour, case in WITH_VALUES if case.puts], ids=str)
def test_i2_a_body_that_no_row_holds_is_refused_by_name(companies: Companies, flavour: Flavour, case: Case) -> None:
    with tables_of(companies[flavour], case) as tables:
        for put in case.puts:
            check_put(tables, put)


@pytest.mark.parametrize(("flavour", "case"), MISFITS, ids=str)
def test_a_column_whose_values_have_no_text_of_their_own_is_no_field(
    companies: Companies, flavour: Flavour, case: Case
) -> None:
    with tables_of(companies[flavour], case) as tables:
        table = LiveCatalogue.of_layout(tables.connection, tables.layout).tables[tables.column.table]
        reason = find_misfit(tables.column.fields[0], table.columns["value"].type)

    assert reason is not None
    assert str(case.misfit) in reason


# ----------------------------------------------------------------------------------------------------- controls


@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("timestamptz", "kolkata"),
        ("timestamptz", "german"),
        ("float8", "kolkata"),
        ("float8", "latin1"),
        ("float4", "latin1"),
        ("bytea", "kolkata"),
        ("interval", "german"),
        ("date", "german"),
        ("range-time", "kolkata"),
        ("point", "latin1"),
    ],
)
def test_control_without_pinned_settings_the_corpus_notices_who_wrote(
    companies: Companies, name: str, session: str
) -> None:
    case = next(case for case in CASES if case.name == name)
    company = companies["machine"]
    with tables_of(company, case, settings={"search_path": RENDERING["search_path"]}) as tables:
        write_all(company, tables, case, session)

        with pytest.raises((AssertionError, UnreadableRow)):
            check_captured(tables, case)


def test_control_a_codec_that_loses_something_is_caught(companies: Companies, monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(self: values.Decimal, text: str) -> Json:
        return text.rstrip("0").rstrip(".") if "." in text else text

    monkeypatch.setattr(values.Decimal, "read", lossy)
    case = next(case for case in CASES if case.name == "numeric")
    with tables_of(companies["wheel"], case) as tables:
        write_all(companies["wheel"], tables, case, "kolkata")

        with pytest.raises(AssertionError):
            check_captured(tables, case)


def test_control_a_cast_alone_changes_values_silently(companies: Companies) -> None:
    """Why a put compares the row that came of it."""
    for name, value, becomes in [
        ("numeric-scale", "1.999", b'{"value":"2.00"}'),
        ("varchar", "abcdef", b'{"value":"abcde"}'),
        ("bit", "1011", b'{"value":"101"}'),
    ]:
        case = next(case for case in CASES if case.name == name)
        with tables_of(companies["wheel"], case) as tables:
            written = tables.write(tables.codec.row({"value": value}))

            assert tables.codec.canonical(written) == becomes


def test_control_json_forms_of_values_lose_what_their_texts_keep(companies: Companies) -> None:
    """Why rows are rendered as texts: row_to_json alone gives the same for different values."""
    with connected(companies["wheel"].url, "corpus") as connection:
        pairs = ("'null'::json", "NULL::json"), ("'[2:3]={1,2}'::int[]", "'{1,2}'::int[]")
        for one, other in pairs:
            found = rows(
                connection,
                f"SELECT row_to_json(a)::text = row_to_json(b)::text, a.v::text IS DISTINCT FROM b.v::text"
                f" FROM (SELECT {one} AS v) a, (SELECT {other} AS v) b",
            )

            assert found == [(True, True)]
