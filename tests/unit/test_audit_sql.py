"""Which tables an SQL text uses, and how: quotes, comments, dollar quotes, names with schemas, pieces of statements."""

from __future__ import annotations

import pytest

from schemaless_core import InvalidRequest
from tripstore.audit.names import LegacyTable, LegacyTables
from tripstore.audit.sql.reader import sql_uses
from tripstore.backends.postgres.tokens import HOLE, Type, tokens

TABLES = LegacyTables.parse(["trips", "public.trip_notes"])

Expected = list[tuple[str, str, str]]


def uses(text: str, *, is_certain: bool = True, is_prose: bool = False) -> Expected:
    found = sql_uses(text.replace("@", HOLE), TABLES, is_certain=is_certain, is_prose=is_prose)
    return [(use.kind.value.removeprefix("sql."), use.table.name, use.access.value[0]) for use in found.uses]


def read(kind: str, table: str = "trips") -> tuple[str, str, str]:
    return kind, table, "r"


def write(kind: str, table: str = "trips") -> tuple[str, str, str]:
    return kind, table, "w"


@pytest.mark.parametrize(
    ("text", "texts", "words"),
    [
        ("$€$ ' $€$ = a", [" ' "], ["a"]),
        ("a€$x$ b $x$", [], ["a€$x$", "b"]),
        ("$1$ 'x$1$'", ["x$1$"], []),
        ("a\u00a0b", [], ["a\u00a0b"]),
        ("$é1$;$é1$", [";"], []),
    ],
)
def test_names_and_tags_are_made_of_what_postgres_takes_for_letters(
    text: str, texts: list[str], words: list[str]
) -> None:
    found = list(tokens(text))

    assert [token.value for token in found if token.type is Type.TEXT] == texts
    assert [token.value for token in found if token.type is Type.WORD] == words


