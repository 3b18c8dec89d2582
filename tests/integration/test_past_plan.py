"""Before a copy: its selection is checked without running anything of it, ranges are even, and an estimate is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random
from typing import NamedTuple
from uuid import UUID, uuid4

import pytest

from schemaless_core import InvalidRequest, SchemalessError
from schemaless_core.deadline import Deadline
from tests.legacy import FLAVOURS, TABLES, layout
from tests.legacy_databases import PATIENT, new_database, run
from tests.scale import scaled
from tripstore.backends.postgres.cells.past import plan as past_plan
from tripstore.backends.postgres.cells.past.plan import check_selection, cuts, estimate
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.handover.ports import EVERYTHING, Selection
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

TRIPS = scaled(100_000, least=4_000)
PARTS = 8


#: For Postgres a dollar quote; for who takes € for no letter, a text that hides its end.
INJECTION = "t.status = $€$ ' $€$); COMMIT; DELETE FROM public.notes; SELECT ($€$ ' $€$"

BUMP = """
CREATE TABLE bumped (id bigint);
CREATE FUNCTION bump(id bigint) RETURNS boolean LANGUAGE plpgsql
    AS $$BEGIN INSERT INTO public.bumped VALUES (id); RETURN true; END$$"""


class Trips(NamedTuple):
    """A database with the tables, without capture."""

    url: str
    database: LegacyDatabase

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        return run(self.url, statement, *values)


@pytest.fixture(params=FLAVOURS, scope="module")
def trips(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[Trips]:
    flavour: Flavour = request.param
    url = new_database(servers, flavour, f"{TABLES}; ALTER TABLE trips ADD COLUMN base_extra json; {BUMP}")
    with closing(LegacyDatabase(url, PATIENT)) as database:
        yield Trips(url, database)


def filled(trips: Trips, keys: list[UUID]) -> None:
    """One trip in four is completed."""
    trips.sql("TRUNCATE trips CASCADE")
    trips.sql(
        "INSERT INTO trips (trip_uuid, status) SELECT key::uuid, CASE WHEN n %% 4 = 0 THEN 'completed' ELSE 'x' END"
        " FROM unnest(%s) WITH ORDINALITY AS given (key, n)",
        [str(key) for key in keys],
    )
    trips.sql("ANALYZE trips")


def asked(trips: Trips, selection: Selection, parts: int = PARTS) -> list[UUID]:
    return trips.database.run(lambda connection: cuts(connection, layout(), parts, selection), Deadline(60.0))


def estimated(trips: Trips, selection: Selection = EVERYTHING) -> int:
    return trips.database.run(lambda connection: estimate(connection, layout(), selection), Deadline(60.0))


def check(trips: Trips, selection: Selection) -> None:
    trips.database.run(lambda connection: check_selection(connection, layout(), selection), Deadline(60.0))


def sizes(keys: list[UUID], ends: list[UUID]) -> list[int]:
    counts = [0] * (len(ends) + 1)
    for key in keys:
        counts[sum(key > end for end in ends)] += 1
    return counts


#: By what row keys are made of.
DISTRIBUTIONS = {
    "random": lambda random, n: UUID(int=random.getrandbits(128), version=4),
    "in order of time": lambda random, n: UUID(int=(0x0190_0000_0000 + n) << 80 | random.getrandbits(80)),
    "mostly of one prefix": lambda random, n: UUID(int=random.getrandbits(64 if n % 10 else 128)),
}


@pytest.mark.parametrize("where", [None, "t.status = 'completed'"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_ranges_have_about_as_many_rows_each_however_keys_are_made(trips: Trips, name: str, where: str | None) -> None:
    random = Random(7)
    keys = [DISTRIBUTIONS[name](random, n) for n in range(TRIPS)]
    filled(trips, keys)

    ends = asked(trips, Selection(where=where))

    assert ends == sorted(set(ends))
    chosen = keys if where is None else keys[3::4]
    found = sizes(chosen, ends)
    assert len(found) == PARTS
    assert max(found) < 1.6 * len(chosen) / PARTS
    assert min(found) > 0.4 * len(chosen) / PARTS


def test_a_table_with_few_rows_is_cut_as_if_it_had_all_keys(trips: Trips) -> None:
    filled(trips, [UUID(int=5)])

    assert asked(trips, EVERYTHING, 4) == [UUID(int=2**128 * number // 4) for number in (1, 2, 3)]
    assert asked(trips, EVERYTHING, 1) == []


def test_an_estimate_is_near_with_and_without_a_predicate(trips: Trips) -> None:
    random = Random(7)
    filled(trips, [UUID(int=random.getrandbits(128), version=4) for _ in range(TRIPS)])

    assert 0.8 * TRIPS < estimated(trips) < 1.2 * TRIPS
    assert 0.15 * TRIPS < estimated(trips, Selection(where="t.status = 'completed'")) < 0.35 * TRIPS


@pytest.mark.parametrize(
    "where",
    [
        "t.status = 'completed'",
        "status LIKE '50%' OR t.base_extra ->> 'n' = '(;--'",
        "EXISTS (SELECT FROM users AS u WHERE u.id = t.driver_id)",
        "t.request_at < now() - interval '1 day' AND (t.fare > 1 OR t.id % 2 = 0)",
        "t.status = $$it's ;$$",
        "t.status = 'é' OR t.\"status\" = E'\\\\' OR t.status = $é$it's ;$é$",
    ],
)
def test_a_condition_on_a_row_is_taken(trips: Trips, where: str) -> None:
    check(trips, Selection(("BASE", "_LEGACY_ID"), where))


@pytest.mark.parametrize(
    ("where", "because"),
    [
        ("", "it is empty"),
        ("t.nothing = 1", "column t.nothing does not exist"),
        ("t.status", "must be type boolean"),
        ("t.status = 'x'; DROP TABLE notes", "';' cannot stand in it"),
        ("true) OR (SELECT nextval('trips_id_seq')) IS NOT NULL", "its brackets do not match"),
        ("true); DROP TABLE notes; SELECT (true", "its brackets do not match"),
        ("(true", "its brackets do not match"),
        ("true -- )", "'--' cannot stand in it"),
        ("true /* */", "'/*' cannot stand in it"),
        ("count(*) > 1", "aggregate functions are not allowed"),
        ("t.id = 'x", "unterminated quoted string"),
        ("t.id = 'x'", "invalid input syntax"),
        ("setval('trips_id_seq', 900) > 0", "read-only transaction"),
        ("t.id = $1", "there is no parameter"),
        (INJECTION, "its brackets do not match"),
        ("t.status = 'é' OR t.é IS NULL", "'é' cannot stand in it outside of quotes"),
        ("t.status =\u00a0'x'", "cannot stand in it outside of quotes"),
        ("t.status = \\ 'x'", "cannot stand in it outside of quotes"),
        ("t.`status` = 'x'", "'`' cannot stand in it outside of quotes"),
        ("public.bump(t.id)", "read-only transaction"),
    ],
)
def test_whatever_is_no_condition_is_refused_and_does_nothing(trips: Trips, where: str, because: str) -> None:
    filled(trips, [uuid4()])
    before = trips.sql("SELECT last_value FROM trips_id_seq")

    with pytest.raises(InvalidRequest) as refused:
        check(trips, Selection(where=where))

    assert because in refused.value.message
    assert "one boolean expression" in str(refused.value.hint)
    assert trips.sql("SELECT last_value FROM trips_id_seq") == before
    assert trips.sql("SELECT count(*) FROM notes") == [(0,)]
    check(trips, EVERYTHING)


def test_a_predicate_writes_nothing_whichever_role_asks(trips: Trips) -> None:
    """One that fails to write for some rows only is not found out by the check."""
    filled(trips, [UUID(int=2**120 * n) for n in range(1, 200)])
    ((first,),) = trips.sql("SELECT min(id) FROM trips")
    where = f"t.id <> {first} AND public.bump(t.id)"
    check(trips, Selection(where=where))

    with pytest.raises(SchemalessError, match="read-only"):
        asked(trips, Selection(where=where))

    assert trips.sql("SELECT count(*) FROM bumped") == [(0,)]


@pytest.mark.parametrize("ask", [asked, estimated, check])
def test_a_predicate_that_was_not_seen_through_is_one_statement_all_the_same(
    trips: Trips, ask: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the look at its text lets pass."""
    monkeypatch.setattr(past_plan, "tokens", lambda _text: [])
    filled(trips, [uuid4()])
    trips.sql("INSERT INTO notes (trip_id, trip_uuid, n) SELECT id, trip_uuid, 1 FROM trips")

    with pytest.raises(SchemalessError, match="multi-query"):
        ask(trips, Selection(where=INJECTION))

    assert trips.sql("SELECT count(*) FROM notes") == [(1,)]


def test_control_the_driver_alone_would_run_all_of_it(trips: Trips) -> None:
    filled(trips, [uuid4()])
    trips.sql("INSERT INTO notes (trip_id, trip_uuid, n) SELECT id, trip_uuid, 1 FROM trips")

    trips.sql(f"BEGIN READ ONLY; SELECT FROM trips AS t WHERE ({INJECTION})")

    assert trips.sql("SELECT count(*) FROM notes") == [(0,)]


def test_an_unknown_column_is_refused_by_name(trips: Trips) -> None:
    trips.sql("INSERT INTO tripstore.cell VALUES (%s, 'FREE', 1, '1', now())", str(uuid4()))

    check(trips, Selection(("FREE", "STATUS")))
    with pytest.raises(InvalidRequest, match=r"There is no column BSAE to copy.*BASE, STATUS, NOTES, _LEGACY_ID"):
        check(trips, Selection(("BSAE",)))
    with pytest.raises(InvalidRequest, match="No column"):
        check(trips, Selection(()))
