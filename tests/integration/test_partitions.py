"""Partitions that leave, come, or leave and come back: rows that capture never saw are a breach (I8).

Each test runs with the event trigger of a superuser, and without one: then the next look finds it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from psycopg2.errors import QueryCanceled

from tests.legacy import FLAVOURS, Legacy, apply, captured, layout, legacy_server, refused
from tripstore.backends.postgres.capture import capture_steps, verify
from tripstore.backends.postgres.capture.partitions.look import look_at_partitions
from tripstore.backends.postgres.sqlstates import TRUNCATE_REFUSED
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

NOTES_0 = "FOR VALUES WITH (MODULUS 2, REMAINDER 0)"
ATTACH = f"ALTER TABLE notes ATTACH PARTITION notes_0 {NOTES_0}"
DETACH = "ALTER TABLE notes DETACH PARTITION notes_0"


class Watched:
    """A company, and what is known of its partitions."""

    def __init__(self, legacy: Legacy, *, has_event: bool) -> None:
        self.legacy = legacy
        self.has_event = has_event
        if not has_event:
            legacy.sql("DROP EVENT TRIGGER tripstore_partitions")

    def breaches(self) -> list[str]:
        """What was found, by now at once, else by a look."""
        if not self.has_event:
            self.look()
        return [what for (what,) in self.legacy.sql("SELECT what FROM tripstore.breach ORDER BY number")]

    def look(self) -> None:
        with self.legacy.ours() as connection:
            look_at_partitions(connection)

    def notes(self) -> None:
        """Of trips in both partitions."""
        self.legacy.sql(
            "WITH t AS (INSERT INTO trips (status) SELECT 'new' FROM generate_series(1, 12) RETURNING id)"
            " SELECT set_config('test.first', min(id)::text, false) FROM t;"
            " INSERT INTO notes (trip_id, n, text) SELECT id, 1, 'x' FROM trips"
            " WHERE id >= current_setting('test.first')::int"
        )


@pytest.fixture(params=FLAVOURS)
def fresh(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    return captured(legacy_server(servers, flavour))


@pytest.fixture(params=[True, False], ids=["event", "look"])
def watched(request: pytest.FixtureRequest, fresh: Legacy) -> Watched:
    return Watched(fresh, has_event=request.param)


def test_nothing_is_a_breach_while_partitions_stay(watched: Watched) -> None:
    watched.notes()
    for statement in (
        "ALTER TABLE notes ADD more int",
        "VACUUM FULL notes_0",
        "CREATE TABLE other (id int) PARTITION BY LIST (id)",
        "CREATE TABLE other_1 PARTITION OF other DEFAULT",
        "ALTER TABLE other DETACH PARTITION other_1",
        "DROP TABLE other",
        "ALTER TABLE notes_0 RENAME TO notes_zero",
    ):
        watched.legacy.sql(statement)
    with watched.legacy.ours() as connection:
        for step in capture_steps(layout()):
            step.apply(connection, lambda _done, _total: None)

    watched.look()
    assert watched.breaches() == []


def test_i8_a_partition_that_was_away_for_a_moment_is_a_breach(watched: Watched) -> None:
    """The gate's trigger survives DETACH, and so do the rows: only the oids of the clones tell."""
    watched.notes()
    gates = "SELECT count(*) FROM pg_trigger WHERE tgname = '0_tripstore_gate'"
    before = watched.legacy.sql(gates), len(watched.legacy.changes())
    watched.legacy.sql(f"BEGIN; {DETACH}; UPDATE notes_0 SET text = 'unseen'; {ATTACH}; COMMIT")

    assert (watched.legacy.sql(gates), len(watched.legacy.changes())) == before  # the control: nothing else tells
    with watched.legacy.ours() as connection:
        assert not [each for each in verify(connection, layout()) if each.is_error]
    seen = watched.breaches()
    assert seen
    assert all("public.notes_0 was detached" in what or "public.notes_0 was attached" in what for what in seen)
    assert watched.breaches() == seen  # once


@pytest.mark.parametrize("statement", [DETACH, "DROP TABLE notes_0", f"{DETACH} CONCURRENTLY"])
def test_i8_a_partition_that_went_is_a_breach(watched: Watched, statement: str) -> None:
    watched.notes()
    watched.legacy.sql(statement)

    assert watched.breaches() == ["public.notes_0 was detached or dropped"]
    assert watched.breaches() == ["public.notes_0 was detached or dropped"]  # once


