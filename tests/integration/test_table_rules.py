"""What the catalogue's rules refuse, held against Postgres itself: it refuses all of that."""

from __future__ import annotations

import psycopg2
import pytest

from schemaless_core.cell.canonical import canonical_bytes
from tests.discussions import TABLES, talk_layout
from tests.legacy import DELIVER, FLAVOURS, Legacy
from tests.legacy_databases import postgres_server
from tripstore.backends.postgres.codec.codec import ColumnCodec
from tripstore.backends.postgres.codec.lookups import LookupCache
from tripstore.backends.postgres.errors import UnreadableRow, Unrepresentable
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.rules.last_week import exposures
from tripstore.backends.postgres.rules.table_rules import TableRules, read_document
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

TYPES = r"""
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s fine');
CREATE DOMAIN code AS varchar(5) CHECK (VALUE ~ '^[A-Z]{2}\d*$') CHECK (VALUE <> 'ZZ');
CREATE DOMAIN short_code AS code NOT NULL CHECK (length(VALUE) < 5);
CREATE DOMAIN money_amount AS numeric(6, 2) CHECK (VALUE >= 0);
CREATE DOMAIN present AS text CHECK (VALUE IS NOT NULL);
DO $$ BEGIN
    CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
EXCEPTION WHEN feature_not_supported THEN CREATE COLLATION blind (locale = 'C');
END $$;
"""
NUMBERS = ["-2147483649", "-32769", "-1", "0", "1", "5", "10", "32767", "32768", "2147483648"]
DECIMALS = [
    "0",
    "1",
    "1.5",
    "1.50",
    "-1.50",
    "9999.99",
    "10000.00",
    "99999.99",
    "0.001",
    "0.01",
    "1200",
    "NaN",
    "Infinity",
]
TEXTS = [
    "",
    "a",
    "ab ",
    "AB",
    "AB1",
    "AB12",
    "AB123",
    "ZZ",
    "sad",
    "SAD",
    "it's fine",
    "a@b.c",
    "ab\n",
    "é",
    "AB١",
    "%",
    "x_y",
]
DATES = ["4714-01-01 BC", "4714-11-23 BC", "4714-11-24 BC", "2000-02-29", "1999-12-31", "5874897-12-31", "infinity"]
MOMENTS = ["2000-01-01T00:00:00.000000Z", "2000-01-01T00:00:00.120000Z", "2000-01-01T00:00:00.123456Z", "-infinity"]
MOMENTS += ["4714-11-23T00:00:00.000000Z BC", "4714-11-24T00:00:00.000000Z BC", "294276-12-31T23:59:59.999999Z"]
FLOATS: list[object] = [0.1, 1.0, 3.4e38, 3.5e38, 1e-50, 0.123456789012, 16777217.0, "NaN", -0.0, 5.0]
TEXT_CHECKS = {
    "IN": "v IN ('a', 'AB', 'sad')",
    "NOT IN": "v NOT IN ('a', 'AB')",
    "equal": "v = 'AB'",
    "length": "char_length(v) BETWEEN 1 AND 3",
    "octets": "octet_length(v) <= 2",
    "regex": r"v ~ '^[A-Z]+\d?$'",
    "no match": "v !~ '[a-z]'",
    "class": "v ~ '^[[:alpha:]]*$'",
    "digits of any script": r"v ~ '^\w+$'",
    "mail": r"v ~ '^[^@ ]+@[^@ ]+\.[^@ ]+$'",
    "insensitive": "v ~* '^ab'",
    "back reference": r"v !~ '(a)\1'",
    "like": "v LIKE 'A_%' OR v LIKE '%\\%' OR v = ''",
    "null or": "v IS NULL OR v <> ''",
    "not null": "v IS NOT NULL",
    "count from more to less": "v ~ '^a{3,1}$'",
    "nested": f"v ~ '{'(' * 300}a{')' * 300}'",
    "parentheses": f"{'(NOT ' * 400}v = 'a'{')' * 400}",
    "lower": "v = lower(v)",
    "sorted": "v < 'B'",
    "half of it": "lower(v) = v AND v <> 'a'",
    "case": "CASE WHEN v = 'a' THEN false ELSE true END",
    "not": "NOT (v = 'a' OR v = 'AB')",
}
#: Field type, columns of the table, values.
CASES: dict[str, tuple[str, str, list[object]]] = {
    **{f"{name}": ("int", f"v {name}", [int(each) for each in NUMBERS]) for name in ("smallint", "int", "bigint")},
    "int, not null": ("int", "v int NOT NULL", [None, 1]),
    "int, between": ("int", "v int CHECK (v BETWEEN 1 AND 5 OR v = 10)", [None, *map(int, NUMBERS[2:8])]),
    "int, any": ("int", "v int CHECK (v = ANY (ARRAY[1, 5]) AND v <> -1)", [None, *map(int, NUMBERS[2:8])]),
    "int, cast": ("int", "v int CHECK (v::numeric > 0.5 AND v * 2 < 20)", [None, *map(int, NUMBERS[2:8])]),
    "numeric": ("decimal", "v numeric", list(DECIMALS)),
    **{f"numeric({each})": ("decimal", f"v numeric({each})", list(DECIMALS)) for each in ("6, 2", "4", "3, 3")},
    "numeric, check": ("decimal", "v numeric CHECK (v > 0.5 AND v::int < 9)", list(DECIMALS)),
    "numeric, domain": ("decimal", "v money_amount", [None, *DECIMALS]),
    "text": ("string", "v text", list(TEXTS)),
    "varchar(3)": ("string", "v varchar(3)", list(TEXTS)),
    "varchar": ("string", "v varchar CHECK (v IN ('a', 'AB'))", list(TEXTS)),
    "char(3)": ("string", "v char(3)", list(TEXTS)),
    "char, check": ("string", "v char(3) CHECK (v = 'AB' OR length(v) = 1)", list(TEXTS)),
    "enum": ("string", "v mood", list(TEXTS)),
    "enum, check": ("string", "v mood CHECK (v <> 'sad')", ["sad", "ok"]),
    "domain": ("string", "v code", [None, *TEXTS]),
    "domain of domain": ("string", "v short_code", [None, *TEXTS]),
    "present": ("string", "v present", [None, "a"]),
    "blind collation": ("string", "v text COLLATE blind CHECK (v <> 'sad')", ["SAD", "sad", "a"]),
    "date": ("date", "v date", list(DATES)),
    "date, check": ("date", "v date CHECK (v >= '2000-01-01')", list(DATES)),
    "timestamptz": ("datetime", "v timestamptz", list(MOMENTS)),
    "timestamptz(2)": ("datetime", "v timestamptz(2)", list(MOMENTS)),
    "timestamp(0)": ("datetime", "v timestamp(0)", list(MOMENTS)),
    "float8": ("float", "v float8 CHECK (v < 5)", FLOATS),
    "float4": ("float", "v float4", FLOATS),
    "boolean": ("boolean", "v boolean CHECK (v)", [None, True, False]),
    "boolean, not": ("boolean", "v boolean CHECK (NOT v OR v IS NULL)", [None, True, False]),
    "interval": ("string", "v interval", ["1 day", "24:00:00", "nonsense"]),
    "other column": ("int", "v int, w int DEFAULT 3, CHECK (v < w OR v = 5)", [None, 1, 4, 5]),
    "other column, and": ("int", "v int, w int DEFAULT 3, CHECK (w < 9 AND v < 5)", [None, 1, 4, 5]),
    "not valid": ("int", "v int", [None, 1, 6]),
    **{f"text, {name}": ("string", f"v text CHECK ({each})", [None, *TEXTS]) for name, each in TEXT_CHECKS.items()},
}
#: Of these the catalogue says all there is to say.
NOT_WHOLE = {
    "int, cast",
    "numeric, check",
    "char, check",
    "enum, check",
    "blind collation",
    "float4",
    "interval",
    "other column",
    "other column, and",
    *(f"text, {name}" for name in ("count from more to less", "nested", "parentheses")),
    *(f"text, {name}" for name in ("insensitive", "back reference", "lower", "sorted", "half of it", "case")),
}
#: Texts that are not ASCII may match in one locale and not in another. What is not finite, or before Christ, is sorted
#: by rules that are not repeated here.
UNSURE_OF = {"é", "AB١", "NaN", "Infinity", "infinity", "5874897-12-31", *(each for each in DATES if " BC" in each)}