READS: list[tuple[str, Expected]] = [
    ("SELECT id FROM trips", [read("select")]),
    ("select id from TRIPS t where t.id = %s", [read("select")]),
    ('SELECT id FROM "trips"', [read("select")]),
    ('SELECT id FROM public."trips"', [read("select")]),
    ("SELECT id FROM users, ONLY trips, cities", [read("select")]),
    ("SELECT id FROM users u JOIN trips t ON t.id = u.id, trip_notes", [read("select"), read("select", "trip_notes")]),
    ("SELECT id FROM (trips JOIN users USING (id)) JOIN x ON true", [read("select")]),
    ("SELECT id FROM users WHERE id IN (SELECT driver_id FROM trips)", [read("select")]),
    ("SELECT id FROM users UNION ALL SELECT id FROM trips", [read("select")]),
    ("SELECT id FROM trips FOR UPDATE OF trips", [read("select")]),
    ("SELECT extract(epoch FROM at) FROM trips", [read("select")]),
    ("EXPLAIN ANALYZE SELECT id FROM trips", [read("select")]),
    ("WITH trips AS (SELECT id FROM trips) SELECT id FROM trips", [read("select")]),
    ("WITH t AS (SELECT 1), u AS (SELECT id FROM trips) SELECT id FROM t", [read("select")]),
    ("SELECT (WITH trips AS (SELECT 1) SELECT id FROM trips), id FROM trips", [read("select")]),
    ("WITH trips AS (SELECT 1) SELECT id FROM trips; SELECT id FROM trips", [read("select")]),
    ("WITH trips AS (SELECT 1) SELECT id FROM public.trips", [read("select")]),
    ("CREATE VIEW v AS SELECT t.id FROM x JOIN trips t ON trips.id = x.id", [read("select")]),
    ("SELECT id FROM @.trips", [read("select")]),
    ("SELECT id FROM trips@", [read("select")]),
    ("COPY (SELECT id FROM trips) TO STDOUT", [read("select")]),
    ("COPY trips (id) TO STDOUT", [read("copy")]),
    ("COPY trips TO STDOUT", [read("copy_without_columns")]),
]
STARS: list[tuple[str, Expected]] = [
    ("SELECT * FROM trips", [read("select_star")]),
    ("SELECT t.* FROM trips AS t", [read("select_star")]),
    ("SELECT trips.* FROM users JOIN trips ON true", [read("select_star")]),
    ("SELECT u.* FROM users u JOIN trips t ON true", [read("select")]),
    ("SELECT DISTINCT ON (a) * FROM trips", [read("select_star")]),
    ("SELECT id, * FROM trips", [read("select_star")]),
    ("SELECT count(*) FROM trips", [read("select")]),
    ("SELECT 2 * fare FROM trips", [read("select")]),
    ("SELECT (a) * (b) FROM trips", [read("select")]),
    ("SELECT 1 WHERE EXISTS (SELECT * FROM trips)", [read("select")]),
    ("SELECT * FROM (SELECT id FROM trips) t", [read("select")]),
    ("SELECT id FROM (SELECT * FROM trips) t", [read("select_star")]),
    ("INSERT INTO archive SELECT * FROM trips", [read("select_star")]),
    ("TABLE trips", [read("select_star")]),
    ("UPDATE trips SET a = 1 RETURNING *", [write("update"), read("select_star")]),
    ("DELETE FROM trips RETURNING id", [write("delete")]),
    ("INSERT INTO trips (id) SELECT * FROM staging RETURNING id", [write("insert")]),
    ("INSERT INTO trips (id) VALUES (1) RETURNING *", [write("insert"), read("select_star")]),
]
WRITES: list[tuple[str, Expected]] = [
    ("INSERT INTO trips (id) VALUES (1)", [write("insert")]),
    ("INSERT INTO trips AS t (id) VALUES (1)", [write("insert")]),
    ("insert or replace into trips ('id') values (?)", [write("insert")]),
    ("INSERT IGNORE INTO trips (id) VALUES (1)", [write("insert")]),
    ("REPLACE INTO trips (id) VALUES (1)", [write("insert")]),
    ("REPLACE INTO trips VALUES (1)", [write("insert_without_columns")]),
    ("SELECT replace(a, 'into', 'trips') FROM notes", []),
    ("CREATE SEQUENCE s OWNED BY trips.id", [write("schema")]),
    ("ALTER SEQUENCE public.s OWNED BY public.trips.id", [write("schema")]),
    ("CREATE SEQUENCE trips OWNED BY notes.id", []),
    ("SELECT 1 FROM notes ORDER BY trips.id", []),
    ("INSERT INTO trips DEFAULT VALUES", [write("insert")]),
    ("INSERT INTO trips VALUES (1)", [write("insert_without_columns")]),
    ("INSERT INTO trips SELECT 1", [write("insert_without_columns")]),
    ("INSERT INTO trips (SELECT 1)", [write("insert_without_columns")]),
    ("INSERT INTO trips (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 1", [write("insert")]),
    ("UPDATE ONLY public.trips AS t SET a = 1", [write("update")]),
    ("UPDATE trips t SET a = 1 FROM trip_notes n", [write("update"), read("select", "trip_notes")]),
    ("WITH a AS (UPDATE trips SET a = 1 RETURNING id) SELECT * FROM a", [write("update")]),
    ("DELETE FROM trips t USING trip_notes n", [write("delete"), read("select", "trip_notes")]),
    (
        "MERGE INTO trips t USING trip_notes n ON true WHEN MATCHED THEN DELETE",
        [write("merge"), read("select", "trip_notes")],
    ),
    ("TRUNCATE TABLE users, trips", [write("truncate")]),
    ("COPY public.trips FROM STDIN", [write("copy_without_columns")]),
    ("\\copy trips (id) from 'x.csv'", [write("copy")]),
    ("DO $$ BEGIN UPDATE trips SET a = 1; END $$", [write("update")]),
    ("CREATE FUNCTION f() RETURNS int AS $f$ DELETE FROM trips $f$ LANGUAGE sql", [write("delete")]),
    ("CREATE FUNCTION f() RETURNS int AS 'DELETE FROM trips' LANGUAGE sql", [write("delete")]),
    ("ALTER TABLE IF EXISTS ONLY trips ADD a int", [write("schema")]),
    ("DROP TABLE users, trips", [write("schema")]),
    ("CREATE UNIQUE INDEX CONCURRENTLY i ON trips (id)", [write("schema")]),
    ("CREATE TRIGGER t BEFORE INSERT OR UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION f()", [write("schema")]),
    ("CREATE TABLE n (id int REFERENCES trips (id) ON DELETE CASCADE)", [write("schema")]),
    ("COMMENT ON COLUMN trips.fare IS 'FROM trips'", [write("schema")]),
    ("GRANT SELECT, UPDATE ON trips TO bob", [write("schema")]),
    ("LOCK TABLE trips IN SHARE MODE", [write("schema")]),
    ("VACUUM (ANALYZE) trips", [write("schema")]),
]
NONE = [
    "SELECT id FROM trips_archive",
    "SELECT id FROM trips_@",
    "SELECT id FROM archive.trip_notes",
    "SELECT id FROM trips(1)",
    "SELECT trips FROM users ORDER BY trips",
    "SELECT id FROM users -- FROM trips",
    "SELECT id FROM users /* FROM trips /* */ FROM trips */",
    "SELECT ' FROM trips', E'\\' FROM trips', $$ FROM trips $$, $a$ FROM trips $a$ FROM users",
    "SELECT extract(epoch FROM trips.a) FROM users",
    "SELECT a IS NOT DISTINCT FROM trips FROM users",
    "WITH RECURSIVE trips AS (SELECT 1 UNION ALL SELECT id FROM trips) SELECT id FROM trips",
    'SELECT id FROM "Trips"',
    "DROP INDEX trips",
    "INSERT INTO users (trips) VALUES (1)",
]