def test_i8_a_concurrent_detach_that_is_pending_is_a_breach(fresh: Legacy) -> None:
    """Its rows are gone from the table already, while its triggers still stand."""
    watched = Watched(fresh, has_event=False)
    watched.notes()
    with closing(fresh.connect()) as reader, closing(fresh.connect(autocommit=True)) as owner:
        rows(reader, "SELECT count(*) FROM notes")
        rows(owner, "SET statement_timeout = '300ms'")
        with pytest.raises(QueryCanceled):
            rows(owner, f"{DETACH} CONCURRENTLY")

        assert watched.breaches() == ["public.notes_0 was detached or dropped"]


def test_a_partition_that_is_made_is_none(watched: Watched) -> None:
    watched.legacy.sql(f"{DETACH}; DROP TABLE notes_0")
    before = watched.breaches()
    watched.legacy.sql(f"CREATE TABLE notes_x PARTITION OF notes {NOTES_0}")
    watched.notes()

    assert watched.breaches() == before


@pytest.mark.parametrize(
    "script",
    [
        "{fill}; {attach}",
        "BEGIN; {fill}; {attach}; INSERT INTO notes (trip_id, n) SELECT id, 3 FROM trips; COMMIT",
        "BEGIN; SAVEPOINT a; {fill}; RELEASE a; {attach}; COMMIT",
    ],
    ids=["before", "in one transaction", "in a savepoint"],
)
def test_i8_a_partition_that_came_with_rows_is_a_breach(watched: Watched, script: str) -> None:
    watched.notes()
    watched.legacy.sql(f"{DETACH}; ALTER TABLE notes_0 RENAME TO old")
    before = watched.breaches()
    fill = "CREATE TABLE notes_0 (LIKE notes INCLUDING ALL); INSERT INTO notes_0 SELECT * FROM old"
    watched.legacy.sql(script.format(fill=fill, attach=ATTACH))
    watched.legacy.sql("UPDATE trips SET status = 'later'")

    assert watched.breaches()[len(before) :] == [
        "public.notes_0 was attached, and has rows that capture may never have seen"
    ]


