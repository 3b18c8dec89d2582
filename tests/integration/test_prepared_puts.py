"""Prepared puts: the same rows and the same refusals as unprepared ones, whatever becomes of the tables meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from uuid import UUID, uuid4

import psycopg2
import pytest
from prometheus_client import REGISTRY

from schemaless_core import InvalidServer, Json, SchemalessError
from schemaless_core.canonical import from_canonical
from schemaless_core.deadline import Deadline
from tests.corpus import CASES, Case
from tests.corpus.company import EXTENSIONS, has
from tests.legacy import FLAVOURS
from tests.legacy_backends import Company, company, status
from tests.legacy_databases import PATIENT, new_database, postgres_server, run
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.cells.row_statements import RowStatements, literal
from tripstore.backends.postgres.cells.row_writes import RowWrites
from tripstore.backends.postgres.cells.rows import ColumnRows
from tripstore.backends.postgres.cells.sights import begin_sql
from tripstore.backends.postgres.errors import LegacyUnavailable, Unrepresentable
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
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection, Prepared
from tripstore.local.postgres import PostgresServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

COLUMN = "BASE"
CHILD = 1 << 20

_numbers = count(1)


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


@pytest.fixture(scope="module")
def places(servers: LocalServers) -> Iterator[Mapping[Flavour, Place]]:
    with ExitStack() as opened:
        made: dict[Flavour, Place] = {}
        for flavour in FLAVOURS:
            url = new_database(servers, flavour, "CREATE SCHEMA odd")
            made[flavour] = Place(url, opened.enter_context(closing(LegacyDatabase(url, PATIENT))))
        for extension in EXTENSIONS:
            run(made["machine"].url, f"CREATE EXTENSION {extension} SCHEMA public")
        yield made


@pytest.fixture(params=FLAVOURS)
def place(request: pytest.FixtureRequest, places: Mapping[Flavour, Place]) -> Place:
    return places[request.param]


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


@pytest.fixture
def ways_used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways that puts went."""
    used: list[str] = []

    def spy(name: str) -> None:
        real = getattr(RowWrites, name)

        def noted(*arguments: object, **more: object) -> object:
            used.append(name)
            return real(*arguments, **more)

        monkeypatch.setattr(RowWrites, name, noted)

    for name in ("insert_first", "insert", "update"):
        spy(name)
    return used


# ------------------------------------------------------------------------------------------------ the same in all ways

#: Each case on the first server that has what it needs: which one reads a text makes no difference here.
WITH_VALUES = [
    (next(flavour for flavour in FLAVOURS if has(flavour, case)), case) for case in CASES if case.misfit is None
]


def case_layout(case: Case, schema: str) -> Layout:
    """A table of its own for a case, whose rows are versions."""
    fields = {
        name: field
        | ({"lookup": field["lookup"] | {"table": f"{schema}.{field['lookup']['table']}"}} if "lookup" in field else {})
        for name, field in case.column.get("fields", {}).items()
    }
    table = f"{schema}.things"
    column = {**case.column, "table": table, "ref_key": {"version": "version"}, "fields": fields}
    row_key = {"table": table, "id": "id", "uuid": "uuid"}
    return load_layout({"datastore": "corpus", "row_key": row_key, "columns": {COLUMN: column}})


@pytest.mark.parametrize(("flavour", "case"), WITH_VALUES, ids=str)
def test_a_body_of_the_corpus_fares_alike_in_all_ways(
    places: Mapping[Flavour, Place], flavour: Flavour, case: Case, ways_used: list[str]
) -> None:
    """I2: it is the row that it was, or refused with the same words."""
    schema, place = f"corpus_{next(_numbers)}", places[flavour]
    table = (
        "CREATE TABLE things (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, version bigint, "
        f"uuid uuid NOT NULL UNIQUE, label text, value {case.type})"
    )
    run(place.url, "; ".join([f"CREATE SCHEMA {schema}; SET search_path = {schema}, public", *case.setup, table]))
    ways = Ways(place, case_layout(case, schema))
    bodies = [from_canonical(row.body) for row in case.rows if row.body is not None]

    for body in bodies:
        outcomes = ways.outcomes(body, bodies[0])
        assert len(set(outcomes)) == 1, outcomes
        assert outcomes[0].startswith("{")
    assert ways_used == ["insert_first", "insert_first", "insert", "update"] * len(bodies)
    for put in case.puts:
        outcomes = ways.outcomes(from_canonical(put.body), bodies[0])
        assert len(set(outcomes)) == 1, outcomes
        assert not outcomes[0].startswith("{"), outcomes[0]


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


