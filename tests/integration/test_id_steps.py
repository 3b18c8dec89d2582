"""From ids to UUIDs on tables that are in use: each step leaves the old code as it is, and goes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Barrier, Event
from uuid import UUID

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.sharding import shard_of
from tests.integration.id_company import (
    FLAVOURS,
    FULL_SPEED,
    LAYOUT,
    ONE_FLAVOUR,
    QUICK,
    OldCode,
    apply,
    company_session,
    layout,
    one,
    postgres,
    session,
    silent,
    small_company,
    unfilled,
)
from tripstore.backends.postgres.cells.read.scan import shard_sql
from tripstore.backends.postgres.ddl.steps import SchemaStep
from tripstore.backends.postgres.errors import InvalidLayout, LegacyUnavailable
from tripstore.backends.postgres.ids.ids import uuid_of_id
from tripstore.backends.postgres.ids.key_backfill import FillOldRows
from tripstore.backends.postgres.ids.key_columns import AddColumn
from tripstore.backends.postgres.ids.key_indexes import UniqueIndex
from tripstore.backends.postgres.ids.key_not_null import SetNotNull
from tripstore.backends.postgres.ids.key_triggers import FillNewRows
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.layout.layout import Layout, TableName
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

TRIP_COUNT = 120


def steps(of: Layout = LAYOUT) -> list[SchemaStep]:
    return id_steps(of, pace=FULL_SPEED, patience=QUICK)


both_versions = pytest.mark.parametrize("url", FLAVOURS, indirect=True)


@pytest.fixture(params=ONE_FLAVOUR)
def url(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[str]:
    """A database with the company's tables and rows."""
    flavour: Flavour = request.param
    with small_company(postgres(servers, flavour), TRIP_COUNT) as made:
        yield made


@pytest.fixture
def company(url: str) -> Iterator[Connection]:
    with company_session(url) as opened:
        yield opened


@pytest.fixture
def ours(url: str) -> Iterator[Connection]:
    with session(url) as opened:
        yield opened