@pytest.mark.parametrize(("text", "expected"), [*READS, *STARS, *WRITES])
def test_each_statement_says_what_it_uses(text: str, expected: Expected) -> None:
    assert uses(text) == expected


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_use_is_none(text: str) -> None:
    assert uses(text) == []


@pytest.mark.parametrize(
    "text", [" FROM trips WHERE id = 1", " left join trips t on true", "x = 1 AND id IN (SELECT id FROM trips)"]
)
def test_a_piece_of_a_statement_is_understood(text: str) -> None:
    assert uses(text, is_certain=False) == [read("select")]


@pytest.mark.parametrize(
    "text", ["Update trips every hour", "notes from trips were lost", "reading from trips, join trips later", "trips"]
)
def test_a_sentence_is_no_statement(text: str) -> None:
    assert uses(text, is_certain=False) == []


def test_of_a_docstring_only_capitals_are_believed() -> None:
    assert uses("Select the best from trips.", is_certain=False, is_prose=True) == []
    assert uses("SELECT id FROM trips", is_certain=False, is_prose=True) == [read("select")]


def test_a_quote_that_is_never_closed_hides_nothing() -> None:
    assert uses("SELECT id FROM trips WHERE name = 'x") == [read("select")]
    assert uses("SELECT 'x, id FROM trips") == [read("select")]
    assert uses("SELECT id FROM trips WHERE (a = 1") == [read("select")]
    assert uses("); DELETE FROM trips") == [write("delete")]


def test_a_table_that_is_a_hole_is_unclear_and_a_column_is_not() -> None:
    assert sql_uses(f"SELECT {HOLE} FROM users", TABLES, is_certain=True).unclear == []
    assert sql_uses(f"SELECT id FROM {HOLE}", TABLES, is_certain=True).unclear == [15]
    assert sql_uses(f"DELETE FROM app.{HOLE}", TABLES, is_certain=True).unclear == [16]


def test_tokens_know_every_kind_of_quote() -> None:
    text = "a.\"B\"\"c\" 'd''e' E'f\\'g' $h$i$h$ $1 :j k::l %(m)s /* n */ -- o"

    found = [(token.type, token.value) for token in tokens(text) if token.type is not Type.OTHER]

    assert found == [
        (Type.WORD, "a"),
        (Type.QUOTED, 'B"c'),
        (Type.TEXT, "d''e"),
        (Type.TEXT, "f\\'g"),
        (Type.TEXT, "i"),
        (Type.HOLE, "$1"),
        (Type.HOLE, ":j"),
        (Type.WORD, "k"),
        (Type.WORD, "l"),
        (Type.HOLE, "%(m)s"),
        (Type.COMMENT, "/* n */"),
        (Type.COMMENT, "-- o"),
    ]
    assert all(text[token.offset :].startswith(token.raw) for token in tokens(text))


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("trips", LegacyTable(None, "trips")),
        ("archive.trips", LegacyTable("archive", "trips")),
        ('"my schema"."a.""b"', LegacyTable("my schema", 'a."b')),
    ],
)
def test_names_of_tables_are_read_as_in_sql(text: str, table: LegacyTable) -> None:
    assert LegacyTables.parse([text]).tables == (table,)


@pytest.mark.parametrize("text", ["", "a.b.c", "a b", ".a", "a.", '"a', "a..b"])
def test_what_is_no_name_of_a_table_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is no name of a table"):
        LegacyTables.parse([text])