@pytest.fixture(scope="module")
def kinds_by_flavour(places: Mapping[Flavour, Place]) -> Mapping[Flavour, Ways]:
    """A table with a column of each type, and names that mean something to whoever formats them."""
    names = {kind: f"{kind} % {{0}}" for kind in TEXTS}
    layout = string_layout("odd", 'kinds % of "things"', names)
    for place in places.values():
        run(place.url, ODD_TYPES)
        run(place.url, table_sql(layout, {names[kind]: kind for kind in TEXTS}))
    return {flavour: Ways(place, layout) for flavour, place in places.items()}


@pytest.fixture(params=FLAVOURS)
def kinds(request: pytest.FixtureRequest, kinds_by_flavour: Mapping[Flavour, Ways]) -> Ways:
    return kinds_by_flavour[request.param]


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_is_fitted_to_its_column_alike_in_all_ways(kinds: Ways, kind: str) -> None:
    """I2: it is read, cut, padded, rounded or refused as if it stood in the statement."""
    found = {text: kinds.outcomes({kind: text}, {}) for text in TEXTS[kind]}

    assert [outcomes for outcomes in found.values() if len(set(outcomes)) > 1] == []
    assert any(outcomes[0].startswith("{") for outcomes in found.values())


@pytest.mark.parametrize(("kind", "text"), [("varchar(3)", "abcd"), ("bit(3)", "1011"), ("varchar(2)[]", "{abc}")])
def test_control_parameters_with_a_cast_fare_otherwise(
    kinds: Ways, kind: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cast cuts what an assignment refuses."""
    values = RowStatements._values.fget  # type: ignore[attr-defined]  # a property
    types = sorted(TEXTS)

    def cast(self: RowStatements) -> list[str]:
        return [f"CAST({value} AS {of})" for value, of in zip(values(self), types, strict=True)]

    monkeypatch.setattr(RowStatements, "_values", property(cast))
    fresh = Ways(kinds._place, kinds.store.layout)

    outcomes = fresh.outcomes({kind: text}, {})

    assert len(set(outcomes)) > 1, outcomes


def test_a_literal_means_its_text_whatever_backslashes_mean(place: Place) -> None:
    texts = ["", "'", "\\", "\\'", "''\\\\", "a\\nb", "E'x'", "%s", "\n"]
    for setting in ("on", "off"):

        def read(connection: LegacyConnection, setting: str = setting) -> list[object]:
            connection.rows(f"SET standard_conforming_strings = {setting}")
            try:
                return [connection.rows(f"SELECT {literal(text)}::text")[0][0] for text in texts]
            finally:
                connection.rows("RESET standard_conforming_strings")

        assert place.alone(read) == texts


# ------------------------------------------------------------------------------------------- what the company changes

SMALL = {"a": "int", "b": "varchar(5)", "c": "numeric(10,2)", "d": "text"}


class Things:
    """A table of its own, and puts into it that are prepared already."""

    def __init__(self, place: Place) -> None:
        self.place, self.schema = place, f"things_{next(_numbers)}"
        self.layout = string_layout(self.schema, "things", {name: name for name in SMALL})
        run(place.url, f"CREATE SCHEMA {self.schema}")
        run(place.url, table_sql(self.layout, SMALL))
        self.ways = Ways(place, self.layout)
        self.store = self.ways.store
        self.updated = uuid4()
        self.store.put_cell(self.updated, COLUMN, 1, {"a": "1"})
        self.store.put_cell(self.updated, COLUMN, 2, {"a": "2"})

    def alter(self, statements: str) -> None:
        run(self.place.url, f"SET search_path = {self.schema}, odd, public; {statements}")

    def put(self, body: Json) -> list[str]:
        """What became of it as INSERT and as UPDATE."""
        inserted = uuid4()
        return [
            self.ways.outcome(inserted, lambda: self.store.put_cell(inserted, COLUMN, 1, body)),
            self.ways.outcome(self.updated, lambda: self.store.put_cell(self.updated, COLUMN, 3, body)),
        ]


@pytest.fixture
def things(place: Place) -> Things:
    return Things(place)


def repeats() -> float:
    return REGISTRY.get_sample_value("schemaless_repeats_total", {"cause": "transaction_lost"}) or 0.0


SWAPPED = """
CREATE TABLE other (LIKE things INCLUDING ALL);
ALTER TABLE other ALTER a TYPE text;
INSERT INTO other SELECT * FROM things;
ALTER TABLE things RENAME TO former;
ALTER TABLE other RENAME TO things;
"""


@pytest.mark.parametrize(
    ("statements", "field", "text", "is_taken"),
    [
        ("ALTER TABLE things ALTER a TYPE text", "a", "007", True),
        ("ALTER TABLE things ALTER a TYPE text", "a", "x", True),
        ("ALTER TABLE things ALTER a TYPE smallint", "a", "40000", False),
        ("ALTER TABLE things ALTER b TYPE varchar(10)", "b", "abcdefg", True),
        ("ALTER TABLE things ALTER b TYPE varchar(2)", "b", "abc", False),
        ("ALTER TABLE things ALTER b TYPE int USING NULL", "b", "7", True),
        ("ALTER TABLE things ALTER c TYPE numeric(10,4)", "c", "1.2345", True),
        ("ALTER TABLE things ALTER c TYPE float8", "c", "1e+300", True),
        ("ALTER TABLE things ALTER d TYPE timestamptz USING NULL", "d", "2014-08-01 12:00:00+00", True),
        ("CREATE TYPE mood AS ENUM ('sad'); ALTER TABLE things ALTER d TYPE mood USING NULL", "d", "sad", True),
        ("CREATE DOMAIN above AS int CHECK (VALUE > 0); ALTER TABLE things ALTER a TYPE above", "a", "0", False),
        ("ALTER TABLE things DROP a, ADD a text", "a", "007", True),
        ("ALTER TABLE things ADD e int NOT NULL DEFAULT 5", "a", "7", True),
        ("ALTER TABLE things DROP CONSTRAINT things_pkey", "d", "x", True),
        (SWAPPED, "a", "007", True),
    ],
)
def test_whatever_is_altered_the_next_put_goes_by_it(
    things: Things, statements: str, field: str, text: str, is_taken: bool
) -> None:
    """I2: on the same connection, without an error that the alteration alone explains."""
    pid = things.place.alone(lambda connection: connection.pid)
    things.alter(statements)

    outcomes = things.put({field: text})

    taken = [outcome.startswith("{") and f'"{field}":"{text}"' in outcome for outcome in outcomes]
    assert taken == [is_taken] * 2, outcomes
    assert is_taken or all(outcome.startswith("Unrepresentable") for outcome in outcomes)
    assert things.place.alone(lambda connection: connection.pid) == pid
    things.place.prepared()


@pytest.mark.parametrize(
    ("statement", "field", "text"),
    [
        ("ALTER TABLE things ALTER a TYPE text", "a", "007"),
        ("ALTER TABLE things ALTER b TYPE int USING NULL", "b", "7"),
        ("ALTER TABLE things DROP a, ADD a text", "a", "x"),
    ],
)
def test_control_who_does_not_look_at_the_types_goes_by_the_old_ones(
    place: Place, statement: str, field: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowStatements, "types", property(lambda _self: Prepared("", "SELECT 1")))
    things = Things(place)
    things.alter(statement)

    assert all(outcome.startswith("Unrepresentable") for outcome in things.put({field: text}))


def test_a_table_is_not_altered_between_the_look_at_its_types_and_the_write(things: Things) -> None:
    statements = RowStatements(things.layout, ColumnRows(things.layout.parent))

    def look(connection: LegacyConnection) -> None:
        connection.rows(f"BEGIN; {connection.call(statements.types)}")
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            things.alter("SET lock_timeout = '50ms'; ALTER TABLE things ALTER a TYPE text")
        connection.rows("ROLLBACK")

    things.place.alone(look)
    things.alter("SET lock_timeout = '5s'; ALTER TABLE things ALTER a TYPE text")


def test_an_alteration_costs_one_repetition(things: Things) -> None:
    before = repeats()
    things.alter("ALTER TABLE things ALTER a TYPE text")

    for version in (3, 4, 5):
        things.store.put_cell(things.updated, COLUMN, version, {"a": f"{version}"})
        things.store.put_cell(uuid4(), COLUMN, 1, {"a": "x"})

    assert repeats() == before + 1


def test_statements_that_are_gone_are_prepared_anew(things: Things) -> None:
    things.place.alone(lambda connection: connection.rows("DEALLOCATE ALL"))
    assert things.store.get_cell_latest(things.updated, COLUMN) is not None

    things.place.alone(lambda connection: connection.rows("DEALLOCATE ALL"))
    assert all(outcome.startswith("{") for outcome in things.put({"a": "7"}))


def test_what_a_trigger_does_not_support_is_not_repeated(things: Things) -> None:
    """Its error has the code of an outdated statement, which would be repeated until the deadline."""
    things.alter(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not here' USING ERRCODE = '0A000'; END $$; "
        "CREATE TRIGGER refuse BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    before = repeats()

    with pytest.raises(SchemalessError, match="not here"):
        things.store.put_cell(uuid4(), COLUMN, 1, {"a": "7"})

    assert repeats() == before


def test_a_privilege_is_asked_for_at_each_put(things: Things) -> None:
    """A statement that is prepared gives nothing to a role that has lost its privilege."""
    place, role = things.place, f"putter{next(_numbers)}"
    own = "tripstore.cell, tripstore.tomb, tripstore.kept"
    run(
        place.url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA {things.schema}, tripstore TO {role}; "
        f"GRANT SELECT, INSERT ON {things.schema}.things TO {role}; GRANT SELECT ON {own} TO {role}",
    )
    url = place.url.replace(f"//{place.url.split('//')[1].split('@')[0]}@", f"//{role}:secret@")
    with PostgresBackend(LegacyDatabase(url, PATIENT), things.layout, shards=8) as store:
        assert store.put_cell(uuid4(), COLUMN, 1, {"a": "7"}).status == "CREATED"
        run(place.url, f"REVOKE INSERT ON {things.schema}.things FROM {role}")
        with pytest.raises(InvalidServer):
            store.put_cell(uuid4(), COLUMN, 1, {"a": "7"})
        run(place.url, f"GRANT INSERT ON {things.schema}.things TO {role}")
        assert store.put_cell(uuid4(), COLUMN, 1, {"a": "7"}).status == "CREATED"


# ----------------------------------------------------------------------------------------------- plans and their cost


@pytest.fixture(scope="module", params=FLAVOURS)
def server(request: pytest.FixtureRequest, servers: LocalServers) -> PostgresServer:
    return postgres_server(servers, request.param)


@pytest.fixture(scope="module")
def trips(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        yield made


@pytest.fixture
def empty(server: PostgresServer) -> Iterator[Company]:
    with company(server) as made:
        yield made


FILL = """
INSERT INTO trips (status) SELECT 'filled' FROM generate_series(1, 3000);
INSERT INTO attempts (trip_id, trip_uuid, attempt_no) SELECT id, trip_uuid, 1 FROM trips WHERE status = 'filled';
INSERT INTO notes (trip_id, trip_uuid, n) SELECT id, trip_uuid, 1 FROM trips WHERE status = 'filled';
INSERT INTO tripstore.cell (row_key, column_name, ref_key, body)
    SELECT gen_random_uuid(), name, 1, 'x' FROM generate_series(1, 1000), unnest('{BASE,NOTES,STATUS}'::text[]) AS name;
INSERT INTO tripstore.tomb SELECT row_key, column_name, 1, 1 FROM tripstore.cell;
INSERT INTO tripstore.kept SELECT row_key, column_name, 1, 1 FROM tripstore.cell
"""


def put_one_of_each(trips: Company) -> None:
    row_key = trips.base(1, 2)
    puts: list[tuple[str, int, Json]] = [
        ("STATUS", 1, {"result": "x"}),
        ("NOTES", CHILD, {"text": "x"}),
        ("NOTES", CHILD + 1, {"text": "y"}),
    ]
    for column, ref_key, body in puts:
        trips.store.put_cell(row_key, column, ref_key, body)


def scanned(trips: Company) -> set[str]:
    """The tables that a prepared write reads from end to end, by the plans that puts use: within one, that is."""

    def explain(connection: LegacyConnection) -> set[str]:
        plans = list[str]()
        connection.rows(begin_sql(connection))
        for column in trips.store.layout.columns.values():
            statements = RowStatements(trips.store.layout, ColumnRows(column))
            place = [f"'{uuid4()}'", "0", "0", "0", "NULL"]
            arguments = ", ".join([*place, *["NULL"] * len(statements.written)])
            calls = [(statements.insert_first, arguments), (statements.look, ", ".join(place[:2]))]
            if column.ref_key.version is not None:
                calls.append((statements.update, arguments))
            plans += [line for each in calls for (line,) in connection.rows(f"EXPLAIN {connection.call(*each)}")]
        connection.rows("ROLLBACK")
        return {line.split(" on ")[1].split()[0] for line in plans if "Seq Scan" in line}

    return trips.store.database.run(explain, Deadline(20))


def test_plans_find_rows_by_their_indexes(empty: Company) -> None:
    empty.legacy.sql(FILL)
    empty.legacy.sql("ANALYZE")

    put_one_of_each(empty)

    assert scanned(empty) == set()


def test_plans_made_for_empty_tables_do_not_stay(empty: Company) -> None:
    """Nobody may ever analyse a table; that its plans read it from end to end is the control."""
    empty.legacy.sql("VACUUM ANALYZE")
    put_one_of_each(empty)
    (connection,) = empty.store.database._idle
    connection._replan_at = math.inf
    empty.legacy.sql(FILL)
    put_one_of_each(empty)
    assert scanned(empty) >= {"trips", "cell", "tomb", "kept"}

    connection._replan_at = 0.0
    put_one_of_each(empty)

    assert scanned(empty) == set()


def test_stores_with_other_habits_share_what_is_prepared(empty: Company) -> None:
    def prepared(connection: LegacyConnection) -> int:
        return int(connection.rows("SELECT count(*) FROM pg_catalog.pg_prepared_statements")[0][0])

    put_one_of_each(empty)
    once = empty.store.database.run(prepared, Deadline(20))
    for _ in range(3):
        put_one_of_each(Company(empty.legacy, empty.store.using(deadline=20)))

    assert empty.store.database.run(prepared, Deadline(20)) == once
    assert once <= 4 * len(empty.store.layout.columns)


# --------------------------------------------------------------------------------------- children before their parent


def early_note(trips: Company) -> UUID:
    """A row whose first note was put, at its third version, before a service inserted the row itself."""
    row_key = uuid4()
    trips.store.put_cell(row_key, "NOTES", CHILD + 3, {"text": "early"})
    trips.legacy.trip(row_key=row_key)
    # What a put leaves there keeps the row out, too.
    trips.legacy.sql("DELETE FROM tripstore.kept WHERE row_key = %s", str(row_key))
    return row_key


def test_a_note_is_not_inserted_below_a_cell_that_came_before_its_parent(trips: Company) -> None:
    """I2: a mirror has the cell with the highest ref key for the latest, and so has the table."""
    row_key = early_note(trips)

    trips.store.put_cell(row_key, "NOTES", CHILD, {"text": "first"})

    latest = trips.store.get_cell_latest(row_key, "NOTES")
    assert latest is not None
    assert (latest.ref_key, latest.body) == (CHILD + 3, {"text": "early"})
    assert trips.versions(row_key, "NOTES") == [CHILD + 3, CHILD]
    assert trips.legacy.sql("SELECT note_version FROM notes WHERE trip_uuid = %s", str(row_key)) in ([], [(3,)])


def test_control_whoever_looks_at_the_very_ref_key_alone_never_comes_to_an_end(
    trips: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture refuses the row, as it does one whose deletion came in between; and it would be inserted again."""
    monkeypatch.setattr(RowStatements, "_is_from_here_on", lambda _self, place: f"c.ref_key = {place.ref_key}")
    row_key = early_note(trips)

    with pytest.raises(LegacyUnavailable):
        trips.store.using(deadline=0.3).put_cell(row_key, "NOTES", CHILD, {"text": "first"})


def test_cells_of_other_notes_do_not_keep_one_out_of_its_table(trips: Company, ways_used: list[str]) -> None:
    row_key = uuid4()
    for number in (1, 3):
        trips.store.put_cell(row_key, "NOTES", number * CHILD + 5, {"text": "early"})
    trips.legacy.trip(row_key=row_key)
    ways_used.clear()

    trips.store.put_cell(row_key, "NOTES", 2 * CHILD, {"text": "between"})

    assert ways_used == ["insert_first"]
    assert trips.legacy.sql("SELECT n, note_version FROM notes WHERE trip_uuid = %s", str(row_key)) == [(2, 0)]


def test_all_that_waited_for_its_parent_is_adopted(trips: Company, ways_used: list[str]) -> None:
    row_key = uuid4()
    trips.store.put_cell(row_key, "NOTES", CHILD + 5, {"text": "early"})
    trips.store.put_cell(row_key, "STATUS", 4, {"result": "early"})
    ways_used.clear()

    trips.store.put_cell(row_key, "BASE", 1, status("late"))

    assert ways_used == ["insert_first", "insert", "insert"]
    assert trips.legacy.sql("SELECT n, note_version FROM notes WHERE trip_uuid = %s", str(row_key)) == [(1, 5)]
    assert trips.legacy.sql("SELECT attempt_no FROM attempts WHERE trip_uuid = %s", str(row_key)) == [(4,)]