@pytest.fixture(scope="module", params=FLAVOURS)
def company(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    tables = [TYPES]
    for n, (_kind, columns, _values) in enumerate(CASES.values()):
        tables.append(f"CREATE TABLE t{n} (id bigserial PRIMARY KEY, row_uuid uuid UNIQUE, {columns}, version bigint)")
    not_valid = list(CASES).index("not valid")
    tables.append(f"ALTER TABLE t{not_valid} ADD CHECK (v < 5) NOT VALID")
    return Legacy(postgres_server(servers, request.param), tables=";\n".join(tables))


def layout_of(case: str) -> Layout:
    n, kind = list(CASES).index(case), CASES[case][0]
    mapped = {"table": f"t{n}", "ref_key": {"version": "version"}, "fields": {"v": {"type": kind}}}
    row_key = {"table": f"t{n}", "id": "id", "uuid": "row_uuid"}
    return load_layout({"datastore": "rules", "row_key": row_key, "columns": {"V": mapped}}, "rules")


def rules_of(company: Legacy, layout: Layout) -> TableRules:
    with company.ours() as connection:
        return TableRules(layout, read_document(lambda sql, values: rows(connection, sql, values), layout))


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_refused_that_postgres_takes(company: Legacy, case: str) -> None:
    layout = layout_of(case)
    codec, rules = ColumnCodec(layout.parent, LookupCache(layout)), rules_of(company, layout)
    is_whole = not [each for each in rules.columns["V"].only_postgres if each.kind in ("type", "check")]
    has_icu = company.sql("SELECT NOT collisdeterministic FROM pg_collation WHERE collname = 'blind'") == [(True,)]
    assert is_whole is (case not in NOT_WHOLE or (case == "blind collation" and not has_icu))
    has_check = "CHECK" in CASES[case][1] or "domain" in case
    for value in CASES[case][2]:
        body = {} if value is None else {"v": value}
        try:
            texts = codec.row(body)  # type: ignore[arg-type]  # any JSON
        except Unrepresentable:
            continue
        is_refused = rules.find_violation("V", 1, texts) is not None
        is_taken = takes(company, codec, layout, texts["v"]) == canonical_bytes(body)  # type: ignore[arg-type]
        assert not (is_refused and is_taken), value
        is_sure = not has_check or value not in UNSURE_OF
        if is_whole and is_sure:
            assert is_refused is not is_taken, value


def takes(company: Legacy, codec: ColumnCodec, layout: Layout, text: str | None) -> bytes | None:
    """The body that Postgres gives back; None: it refuses, or no body can hold that."""
    with connected(company.url, "test") as connection:
        connection.autocommit = False
        table = layout.parent.table.sql
        try:
            rows(connection, f"INSERT INTO {table} (v) VALUES (%s)", (text,))
        except psycopg2.Error:
            return None
        ((given,),) = rows(connection, f"SELECT v::text FROM {table}")
        connection.rollback()
    try:
        return codec.canonical_of_texts({"v": given})
    except UnreadableRow:
        return None


TALK = """
ALTER TABLE posts ADD author int UNIQUE, ADD email text CHECK (email = lower(email)), ADD tag inet;
ALTER TABLE comments ADD CONSTRAINT answered FOREIGN KEY (id) REFERENCES comments (id) DEFERRABLE;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON votes FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_only_postgres_can_refuse_is_listed_with_last_weeks_writes(
    servers: LocalServers, flavour: Flavour
) -> None:
    layout = talk_layout({"author": {"type": "int"}, "email": {"type": "string"}, "tag": {"type": "string"}})
    legacy = Legacy(postgres_server(servers, flavour), tables=TABLES.format(id="bigserial") + TALK)
    with legacy.ours() as connection:
        assert {each.writes for each in exposures(connection, layout)} == {None}
    legacy.install(layout)
    legacy.sql("INSERT INTO posts (author) VALUES (1), (NULL); UPDATE posts SET author = 2 WHERE author = 1")
    legacy.sql("INSERT INTO posts (email) VALUES ('a@b')")
    legacy.sql("INSERT INTO votes (post_id, post_uuid) SELECT id, post_uuid FROM posts")
    legacy.sql(DELIVER)
    legacy.sql("UPDATE posts SET email = 'c@d' WHERE email = 'a@b'")
    with legacy.ours() as connection:
        found = {(each.table, each.kind, each.name): writes for each, writes in exposures(connection, layout)}

    assert found == {
        ("posts", "unique", "posts_author_key"): 2,
        ("posts", "check", "posts_email_check"): 2,
        ("posts", "type", "tag"): 0,
        ("comments", "unique", "comments_pkey"): 0,
        ("comments", "foreign key", "answered"): 0,
        ("votes", "unique", "votes_pkey"): 3,
        ("votes", "trigger", "refuse"): 3,
    }
