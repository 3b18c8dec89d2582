"""Pairs of id and UUID, as the tables hold them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from uuid import UUID, uuid4

import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.integration.id_company import (
    FLAVOURS,
    LAYOUT,
    ONE_FLAVOUR,
    apply,
    layout,
    one,
    postgres,
    session,
    small_company,
)
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.ids.ids import ID_MAX, ID_MIN, Ids, uuid_of_id, uuid_of_id_sql
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.layout.layout import Layout, RowKeySource, TableName
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

HOSTILE = TableName("Fahrten %s", "trips '\"\\ü")


@pytest.fixture(params=ONE_FLAVOUR)
def ours(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Connection]:
    """A session in a company that knows only ids."""
    flavour: Flavour = request.param
    with small_company(postgres(servers, flavour), 20) as url, session(url) as connection:
        yield connection


@pytest.fixture(scope="module", params=FLAVOURS)
def stepped(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[str]:
    """A company that has all UUIDs; what tests add to it is theirs alone."""
    flavour: Flavour = request.param
    with small_company(postgres(servers, flavour), 20) as url:
        with session(url) as connection:
            apply(connection, id_steps(LAYOUT))
        yield url


@pytest.fixture
def done(stepped: str) -> Iterator[Connection]:
    with session(stepped) as connection:
        yield connection


def ids(connection: Connection, of: Layout = LAYOUT) -> Ids:
    return Ids(partial(rows, connection), of)


def test_ids_and_uuids_are_looked_up_both_ways(done: Connection) -> None:
    known = ids(done)

    assert known.resolve_id(3) == uuid_of_id(LAYOUT, 3)
    assert known.legacy_id(uuid_of_id(LAYOUT, 3)) == 3
    assert known.resolve_ids([6, 3, 3, 4]) == {3: uuid_of_id(LAYOUT, 3), 6: uuid_of_id(LAYOUT, 6)}
    assert known.legacy_ids([uuid_of_id(LAYOUT, 6), uuid4()]) == {uuid_of_id(LAYOUT, 6): 6}


@pytest.mark.parametrize("number", [4, 0, -1, ID_MAX, ID_MIN])
def test_what_has_no_row_is_unknown_and_never_computed(done: Connection, number: int) -> None:
    assert ids(done).resolve_id(number) is None
    assert ids(done).legacy_id(uuid_of_id(LAYOUT, number)) is None


def test_a_uuid_that_a_writer_gave_is_the_rows_and_no_other(done: Connection) -> None:
    """So it is for every row that the facade inserts."""
    given = uuid4()

    number = one(done, "INSERT INTO public.trips (trip_uuid) VALUES (%s) RETURNING id", (str(given),))

    assert ids(done).resolve_id(number) == given
    assert ids(done).legacy_id(given) == number
    assert ids(done).legacy_id(uuid_of_id(LAYOUT, number)) is None


def test_a_row_without_a_uuid_is_unknown_until_it_is_filled(ours: Connection) -> None:
    apply(ours, id_steps(LAYOUT)[:2])
    assert ids(ours).resolve_id(3) is None

    apply(ours, id_steps(LAYOUT))
    assert ids(ours).resolve_id(3) == uuid_of_id(LAYOUT, 3)


def test_before_the_first_step_it_is_said_what_is_missing(ours: Connection) -> None:
    with pytest.raises(InvalidLayout, match=r"There is no trips\.trip_uuid"):
        ids(ours).resolve_id(3)
    with pytest.raises(InvalidLayout, match=r"There is no archive\.trips\.trip_uuid"):
        ids(ours, layout(source=TableName("archive", "trips"))).legacy_id(uuid4())


def test_thousands_are_resolved_at_once(done: Connection) -> None:
    assert ids(done).resolve_ids(range(-50_000, 61)).keys() == set(range(3, 61, 3))


@pytest.mark.parametrize("table", [TableName("public", "trips"), HOSTILE], ids=["plain", "hostile"])
def test_postgres_and_python_compute_the_same_uuid_under_any_settings(done: Connection, table: TableName) -> None:
    source = RowKeySource(table, "id", "trip_uuid")
    numbers = [0, 1, -1, 10**9, 2**31, ID_MAX, ID_MIN, *(7**n for n in range(22))]
    for setting in ("standard_conforming_strings = off", "bytea_output = escape", "client_encoding = LATIN1"):
        rows(done, f"SET {setting}")
    rows(done, "SET escape_string_warning = off; SET backslash_quote = on")

    found = rows(done, f"SELECT n, {uuid_of_id_sql(source, 'n')} FROM unnest(%s::bigint[]) AS n", (numbers,))

    of = Layout("trips", source, {})
    assert {number: UUID(uuid) for number, uuid in found} == {number: uuid_of_id(of, number) for number in numbers}


def test_names_that_need_quotes_do_everything_plain_ones_do(ours: Connection) -> None:
    of = Layout("trips", RowKeySource(HOSTILE, 'the "id" %d', "the 'uuid' %"), {})
    rows(ours, f'CREATE SCHEMA "{HOSTILE.schema}"')
    rows(ours, f'CREATE TABLE {HOSTILE.sql} ("the ""id"" %d" int PRIMARY KEY)')
    rows(ours, f"INSERT INTO {HOSTILE.sql} SELECT generate_series(1, 10)")

    apply(ours, id_steps(of))
    rows(ours, f"INSERT INTO {HOSTILE.sql} VALUES (11)")

    assert ids(ours, of).resolve_ids(range(20)) == {number: uuid_of_id(of, number) for number in range(1, 12)}
    for step in reversed(id_steps(of)):
        step.revert(ours)
    assert one(ours, "SELECT count(*) FROM pg_attribute WHERE attname LIKE %s", ("%uuid' %",)) == 0