@both_versions
def test_old_code_goes_on_after_every_step_and_after_every_step_back(company: Connection, ours: Connection) -> None:
    before = _columns(company)
    code = OldCode(company)
    code.work()

    for step in steps():
        assert not step.is_done(ours), step.title
        step.apply(ours, silent)
        assert step.is_done(ours), step.title
        code.work()

    assert unfilled(company) == 0
    assert all(step.is_done(ours) for step in steps())
    for step in reversed(steps()):
        step.revert(ours)
        if not isinstance(step, FillOldRows):
            assert not step.is_done(ours), step.title
        code.work()
    assert _columns(company) == before
    assert one(ours, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%tripstore%'") == 0
    assert one(ours, "SELECT count(*) FROM pg_class WHERE relname LIKE '%tripstore%'") == 0
    assert one(ours, "SELECT count(*) FROM pg_proc WHERE pronamespace = 'tripstore'::regnamespace") == 0


@both_versions
def test_keys_are_those_of_the_ids_and_nothing_else_is_written(company: Connection, ours: Connection) -> None:
    """Python and both servers compute alike; the company's triggers hear nothing of it."""
    apply(ours, steps())

    for number, uuid in rows(company, "SELECT id, trip_uuid FROM trips"):
        assert UUID(uuid) == uuid_of_id(LAYOUT, number)
    for table in ("trips", "trip_notes", "billing.attempts", "fare_adjustments"):
        assert one(company, f"SELECT sum(touched) FROM {table}") == 0


@pytest.mark.parametrize("number", [0, -1, 2**31 - 1, -(2**31)])
def test_any_id_has_the_same_uuid_in_python_and_in_postgres(company: Connection, ours: Connection, number: int) -> None:
    apply(ours, steps()[:2])

    uuid = one(company, "INSERT INTO trips (id) VALUES (%s) RETURNING trip_uuid", (number,))

    assert UUID(uuid) == uuid_of_id(LAYOUT, number)


def _columns(company: Connection) -> list[tuple[object, ...]]:
    return rows(
        company,
        "SELECT table_name, column_name, is_nullable FROM information_schema.columns "
        "WHERE table_schema IN ('public', 'billing') ORDER BY 1, 2",
    )


#: What some driver, job or restore of the company's may have set.
HOSTILE = """\
SET standard_conforming_strings = off; SET escape_string_warning = off; SET bytea_output = escape; SET search_path = '';
SET client_encoding = LATIN1; SET session_replication_role = replica; SET transform_null_equals = on;
SET quote_all_identifiers = on;
SET default_transaction_isolation = serializable; SET plpgsql.variable_conflict = use_column; SET row_security = off"""


@both_versions
def test_a_row_has_its_key_whatever_the_session_is_set_to(url: str, company: Connection, ours: Connection) -> None:
    apply(ours, steps())

    with company_session(url) as hostile:
        rows(hostile, HOSTILE)
        number = one(hostile, "INSERT INTO public.trips DEFAULT VALUES RETURNING id")
        rows(hostile, "INSERT INTO public.fare_adjustments (trip_id, n) VALUES (%s, 1)", (number,))

    assert UUID(one(company, "SELECT trip_uuid FROM trips WHERE id = %s", (number,))) == uuid_of_id(LAYOUT, number)
    assert unfilled(company) == 0


def test_keys_of_any_type_are_walked(company: Connection, ours: Connection) -> None:
    """Texts with every sign that SQL knows, times to the microsecond, in a key of several columns."""
    rows(
        company,
        "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_pkey, ADD COLUMN \"a % 'key'\" text, "
        "ADD COLUMN at timestamptz, ADD COLUMN f float8; "
        "UPDATE trip_notes SET f = random() / 3, at = clock_timestamp(), "
        "\"a % 'key'\" = chr(30 + id::int % 90) || E'\\\\''%s\\n' ; "
        "ALTER TABLE trip_notes ADD PRIMARY KEY (\"a % 'key'\", at, f)",
    )

    apply(ours, steps()[:9])

    assert one(company, "SELECT count(*) FROM trip_notes WHERE trip_uuid IS NULL") == 0


def test_no_row_slips_in_while_old_rows_are_filled(url: str, company: Connection, ours: Connection) -> None:
    """I8's ground: the trigger is there before the back-fill, so a row comes either before both or with its key."""
    apply(ours, [step for step in steps() if not isinstance(step, UniqueIndex | SetNotNull | FillOldRows)])

    with at_work(url) as codes:
        apply(ours, steps())

    assert sum(len(code.trips) for code in codes) > 0
    assert unfilled(company) == 0


def test_without_the_trigger_rows_would_slip_in(company: Connection, ours: Connection) -> None:
    """The control of the test above."""
    apply(ours, [step for step in steps() if not isinstance(step, FillNewRows | SetNotNull | UniqueIndex)])

    OldCode(company).work()

    assert unfilled(company) > 0


def test_a_child_of_a_transaction_older_than_the_back_fill_has_its_trips_key(
    url: str, company: Connection, ours: Connection
) -> None:
    """Its snapshot shows the trip still without a key."""
    apply(ours, steps()[:2])
    with company_session(url) as old:
        rows(old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM trips")
        apply(ours, [step for step in steps() if isinstance(step, AddColumn | FillNewRows)])
        steps()[2].apply(ours, silent)
        rows(old, "INSERT INTO billing.attempts (trip_id, attempt_no) VALUES (3, 2)")
        rows(old, "INSERT INTO trip_notes (trip_id, n) VALUES (3, 2)")
        rows(old, "COMMIT")

    assert UUID(one(company, "SELECT row_key FROM billing.attempts WHERE attempt_no = 2")) == uuid_of_id(LAYOUT, 3)
    assert UUID(one(company, "SELECT trip_uuid FROM trip_notes WHERE n = 2")) == uuid_of_id(LAYOUT, 3)


def test_locked_rows_are_passed_over_and_visited_again(url: str, company: Connection, ours: Connection) -> None:
    filling = _step(FillOldRows)
    apply(ours, steps()[:2])
    with company_session(url) as holder:
        rows(holder, "BEGIN; UPDATE trips SET status = 'held' WHERE id IN (3, 30)")

        with pytest.raises(LegacyUnavailable, match=f"pid {holder.info.backend_pid} "):
            filling.apply(ours, silent)

        assert one(company, "SELECT count(*) FROM trips WHERE trip_uuid IS NULL") == 2
        rows(holder, "COMMIT")
    filling.apply(ours, silent)
    assert filling.is_done(ours)


def test_progress_goes_up_and_ends_with_all(ours: Connection) -> None:
    heard: list[tuple[int, int | None]] = []
    rows(ours, "ANALYZE public.trips")
    apply(ours, steps()[:2])

    _step(FillOldRows).apply(ours, lambda done, total: heard.append((done, total)))

    assert len(heard) > 3
    assert [done for done, _total in heard] == sorted(done for done, _total in heard)
    assert heard[-1] == (TRIP_COUNT, TRIP_COUNT)
    assert all(total is not None and done <= total for done, total in heard)


def test_a_back_fill_begun_again_writes_only_what_is_missing(company: Connection, ours: Connection) -> None:
    apply(ours, steps()[:3])
    before = rows(company, "SELECT id, xmin FROM trips ORDER BY id")

    _step(FillOldRows).apply(ours, silent)

    assert rows(company, "SELECT id, xmin FROM trips ORDER BY id") == before


@both_versions
def test_set_not_null_reads_no_row_under_its_lock(ours: Connection) -> None:
    apply(ours, steps()[:3])
    del ours.notices[:]
    rows(ours, "SET client_min_messages = debug1")

    _step(SetNotNull).apply(ours, silent)

    assert any("sufficient to prove that it does not contain nulls" in notice for notice in ours.notices)
    assert one(ours, "SELECT count(*) FROM pg_constraint WHERE conname LIKE 'tripstore%'") == 0


@both_versions
def test_rows_that_came_without_a_key_are_told_and_leave_no_check_behind(company: Connection, ours: Connection) -> None:
    """A partition was attached, or an operator switched our trigger off: its updates must not be refused for that."""
    apply(ours, steps()[:3])
    rows(company, "ALTER TABLE trips DISABLE TRIGGER zz_tripstore_0_uuid; INSERT INTO trips (id) VALUES (1)")

    with pytest.raises(LegacyUnavailable, match="has rows without trip_uuid again"):
        _step(SetNotNull).apply(ours, silent)

    rows(company, "UPDATE trips SET status = 'updated' WHERE id = 1")
    assert not _step(FillNewRows).is_done(ours)
    apply(ours, steps())
    assert unfilled(company) == 0


@both_versions
def test_a_uuid_column_of_the_companys_is_taken_as_it_is(company: Connection, ours: Connection) -> None:
    rows(company, "ALTER TABLE trips ADD COLUMN key uuid NOT NULL UNIQUE DEFAULT gen_random_uuid()")
    before = rows(company, "SELECT id, key FROM trips ORDER BY id")
    made = steps(layout("key"))

    assert all(step.is_done(ours) for step in made[:5])
    apply(ours, made)

    assert rows(company, "SELECT id, key FROM trips ORDER BY id") == before
    assert one(company, "SELECT count(*) FROM trip_notes JOIN trips ON trips.id = trip_id AND key = trip_uuid") == (
        TRIP_COUNT
    )
    OldCode(company).insert()
    for step in reversed(made):
        step.revert(ours)
    assert rows(company, "SELECT id, key FROM trips ORDER BY id")[:TRIP_COUNT] == before
    assert one(company, "SELECT attnotnull FROM pg_attribute WHERE attrelid = 'trips'::regclass AND attname = 'key'")


def test_the_key_of_a_trip_that_is_not_there_yet_is_not_guessed(company: Connection, ours: Connection) -> None:
    """Where the company gives random UUIDs, a child before its parent is refused rather than given a wrong key."""
    rows(company, "ALTER TABLE trips ADD COLUMN key uuid NOT NULL UNIQUE DEFAULT gen_random_uuid()")
    apply(ours, steps(layout("key")))

    with pytest.raises(psycopg2.errors.NotNullViolation):
        OldCode(company).insert_together()


def test_empty_values_of_a_uuid_column_of_the_companys_are_filled(company: Connection, ours: Connection) -> None:
    rows(company, "ALTER TABLE trips ADD COLUMN key uuid; UPDATE trips SET key = gen_random_uuid() WHERE id % 2 = 0")
    before = rows(company, "SELECT id, key FROM trips WHERE key IS NOT NULL ORDER BY id")
    made = steps(layout("key"))

    apply(ours, made)

    assert rows(company, "SELECT id, key FROM trips WHERE id % 2 = 0 ORDER BY id") == before
    assert UUID(one(company, "SELECT key FROM trips WHERE id = 3")) == uuid_of_id(layout("key"), 3)
    OldCode(company).insert()
    assert one(company, "SELECT count(*) FROM trips WHERE key IS NULL") == 0
    for step in reversed(made):
        step.revert(ours)
    assert rows(company, "SELECT id, key FROM trips WHERE id % 2 = 0 AND id <= 360 ORDER BY id") == before
    rows(company, "INSERT INTO trips (key) VALUES (NULL)")


def test_a_column_of_another_type_is_refused(company: Connection, ours: Connection) -> None:
    rows(company, "ALTER TABLE trips ADD COLUMN trip_uuid text")

    with pytest.raises(InvalidLayout, match=r"trips\.trip_uuid is text, not uuid"):
        steps()[0].is_done(ours)


def test_a_domain_over_uuid_is_a_uuid(company: Connection, ours: Connection) -> None:
    rows(company, "CREATE DOMAIN trip_key AS uuid; ALTER TABLE trips ADD COLUMN trip_uuid trip_key")

    apply(ours, steps())

    assert unfilled(company) == 0


def test_children_without_a_parent_are_named(company: Connection, ours: Connection) -> None:
    rows(company, "ALTER TABLE trips ADD COLUMN key uuid NOT NULL UNIQUE DEFAULT gen_random_uuid()")
    rows(company, "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_fkey")
    rows(company, "INSERT INTO trip_notes (trip_id, n) VALUES (-7, 1), (-8, 1)")

    with pytest.raises(InvalidLayout, match="2 rows of trip_notes have no parent: trip_id is -8, -7"):
        apply(ours, steps(layout("key")))


def test_rows_that_share_a_key_are_named_and_no_index_is_left_to_refuse_more(
    company: Connection, ours: Connection
) -> None:
    """An invalid unique index refuses rows all the same."""
    rows(company, "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key")
    rows(company, "INSERT INTO trip_notes (trip_id, n) VALUES (3, 1)")

    with pytest.raises(InvalidLayout, match=r"trip_notes cannot have a unique index .* \(trip_uuid, n\)="):
        apply(ours, steps())

    assert one(ours, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 0
    rows(company, "INSERT INTO trip_notes (trip_id, n) VALUES (3, 1)")


def test_a_table_that_cannot_be_walked_is_refused(company: Connection, ours: Connection) -> None:
    rows(company, "ALTER TABLE trip_notes DROP CONSTRAINT trip_notes_trip_id_n_key, DROP CONSTRAINT trip_notes_pkey")

    with pytest.raises(InvalidLayout, match="trip_notes has no primary key"):
        apply(ours, steps())


def test_a_missing_table_is_named(ours: Connection) -> None:
    with pytest.raises(InvalidLayout, match=r"There is no table archive\.trips"):
        steps(layout(source=TableName("archive", "trips")))[0].is_done(ours)


@both_versions
def test_an_owner_who_is_no_superuser_needs_no_help(url: str, company: Connection) -> None:
    """Then the company's triggers hear of the back-fill, for only a superuser may keep them from it."""
    name = one(company, "SELECT current_database()")
    role = f"owner_{name}"
    rows(company, f"CREATE ROLE {role} LOGIN PASSWORD 'mine'; GRANT CREATE ON DATABASE {name} TO {role}")
    rows(company, f"ALTER SCHEMA public OWNER TO {role}; ALTER SCHEMA billing OWNER TO {role}")
    for table in ("trips", "trip_notes", "billing.attempts", "fare_adjustments"):
        rows(company, f"ALTER TABLE {table} OWNER TO {role}")
    for table in ("p0", "p1", "p1_first", "p1_rest"):
        rows(company, f"ALTER TABLE fare_adjustments_{table} OWNER TO {role}")
    try:
        with session(re.sub(r"//.*@", f"//{role}:mine@", url)) as owner:
            apply(owner, steps())
            assert all(step.is_done(owner) for step in steps())
            with company_session(url) as holder:
                rows(holder, "BEGIN; UPDATE trips SET status = 'held'")
                with pytest.raises(LegacyUnavailable, match=f"pid {holder.info.backend_pid} "):
                    _step(UniqueIndex).revert(owner)
        assert unfilled(company) == 0
        assert one(company, "SELECT min(touched) FROM trips") == 1
    finally:
        rows(company, f"REASSIGN OWNED BY {role} TO postgres; DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_role_that_may_only_write_the_companys_tables_goes_on(
    url: str, company: Connection, ours: Connection
) -> None:
    """It has no right to schema tripstore, nor to read the parent."""
    role = f"writer_{one(company, 'SELECT current_database()')}"
    rows(company, f"CREATE ROLE {role}; GRANT INSERT ON trip_notes TO {role}; GRANT USAGE ON SCHEMA public TO {role}")
    apply(ours, steps())
    try:
        with company_session(url) as writer:
            rows(writer, f"SET ROLE {role}; SET search_path = public")
            rows(writer, "INSERT INTO trip_notes (trip_id, n) VALUES (3, 5)")
    finally:
        rows(company, f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert unfilled(company) == 0


def test_the_index_of_the_page_knows_the_shard_of_a_row(company: Connection, ours: Connection) -> None:
    apply(ours, steps())
    page = (Path(__file__).parents[2] / "docs/howto/ids-to-uuids.md").read_text()
    (statement,) = re.findall(r"CREATE INDEX CONCURRENTLY trips_shard [^;]+;", page)
    rows(ours, statement)

    expression = shard_sql("trip_uuid", 16)
    for uuid, shard in rows(company, f"SELECT trip_uuid, {expression} FROM trips"):
        assert shard == shard_of(UUID(uuid), 16)
    rows(company, "SET enable_seqscan = off")
    plan = str(rows(company, f"EXPLAIN SELECT trip_uuid FROM trips WHERE {expression} = 3"))
    assert "trips_shard" in plan


def test_a_trigger_that_was_switched_off_or_changed_is_mended(company: Connection, ours: Connection) -> None:
    apply(ours, steps())
    filling = _step(FillNewRows)
    for damage in (
        "ALTER TABLE public.trips ENABLE TRIGGER zz_tripstore_0_uuid",
        "DROP TRIGGER zz_tripstore_0_uuid ON public.trips",
        'ALTER FUNCTION tripstore."public.trips.uuid"() SECURITY INVOKER',
        'ALTER FUNCTION tripstore."public.trips.uuid"() RESET search_path',
    ):
        rows(company, damage)
        assert not filling.is_done(ours), damage
        filling.apply(ours, silent)
        assert filling.is_done(ours), damage


@both_versions
def test_partitions_are_served_whichever_table_is_named_and_whenever_they_come(
    company: Connection, ours: Connection
) -> None:
    rows(company, "DROP TABLE fare_adjustments_p1_rest")
    apply(ours, steps())

    for table, suffix in (("fare_adjustments_p1_second", "FOR VALUES IN (2)"), ("fare_adjustments_p1_rest", "DEFAULT")):
        rows(company, f"CREATE TABLE {table} PARTITION OF fare_adjustments_p1 {suffix}")
    rows(company, "INSERT INTO fare_adjustments (trip_id, n) SELECT id, generate_series(21, 22) FROM trips")
    rows(
        company, "INSERT INTO fare_adjustments_p0 (trip_id, n) SELECT trip_id, 23 FROM fare_adjustments_p0 WHERE n = 21"
    )

    assert unfilled(company) == 0
    assert all(step.is_done(ours) for step in steps())
    with pytest.raises(psycopg2.errors.UniqueViolation):
        rows(company, "INSERT INTO fare_adjustments (trip_id, n) VALUES (6, 21)")


@both_versions
def test_a_partition_that_is_attached_with_rows_is_refused_or_filled(company: Connection, ours: Connection) -> None:
    rows(company, "DROP TABLE fare_adjustments_p1_rest")
    table = "CREATE TABLE attached (trip_id int NOT NULL, n int NOT NULL, reason text, touched int NOT NULL DEFAULT 0"
    attach = "ALTER TABLE fare_adjustments_p1 ATTACH PARTITION attached DEFAULT"
    made = steps()
    apply(ours, made[:-2])
    rows(company, f"{table}, trip_uuid uuid)")
    trip = one(company, "SELECT trip_id FROM fare_adjustments_p1 LIMIT 1")
    rows(company, "INSERT INTO attached (trip_id, n) VALUES (%s, 7)", (trip,))
    rows(company, attach)
    assert not made[-3].is_done(ours)

    apply(ours, made)

    assert unfilled(company) == 0
    assert all(step.is_done(ours) for step in made)


def _step(kind: type[SchemaStep], number: int = 0) -> SchemaStep:
    """The step of a kind for the parent, or for a child."""
    return [step for step in steps() if isinstance(step, kind)][number]


@contextmanager
def at_work(url: str) -> Iterator[list[OldCode]]:
    """Services that work all the time; what goes wrong for one of them is raised at the end."""
    ended, begun = Event(), Barrier(3)

    def work(code: OldCode) -> None:
        code.work()
        begun.wait(30)
        while not ended.is_set():
            code.work()

    with ExitStack() as opened, ThreadPoolExecutor(2) as pool:
        codes = [OldCode(opened.enter_context(company_session(url))) for _ in range(2)]
        futures = [pool.submit(work, code) for code in codes]
        try:
            begun.wait(30)
            yield codes
        finally:
            ended.set()
        for future in futures:
            future.result(30)