@pytest.mark.parametrize("remake", ["VACUUM FULL notes_0", "TRUNCATE notes_0"])
def test_an_empty_partition_that_came_is_none(watched: Watched, remake: str) -> None:
    """Whatever was done to its file before."""
    watched.notes()
    watched.legacy.sql(f"{DETACH}; DROP TABLE notes_0")
    before = watched.breaches()
    watched.legacy.sql("CREATE TABLE notes_0 (LIKE notes INCLUDING ALL)")
    with closing(watched.legacy.connect(autocommit=True)) as owner:
        rows(owner, remake)
    watched.legacy.sql(ATTACH)
    assert watched.breaches() == before
    watched.notes()

    assert watched.breaches() == before


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_i8_xids_do_not_order_an_attach(watched: Watched, isolation: str) -> None:
    """The transaction that attaches may be older than the one that loads, and its snapshot, too."""
    watched.notes()
    legacy = watched.legacy
    legacy.sql(f"{DETACH}; ALTER TABLE notes_0 RENAME TO old; CREATE TABLE notes_0 (LIKE notes INCLUDING ALL)")
    before = watched.breaches()
    with closing(legacy.connect()) as attaching:
        rows(attaching, f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        ((first,),) = rows(attaching, "SELECT pg_catalog.pg_current_xact_id()::text::bigint")
        legacy.sql("INSERT INTO notes_0 SELECT * FROM old")
        rows(attaching, ATTACH)
        attaching.commit()

    ((loaded,),) = legacy.sql("SELECT min(xmin::text::bigint) FROM notes_0")
    assert loaded > first  # the control: by its number the load is the later one
    assert watched.breaches()[len(before) :] == [
        "public.notes_0 was attached, and has rows that capture may never have seen"
    ]


@pytest.mark.parametrize("fill", ["before", "after"])
def test_i8_a_partition_of_one_that_came_is_as_unsure(fresh: Legacy, fill: str) -> None:
    """It was born a partition, of a table that had no triggers yet."""
    watched = Watched(fresh, has_event=False)
    watched.notes()
    fresh.sql(
        f"{DETACH}; ALTER TABLE notes_0 RENAME TO old; CREATE TABLE notes_0 (LIKE notes) PARTITION BY LIST (n);"
        "CREATE TABLE notes_0_d PARTITION OF notes_0 DEFAULT"
    )
    before = watched.breaches()
    load = "INSERT INTO notes_0 SELECT * FROM old"
    if fill == "before":
        fresh.sql(f"{load}; {ATTACH}")
        assert watched.breaches()[len(before) :] == [
            "public.notes_0_d was attached, and has rows that capture may never have seen"
        ]
    else:
        fresh.sql(ATTACH)
        watched.look()
        fresh.sql("CREATE TABLE notes_0_3 PARTITION OF notes_0 FOR VALUES IN (3)")
        fresh.sql("INSERT INTO notes (trip_id, n) SELECT id, 3 FROM trips")
        assert watched.breaches() == before


def test_i8_partitions_of_partitions_are_watched(watched: Watched) -> None:
    legacy = watched.legacy
    legacy.sql(f"{DETACH}; DROP TABLE notes_0")
    legacy.sql(
        f"CREATE TABLE notes_0 PARTITION OF notes {NOTES_0} PARTITION BY LIST (n);"
        "CREATE TABLE notes_0_1 PARTITION OF notes_0 FOR VALUES IN (1);"
        "CREATE TABLE notes_0_d PARTITION OF notes_0 DEFAULT"
    )
    before = watched.breaches()
    watched.notes()
    legacy.sql("ALTER TABLE notes_0 DETACH PARTITION notes_0_1")

    assert watched.breaches()[len(before) :] == ["public.notes_0_1 was detached or dropped"]


def test_i8_what_apply_mends_it_has_noted_before(fresh: Legacy) -> None:
    watched = Watched(fresh, has_event=False)
    watched.notes()
    fresh.sql(f"{DETACH}; UPDATE notes_0 SET text = 'unseen'; {ATTACH}; DROP TRIGGER \"0_tripstore_gate\" ON notes_0")
    fresh.install(layout())

    assert watched.breaches() == ["public.notes_0 was detached and attached again, or lost triggers"]
    with fresh.ours() as connection:
        assert verify(connection, layout()) == []  # the event trigger, too, stands again


def test_i8_truncation_before_the_triggers_stand_is_a_breach(fresh: Legacy) -> None:
    """Where no event trigger puts them on at once."""
    legacy, watched = fresh, Watched(fresh, has_event=False)
    legacy.sql(f"{DETACH}; DROP TABLE notes_0; CREATE TABLE notes_0 PARTITION OF notes {NOTES_0}")
    before = watched.breaches()
    watched.notes()
    legacy.sql("TRUNCATE notes_0")
    legacy.install(layout())

    assert watched.breaches()[len(before) :] == ["public.notes_0 was truncated or rewritten before its triggers stood"]
    with refused(TRUNCATE_REFUSED):
        legacy.sql("TRUNCATE notes_0")


def test_a_look_that_fails_does_not_stop_the_companys_change(fresh: Legacy) -> None:
    fresh.sql("ALTER TABLE tripstore.breach RENAME TO gone")
    fresh.sql(DETACH)

    assert fresh.sql("SELECT count(*) FROM pg_inherits WHERE inhparent = 'notes'::regclass") == [(1,)]


def test_without_a_superuser_capture_stands_and_partitions_are_looked_at(fresh: Legacy) -> None:
    """The owner of the tables may not make event triggers."""
    fresh = Legacy(fresh.server)
    role = f"owner_of_{fresh.name}"
    fresh.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'mine'; GRANT ALL ON DATABASE {fresh.name} TO {role}")
    for table in ("users", "trips", "attempts", "notes", "notes_0", "notes_1"):
        fresh.sql(f"ALTER TABLE {table} OWNER TO {role}")
    url = fresh.url.replace(f"postgres:{fresh.server.password}@", f"{role}:mine@")
    with connected(url, "test") as connection:
        apply(capture_steps(layout()), connection)
        assert rows(connection, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [(False,)]
        assert verify(connection, layout()) == []
        fresh.sql(DETACH)
        found = look_at_partitions(connection)

    assert found is not None
    assert found.what == "public.notes_0 was detached or dropped"
    assert fresh.sql("SELECT count(*) FROM pg_event_trigger") == [(0,)]


def test_two_who_look_at_once_find_one_breach(fresh: Legacy) -> None:
    watched = Watched(fresh, has_event=False)
    watched.notes()
    fresh.sql(DETACH)
    with fresh.ours() as first:
        first.autocommit = False
        look_at_partitions(first)
        with fresh.ours() as second, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(look_at_partitions, second)
            query = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)"
            while not fresh.sql(query, second.info.backend_pid)[0][0]:
                assert not waiting.done()
            first.commit()
            waiting.result(30)

    assert watched.breaches() == ["public.notes_0 was detached or dropped"]
